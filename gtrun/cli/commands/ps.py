"""`gtrun ps`."""

import typer

from gtrun.cli.commands import JsonOption, command_parser
from gtrun.cli.live_table import show
from gtrun.cli.output import say
from gtrun.looking import live

app = command_parser()


@app.command()
def ps(
    context: typer.Context,
    as_json: JsonOption = False,  # noqa: FBT002
) -> None:
    """Every live run of every agent."""
    found, silent = live(context.obj.fleet(), context.obj.caller())
    show("ps", found, silent, as_json=as_json)
    if not found and not silent:
        say("nothing is running")
