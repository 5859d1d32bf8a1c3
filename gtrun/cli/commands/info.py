"""`gtrun info`."""

import platform

from gtrun import __version__
from gtrun.cli.commands import JsonOption, command_parser
from gtrun.cli.output import document, table
from gtrun.process import capture

app = command_parser()


@app.command()
def info(as_json: JsonOption = False) -> None:  # noqa: FBT002
    """Versions of gtrun, systemd and Python."""
    lines = capture(["systemctl", "--version"]).output.split()
    systemd = lines[1] if lines[1:] else "not found"
    python = platform.python_version()
    if as_json:
        document("info", version=__version__, systemd=systemd, python=python)
    else:
        table(("WHAT", "VERSION"), [("gtrun", __version__), ("systemd", systemd), ("python", python)])
