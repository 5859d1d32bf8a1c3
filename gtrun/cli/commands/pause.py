"""`gtrun pause`."""

import time
from typing import Annotated

import typer

from gtrun.cli.commands import command_parser
from gtrun.cli.forwarding import elsewhere
from gtrun.cli.output import say
from gtrun.counters import EVERYBODY, Pause
from gtrun.exits import Exit
from gtrun.state.ledger import Ledger

app = command_parser()


@app.command()
def pause(
    context: typer.Context,
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="An agent or a rig; all without it.", show_default=False)
    ] = None,
) -> int:
    """Hand out no work by itself any more. What runs goes on, and an issue that is named is started all the same."""
    fleet = context.obj.fleet()
    if (code := elsewhere(context.obj, fleet)) is not None:
        return code
    if target is not None:
        fleet.target(target)
    with Ledger(context.obj.caller().state) as ledger:
        changed = ledger.pause(target or EVERYBODY, Pause(by=context.obj.by(), at=time.time()))
    who = target or "everybody"
    say(
        f"{who} gets no work until `gtrun resume{f' {target}' if target else ''}`"
        if changed
        else f"{who} is paused already"
    )
    return Exit.DONE
