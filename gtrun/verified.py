"""Every unit that gtrun has or will have, as systemd's own tools judge it."""

from collections.abc import Iterator
from dataclasses import dataclass

from gtrun.account import Account
from gtrun.board.reference import reference_of
from gtrun.config import Agent, Fleet
from gtrun.model import Issue
from gtrun.names import IssueKey, Token
from gtrun.reach import operations as at_agent
from gtrun.reach.operations import VerifiedUnit
from gtrun.request import resolved
from gtrun.survey import survey

_WAIT = 60.0


@dataclass(frozen=True, slots=True)
class Verified:
    """The units of one agent's account, or why they could not be looked at."""

    agent: Agent
    units: list[VerifiedUnit]
    problem: str = ""
    hint: str = ""


def verify(fleet: Fleet, caller: Account) -> Iterator[Verified]:
    """The unit that a dispatch would make of each agent, and the units of gtrun's in each agent's account."""

    def arguments(agent: Agent) -> at_agent.ToVerify:
        issue, board, run = Issue(key=IssueKey("1"), title="units verify"), reference_of(fleet.board), None
        if agent.run.command:
            run = resolved(fleet, agent, Token("0" * 32), issue, (), board=board, by=caller.name)
        own = fleet.rigs[agent.rig].gtrun
        return at_agent.ToVerify(run, [own] if own else [])

    for answer in survey(fleet.agents.values(), fleet, caller, at_agent.verify, arguments, seconds=_WAIT):
        yield Verified(answer.agent, answer.value or [], answer.problem, answer.hint)
