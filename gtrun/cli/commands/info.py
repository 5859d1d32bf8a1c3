"""`gtrun info`."""

import platform
import textwrap

from gtrun import __version__
from gtrun.cli.commands import JsonOption, command_parser
from gtrun.cli.output import document, table
from gtrun.news import what_is_new
from gtrun.process import capture
from gtrun.release.installation import read, this_folder

app = command_parser()


@app.command()
def info(as_json: JsonOption = False) -> None:  # noqa: FBT002
    """Versions of gtrun, systemd and Python; commit and folder of its release, if it is one; what is new in it."""
    lines = capture(["systemctl", "--version"]).output.split()
    systemd = lines[1] if lines[1:] else "not found"
    python = platform.python_version()
    folder = this_folder()
    commit = read(folder).commit if folder else None
    if as_json:
        release = str(folder) if folder else None
        document(
            "info", version=__version__, commit=commit, release=release, systemd=systemd, python=python,
            news=what_is_new(),
        )  # fmt: skip
    else:
        rows = [("gtrun", __version__), ("commit", commit or "-"), ("release", folder or "-")]
        table(("WHAT", "VERSION"), [*rows, ("systemd", systemd), ("python", python)])
        print(f"\nnew in {__version__}")
        for item in what_is_new():
            print(textwrap.fill(item, 100, initial_indent="- ", subsequent_indent="  ", break_long_words=False))
