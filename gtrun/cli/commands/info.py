"""`gtrun info`."""

import platform

from gtrun import __version__
from gtrun.cli.commands import JsonOption, command_parser
from gtrun.cli.output import document, table
from gtrun.process import capture
from gtrun.release.installation import read, this_folder

app = command_parser()


@app.command()
def info(as_json: JsonOption = False) -> None:  # noqa: FBT002
    """Versions of gtrun, systemd and Python; commit and folder of the release, where scripts/install made one."""
    lines = capture(["systemctl", "--version"]).output.split()
    systemd = lines[1] if lines[1:] else "not found"
    python = platform.python_version()
    folder = this_folder()
    commit = read(folder).commit if folder else None
    if as_json:
        release = str(folder) if folder else None
        document("info", version=__version__, commit=commit, release=release, systemd=systemd, python=python)
    else:
        rows = [("gtrun", __version__), ("commit", commit or "-"), ("release", folder or "-")]
        table(("WHAT", "VERSION"), [*rows, ("systemd", systemd), ("python", python)])
