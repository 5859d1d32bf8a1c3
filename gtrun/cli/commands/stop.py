"""`gtrun stop`."""

from typing import Annotated

import typer

from gtrun.cli.commands import JsonOption, command_parser
from gtrun.cli.forwarding import whose
from gtrun.cli.output import document, say, tell
from gtrun.errors import GtrunError, UsageError
from gtrun.exits import Exit
from gtrun.looking import live
from gtrun.looking import stop as stop_runs
from gtrun.markers import outcome, used

app = command_parser()


@app.command()
def stop(
    context: typer.Context,
    issue: Annotated[str | None, typer.Argument(metavar="ISSUE", help="Its live runs.", show_default=False)] = None,
    agent: Annotated[str | None, typer.Option(help="Stop what this agent runs.", metavar="A")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Stop every run.")] = False,  # noqa: FBT002
    as_json: JsonOption = False,  # noqa: FBT002
) -> int:
    """Stop the whole cgroup of a run and wait until it is closed out."""
    if everything == (issue is not None or agent is not None):
        raise UsageError("say what to stop: an issue, --agent A, both, or --all alone")
    caller = context.obj.caller()
    fleet = context.obj.fleet()
    key = fleet.work_key(issue) if issue is not None else None
    found, silent = live(fleet, caller, issue=key, agent=agent)
    stopped, failed = [], bool(silent)
    for agent_asked in silent:
        say(f"{agent_asked.agent.name} could not be asked: {agent_asked.problem}")
    for one, run in stop_runs(found, caller):
        if isinstance(run, GtrunError):
            say(run.message)
            if run.hint:
                say(f"hint: {run.hint}")
            failed = True
            continue
        ending = run.ending if run else None
        name = one.run.unit.state.name
        stopped.append({"agent": one.agent.name, "unit": name, "run": one.run.unit.run,
                        "result": ending.result if ending else None})  # fmt: skip
        if not as_json:
            told = f"{outcome(ending)}, {used(ending)}" if ending else "its close-out has not been written"
            tell(f"{name} on {one.agent.name}: {told}")
    if as_json:
        document("stop", stopped=stopped, failed=failed)
    elif not found and not silent:
        say("nothing to stop: no such run is live")
        if hint := whose(context.obj, fleet):
            say(f"hint: {hint}")
    return Exit.DONE if stopped and not failed else Exit.FAILED
