"""`gtrun dispatch`."""

from typing import Annotated

import typer

from gtrun.cli.commands import JsonOption, command_parser
from gtrun.cli.dispatching import dispatch as _dispatch
from gtrun.cli.dispatching import dispatch_picked, dispatch_plugin
from gtrun.errors import UsageError

app = command_parser()


@app.command()
def dispatch(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="An agent or a rig of fleet.toml; `me` where there is none.", show_default=False
        ),
    ],
    issue: Annotated[
        str | None,
        typer.Argument(metavar="ISSUE", help="Without: the best ready one for the target.", show_default=False),
    ] = None,
    prefer_skill: Annotated[
        list[str] | None, typer.Option(metavar="S", help="Of the agents that are free, those with it. Repeatable.")
    ] = None,
    plugin: Annotated[
        str | None, typer.Option(metavar="FILE", help="In place of an issue: a WebAssembly module or an executable.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")] = False,  # noqa: FBT002
    wait: Annotated[bool, typer.Option("--wait", help="Wait; exit as the run did, 128+n for a signal.")] = False,  # noqa: FBT002
    as_json: JsonOption = False,  # noqa: FBT002
) -> int:
    """Start a run of one issue by one agent, exactly once; without an issue, of the best that is ready.

    Refused with 9 (its quota is used up), 11 (the issue is live on it), 14 (live on another) or 13 (not work); without
    an issue with 10 (full, backing off, settling or paused) or 12 (nothing is ready). Other codes: README.
    A plugin is refused with 11, 14, and 10 while it rests after a run that succeeded (docs/plugins.md).
    Variables: DISPATCH_IGNORE_QUOTA=1 skips the first, DISPATCH_ALLOW_DUPLICATE=1 the second.
    """
    if plugin is not None:
        if issue is not None or prefer_skill:
            raise UsageError(
                "--plugin starts a file in place of an issue: neither ISSUE nor --prefer-skill goes with it"
            )
        return dispatch_plugin(context.obj, target, plugin, dry_run=dry_run, wait=wait, as_json=as_json)
    if issue is None:
        skills = prefer_skill or []
        return dispatch_picked(context.obj, target, prefer_skills=skills, dry_run=dry_run, wait=wait, as_json=as_json)
    if prefer_skill:
        raise UsageError("--prefer-skill chooses an agent for an issue, and both are named")
    return _dispatch(context.obj, target, issue, dry_run=dry_run, wait=wait, as_json=as_json)
