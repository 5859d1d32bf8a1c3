"""`gtrun preflight …`: what the guards would say, by the very same objects, with nothing written."""

import os
from typing import Annotated

import typer

from gtrun.cli.commands import IssueArgument, command_parser
from gtrun.cli.output import say
from gtrun.dispatch import Asked, Request, ask
from gtrun.exits import Exit
from gtrun.guards import CLAIM, ORDER, Guard
from gtrun.names import IssueKey, parse_issue
from gtrun.reach import Worker
from gtrun.survey import enlisted

app = command_parser()
AgentArgument = Annotated[str, typer.Argument(metavar="AGENT", help="An agent of fleet.toml.", show_default=False)]

_GUARDS = dict(ORDER)
_NO_ISSUE = IssueKey("0")  # no board has it: the quota guard does not ask for one


@app.command("quota")
def quota(context: typer.Context, agent: AgentArgument) -> int:
    """Exits with 9 if a dispatch to this agent would be refused for its quota."""
    return _preflight(context, ("quota", _GUARDS["quota"]), agent, _NO_ISSUE)


@app.command("duplicate")
def duplicate(context: typer.Context, agent: AgentArgument, issue: IssueArgument) -> int:
    """Exits with 11 if this agent runs this issue already."""
    return _preflight(context, ("duplicate", _GUARDS["duplicate"]), agent, parse_issue(issue))


@app.command("claim")
def claim(context: typer.Context, issue: IssueArgument) -> int:
    """Exits with 14 if any agent runs this issue."""
    return _preflight(context, CLAIM, None, parse_issue(issue))


def _preflight(context: typer.Context, guard: Guard, target: str | None, issue: IssueKey) -> int:
    fleet, caller = context.obj.fleet(), context.obj.caller()
    agent = fleet.agent(target) if target is not None else next(iter(fleet.agents.values()))
    with Worker.start() as worker, enlisted(fleet, caller, agent, worker) as team:
        # for the claim no agent is the own one: a run on any of them is somebody else's
        question = Asked(fleet, Request(target or "", issue, caller, os.environ), team).question
        _, refusal = ask([guard], question, say)
    if refusal is None:
        print("pass")
        return Exit.DONE
    print(f"refused: {refusal.reason}")
    return refusal.code
