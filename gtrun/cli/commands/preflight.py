"""`gtrun preflight …`: what the guards would say, by the very same objects, with nothing written."""

from typing import Annotated

import typer

from gtrun.asked import Asked, ask
from gtrun.cli.commands import IssueArgument, command_parser
from gtrun.cli.forwarding import elsewhere
from gtrun.cli.output import say
from gtrun.exits import Exit
from gtrun.guards import CLAIM, ORDER, Guard, Question
from gtrun.guards.verdict import BoardView, FleetView
from gtrun.names import IssueKey, unit_names
from gtrun.quota import QuotaFile
from gtrun.reach import Worker
from gtrun.reach import operations as at_agent
from gtrun.request import Request
from gtrun.survey import agents_of, enlisted, survey
from gtrun.text import plain

app = command_parser()
AgentArgument = Annotated[str, typer.Argument(metavar="AGENT", help="An agent of fleet.toml.", show_default=False)]

_GUARDS = dict(ORDER)
_NO_ISSUE = IssueKey("0")  # no board has it: the quota guard does not ask for one


@app.command("quota")
def quota(context: typer.Context, agent: AgentArgument) -> int:
    """Exits with 9 if the quota of this agent is used up."""
    return _preflight(context, ("quota", _GUARDS["quota"]), agent, None)


@app.command("duplicate")
def duplicate(context: typer.Context, agent: AgentArgument, issue: IssueArgument) -> int:
    """Exits with 11 if this agent runs this issue already."""
    return _preflight(context, ("duplicate", _GUARDS["duplicate"]), agent, issue)


@app.command("claim")
def claim(context: typer.Context, issue: IssueArgument) -> int:
    """Exits with 14 if any agent runs this issue."""
    fleet, caller = context.obj.fleet(), context.obj.caller()
    key = fleet.issue_key(issue)
    if (code := elsewhere(context.obj, fleet)) is not None:
        return code
    answers = survey(agents_of(fleet, None), fleet, caller, at_agent.list_units, at_agent.Patterns(unit_names(key)))
    units = {answer.agent.name: answer.value for answer in answers if answer.value is not None}
    silent = {answer.agent.name: answer.problem for answer in answers if answer.value is None}
    question = Question(
        issue=key,
        agent="",  # no agent is the own one: a run on any of them is somebody else's
        environment=context.obj.environment,
        terminal_labels=(),
        terminal_glyphs=(),
        now=0.0,
        board=BoardView,
        quota=QuotaFile,
        units=list,
        fleet=lambda: FleetView(units, silent),
    )
    return _answer(CLAIM, question)


def _preflight(context: typer.Context, guard: Guard, target: str, issue: str | None) -> int:
    fleet, caller = context.obj.fleet(), context.obj.caller()
    key = fleet.issue_key(issue) if issue is not None else _NO_ISSUE
    if (code := elsewhere(context.obj, fleet)) is not None:
        return code
    request = Request(target, key, caller, context.obj.environment, caller.name)
    with Worker.start() as worker, enlisted(fleet, caller, fleet.agent(target), worker) as team:
        return _answer(guard, Asked(fleet, request, team).question)


def _answer(guard: Guard, question: Question) -> int:
    _, refusal = ask([guard], question, say)
    if refusal is None:
        print("pass")
        return Exit.DONE
    print(f"refused: {plain(refusal.reason)}")
    return refusal.code
