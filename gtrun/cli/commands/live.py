"""`gtrun live`."""

import typer

from gtrun.cli.commands import IssueArgument, JsonOption, command_parser
from gtrun.cli.forwarding import whose
from gtrun.cli.live_table import show
from gtrun.cli.output import say
from gtrun.exits import Exit
from gtrun.looking import live as find_live
from gtrun.names import in_words

app = command_parser()


@app.command()
def live(
    context: typer.Context,
    issue: IssueArgument,
    as_json: JsonOption = False,  # noqa: FBT002
) -> int:
    """Every live unit for one issue. Exits with 1 if there is none."""
    fleet = context.obj.fleet()
    key = fleet.work_key(issue)
    found, silent = find_live(fleet, context.obj.caller(), issue=key)
    show("live", found, silent, as_json=as_json)
    if not found:
        say(f"nothing is live for {in_words(key)}" + (" where it could be asked" if silent else ""))
        if hint := whose(context.obj, fleet):
            say(f"hint: {hint}")
    return Exit.DONE if found else Exit.FAILED
