"""`gtrun ps`."""

import sys
from typing import Annotated

import typer

from gtrun.cli.commands import JsonOption, command_parser
from gtrun.cli.forwarding import whose
from gtrun.cli.live_table import show
from gtrun.cli.output import begin_page, say
from gtrun.looking import live
from gtrun.process import pause

app = command_parser()
_AGAIN = 2.0  # seconds between two tables


@app.command()
def ps(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Again and again, until ^C.")] = False,  # noqa: FBT002
    as_json: JsonOption = False,  # noqa: FBT002
) -> None:
    """Every live run of every agent."""
    fleet, caller = context.obj.fleet(), context.obj.caller()
    while True:
        found, silent = live(fleet, caller)
        if watch and not as_json:
            begin_page()
        show("ps", found, silent, as_json=as_json)
        if not found and not silent and not (watch and as_json):
            say("nothing is running")
            if hint := whose(context.obj, fleet):
                say(f"hint: {hint}")
        if not watch:
            return
        sys.stdout.flush()
        pause(_AGAIN)
