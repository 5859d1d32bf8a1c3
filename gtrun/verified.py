"""Every unit that gtrun has or will have, as systemd's own tools judge it."""

from collections.abc import Iterator
from dataclasses import dataclass

from gtrun import unit_files
from gtrun.account import Account
from gtrun.board.reference import reference_of
from gtrun.config import Agent, Fleet
from gtrun.errors import GtrunError
from gtrun.model import Issue
from gtrun.names import IssueKey, Token
from gtrun.reach import operations as at_agent
from gtrun.reach.operations import VerifiedUnit
from gtrun.reach.route import Route
from gtrun.reach.worker import as_account
from gtrun.request import resolved
from gtrun.survey import survey

_WAIT = 60.0


@dataclass(frozen=True, slots=True)
class Verified:
    """The units of one account, an agent's or the one that asks, or why they could not be looked at."""

    agent: Agent | None
    account: str
    units: list[VerifiedUnit]
    problem: str = ""
    hint: str = ""


def verify(fleet: Fleet, caller: Account) -> Iterator[Verified]:
    """The unit that a dispatch would make of each agent, and gtrun's own in its account and in that of the caller."""

    def arguments(agent: Agent) -> at_agent.ToVerify:
        issue, board, run = Issue(key=IssueKey("1"), title="units verify"), reference_of(fleet.board), None
        if agent.run.command:
            run = resolved(fleet, agent, Token("0" * 32), issue, (), board=board, by=caller.name)
        own = fleet.rigs[agent.rig].gtrun
        return at_agent.ToVerify(run, [own] if own else [])

    routes: list[Route | None] = []
    for answer in survey(fleet.agents.values(), fleet, caller, at_agent.verify, arguments, seconds=_WAIT):
        account = answer.route.name if answer.route else str(answer.agent.account)
        routes.append(answer.route)
        yield Verified(answer.agent, account, answer.value or [], answer.problem, answer.hint)
    if caller not in routes and unit_files.are_in(caller):
        yield _own(caller)


def _own(account: Account) -> Verified:
    """Those of an account that is no agent's, as a claim account may be."""
    try:
        with as_account(account) as worker:
            found = worker.call(at_agent.verify, at_agent.ToVerify(None, []), seconds=_WAIT)
    except GtrunError as error:
        return Verified(None, account.name, [], error.message, error.hint)
    return Verified(None, account.name, found)
