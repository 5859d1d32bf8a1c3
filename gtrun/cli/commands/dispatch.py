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
        str, typer.Argument(metavar="AGENT", help="An agent of fleet.toml; `me` without one.", show_default=False)
    ],
    issue: IssueArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")] = False,  # noqa: FBT002
    wait: Annotated[bool, typer.Option("--wait", help="Wait; exit as the run did, 128+n for a signal.")] = False,  # noqa: FBT002
    as_json: JsonOption = False,  # noqa: FBT002
) -> int:
    """Start a run of one issue by one agent, exactly once.

    Refused with 9 (its quota is used up), 11 (the issue is live on it), 14 (live on another) or 13 (not work).
    Variables: DISPATCH_IGNORE_QUOTA=1 skips the first, DISPATCH_ALLOW_DUPLICATE=1 the second. Other codes: README.
    """
    return _dispatch(context.obj, target, issue, dry_run=dry_run, wait=wait, as_json=as_json)
