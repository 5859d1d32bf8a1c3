"""`gtrun live`."""

from typing import Annotated

import typer

from gtrun.cli.live_table import show
from gtrun.cli.output import say
from gtrun.exits import Exit
from gtrun.looking import live as find_live
from gtrun.names import parse_issue

app = typer.Typer()


@app.command()
def live(
    context: typer.Context,
    issue: Annotated[str, typer.Argument(help="142, owner/repo#142, or its URL.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,  # noqa: FBT002
) -> int:
    """Every live unit for one issue. Exits with 1 if there is none."""
    key = parse_issue(issue)
    found, silent = find_live(context.obj.fleet(), context.obj.caller(), issue=key)
    show("live", found, silent, as_json=as_json)
    if not found:
        say(f"nothing is live for issue {key}" + (" where it could be asked" if silent else ""))
    return Exit.DONE if found else Exit.FAILED
