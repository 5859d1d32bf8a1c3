"""`gtrun init`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from gtrun.cli.commands import command_parser
from gtrun.cli.invocation import Invocation
from gtrun.cli.output import say
from gtrun.config import find
from gtrun.config.template import target, write
from gtrun.config.trust import read_trusted
from gtrun.errors import ConfigError

app = command_parser()


@app.command()
def init(
    context: typer.Context,
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="PATH",
            help="Default: $XDG_CONFIG_HOME/gtrun/fleet.toml, or /etc/gtrun/fleet.toml for root.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file, and keep it as .bak.")] = False,  # noqa: FBT002
) -> None:
    """Write a commented fleet.toml."""
    invocation: Invocation = context.obj
    written = Path.cwd() / (path or target(invocation.environment, invocation.config, os.geteuid()))
    kept = write(written, force=force)
    print(written)
    if kept is not None:
        say(f"the file that was there is kept as {kept}")
    _say_what_next(invocation, written)


def _say_what_next(invocation: Invocation, written: Path) -> None:
    try:
        read_trusted(written, os.geteuid())
    except ConfigError as error:
        say(f"it cannot be used yet: {error.message}")
        say(f"hint: {error.hint}")
    option = "" if _counts(invocation, written) else f" --config {written}"
    if option:
        say(f"it is not the file that counts here: use --config {written} or GTRUN_CONFIG={written}")
    say(f"next: set the command in [run], then: gtrun{option} doctor")
    say(f"and: gtrun{option} board add 'Try it' && gtrun{option} dispatch me 1")


def _counts(invocation: Invocation, written: Path) -> bool:
    try:
        counting = find(invocation.environment, None)
    except ConfigError:
        return False
    return counting is not None and counting == written
