"""`gtrun resume`."""

from typing import Annotated

import typer

from gtrun.cli.commands import command_parser
from gtrun.cli.forwarding import elsewhere
from gtrun.cli.output import say
from gtrun.counters import EVERYBODY
from gtrun.exits import Exit
from gtrun.state.ledger import Ledger

app = command_parser()


@app.command()
def resume(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="An agent or a rig; without it, what was paused as a whole."),
    ] = None,
) -> int:
    """Hand out work again. Each pause is taken back for itself: that of a rig stays when that of all is."""
    fleet = context.obj.fleet()
    if (code := elsewhere(context.obj, fleet)) is not None:
        return code
    with Ledger(context.obj.caller().state) as ledger:
        changed = ledger.resume(target or EVERYBODY)
        left = sorted(name or "everybody" for name in ledger.pauses())
    who = target or "everybody"
    free = f"the pause of {who} is taken back" if left else f"{who} can be given work"
    say(free if changed else f"{who} was not paused")
    if left:
        say(f"still paused: {', '.join(left)}")
    return Exit.DONE
