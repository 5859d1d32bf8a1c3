"""`gtrun dispatch`."""

from typing import Annotated

import typer

from gtrun.cli.commands import IssueArgument, JsonOption, command_parser
from gtrun.cli.dispatching import dispatch as _dispatch

app = command_parser()


@app.command()
def dispatch(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="An agent of fleet.toml; `me` without one.", show_default=False)
    ],
    issue: IssueArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")] = False,  # noqa: FBT002
    wait: Annotated[bool, typer.Option("--wait", help="Wait, and exit with the run's own code.")] = False,  # noqa: FBT002
    as_json: JsonOption = False,  # noqa: FBT002
) -> int:
    """Start a run of one issue by one agent, exactly once."""
    return _dispatch(context.obj, target, issue, dry_run=dry_run, wait=wait, as_json=as_json)
