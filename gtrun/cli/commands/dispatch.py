"""`gtrun dispatch`."""

from typing import Annotated

import typer

from gtrun.cli.dispatching import dispatch as _dispatch

app = typer.Typer()


@app.command()
def dispatch(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="An agent of fleet.toml; `me` without one.", show_default=False)],
    issue: Annotated[str, typer.Argument(help="142, owner/repo#142, or its URL.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")] = False,  # noqa: FBT002
    wait: Annotated[bool, typer.Option("--wait", help="Wait, and exit with the run's own code.")] = False,  # noqa: FBT002
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,  # noqa: FBT002
) -> int:
    """Start a run of one issue by one agent, exactly once."""
    return _dispatch(context.obj, target, issue, dry_run=dry_run, wait=wait, as_json=as_json)
