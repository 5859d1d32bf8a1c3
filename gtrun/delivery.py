"""Delivering the markers that agents owe to a board that they cannot open: it is another box's, or not theirs to read.

The claim account has the board, and its ledger knows what it has started. So at `gtrun reconcile` it does for them:

1. Ask the agent for its runs that owe markers. What it says of them is believed as little as any marker of its own: it
   may write on the issues that it was given, and must not be able to write on others.
2. Only a run that the ledger knows, of that issue by that agent from this very board, is posted, and of each attempt
   only one run. Agent, rig, unit and issue are those of the ledger and of fleet.toml.
3. The pull requests that a finished marker tells go into the agent's record first, so that its text stays the same.
4. Post by the marker's ID, which the board takes once. Whoever is killed after that posts nothing when he tries again.
5. Tell the agent what is posted: it writes that down, and closes the record of a run that owes nothing any more.
"""

import re
import time
from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from gtrun.account import Account
from gtrun.board import Board
from gtrun.board.reference import open_own
from gtrun.config import Agent, Fleet
from gtrun.errors import BoardUnavailable, GtrunError, NoSuchIssue
from gtrun.markers import Kind
from gtrun.model import Issue, Run
from gtrun.names import RunId, duplicate_number, unit_name
from gtrun.reach import operations as at_agent
from gtrun.reach.operations import Delivered
from gtrun.state import outbox
from gtrun.state.ledger import Attempt, Ledger
from gtrun.survey import survey
from gtrun.text import plain, shorten

_BOARD_WAIT = 5.0
_RUN_ID = re.compile("[0-9a-f]{32}", re.ASCII)
_TOLD = 10  # problems of one agent; the rest is counted


class Delivery(msgspec.Struct):
    """What came of it for one agent: the markers that are posted, and those that it owes no more; what went wrong.

    `settled` counts those that are posted and those that are dropped.
    """

    posted: int = 0
    settled: int = 0
    problems: list[str] = []


def deliver(fleet: Fleet, caller: Account, agents: Iterable[Agent], *, deadline: float) -> dict[str, Delivery]:
    """Post what these agents owe, until `deadline` (time.monotonic()); what came of it by agent. Raises StateError."""
    told = {agent.name: Delivery() for agent in agents}
    if not told:
        return told
    try:
        board = open_own(fleet.board, wait=_BOARD_WAIT)
    except BoardUnavailable as error:
        return {name: Delivery(problems=[error.message]) for name in told}
    with board, Ledger(caller.state) as ledger:
        behind = dict.fromkeys(told, "")
        while behind and time.monotonic() < deadline:
            accepted = {}
            for name, page in _pages(fleet, caller, behind, told):
                runs = page.runs[: at_agent.PAGE]
                believed = _believed(runs, fleet.agent(name), fleet, board, ledger, told[name])
                accepted[name] = list(believed)
                last = max((run.resolved.token for run in runs), default="")
                if page.more and last > behind[name]:
                    behind[name] = last
                else:
                    del behind[name]
            _post(fleet, caller, board, accepted, told)
    for delivery in told.values():
        more = len(delivery.problems) - _TOLD
        delivery.problems[_TOLD:] = [f"and {more} more"] if more > 0 else []
    return told


def _pages(
    fleet: Fleet, caller: Account, behind: dict[str, str], told: dict[str, Delivery]
) -> Iterator[tuple[str, at_agent.Undelivered]]:
    """The next page of each agent; who does not answer is not asked again."""
    since = dict(behind)
    agents = [fleet.agent(name) for name in since]
    for answer in survey(
        agents, fleet, caller, at_agent.undelivered, lambda agent: at_agent.ToDeliver(since[agent.name])
    ):
        if answer.value is None:
            told[answer.agent.name].problems.append(answer.problem)
            del behind[answer.agent.name]
        else:
            yield answer.agent.name, answer.value


def _believed(
    runs: Iterable[Run], agent: Agent, fleet: Fleet, board: Board, ledger: Ledger, delivery: Delivery
) -> Iterator[Run]:
    """The runs that the ledger knows, with its own words wherever it has them."""
    for run in runs:
        attempt = ledger.attempt(run.resolved.token)
        why = _why_not(run, agent, fleet, board, attempt)
        if not why and not ledger.is_run(run.resolved.token, RunId(run.run or "")):
            why = "the attempt came to another run"
        if why or attempt is None:
            token, issue = (shorten(plain(text), 100) for text in (run.resolved.token, run.resolved.issue.key))
            delivery.problems.append(f"what it owes to issue {issue} is not posted: {why} (attempt {token})")
            continue
        unit = unit_name(attempt.issue, duplicate=duplicate_number(run.resolved.unit))
        issue_told = Issue(key=attempt.issue, title="")
        yield replace(run, resolved=replace(run.resolved, agent=agent.name, rig=agent.rig, unit=unit, issue=issue_told))


def _why_not(run: Run, agent: Agent, fleet: Fleet, board: Board, attempt: Attempt | None) -> str:
    """Why it must not be posted; empty if it may be."""
    if attempt is None:
        return "the ledger has no such attempt"
    if (attempt.issue, attempt.agent) != (run.resolved.issue.key, agent.name):
        return f"the attempt was at issue {attempt.issue} on {attempt.agent}"
    if attempt.outcome == "refused":
        return "the attempt was refused"
    if not _RUN_ID.fullmatch(run.run or ""):
        return "it names no run"
    identity = attempt.board or run.resolved.board_identity
    if (identity != board.identity) if identity else (run.resolved.board != fleet.board.path):
        return f"it is of another board than {board.name}"
    return ""


def _post(
    fleet: Fleet, caller: Account, board: Board, accepted: dict[str, list[Run]], told: dict[str, Delivery]
) -> None:
    """Steps 3 to 5 for a page of each agent."""
    pulls = {
        name: {run.resolved.token: outbox.pulls_of(board, run.resolved.issue.key) for run in wanting}
        for name, runs in accepted.items()
        if (wanting := list(filter(outbox.wants_pulls, runs)))
    }
    seen = {
        name: [Delivered(token=token, pulls=facts) for token, facts in theirs.items()] for name, theirs in pulls.items()
    }
    noted = _note(fleet, caller, seen, told)
    posted: dict[str, list[Delivered]] = {}
    for name, runs in accepted.items():
        for run in runs:
            token = run.resolved.token
            facts = pulls.get(name, {}).get(token)
            if facts is not None and (name, token) not in noted:
                continue  # its record is in use: whoever has it may be asking for them just now
            whole = run if facts is None else replace(run, pulls=facts.pulls, pulls_problem=facts.problem)
            posted.setdefault(name, []).append(_post_those_of(whole, board, told[name]))
    _note(fleet, caller, posted, told)


def _post_those_of(run: Run, board: Board, delivery: Delivery) -> Delivered:
    """Post what one run owes; returns what the board has now, and what it never will."""
    posted: list[Kind] = []
    dropped: list[tuple[Kind, str]] = []
    try:
        for kind in outbox.missing(run):
            try:
                outbox.post(board, run, kind)
                posted.append(kind)
            except NoSuchIssue as error:
                dropped.append((kind, error.message))
                delivery.problems.append(outbox.told_dropped(run, kind, error))
    except GtrunError as error:  # it must not hold up the others
        if error.message not in delivery.problems:
            delivery.problems.append(error.message)
    return Delivered(token=run.resolved.token, posted=tuple(posted), dropped=tuple(dropped))


def _note(
    fleet: Fleet, caller: Account, what: dict[str, list[Delivered]], told: dict[str, Delivery]
) -> set[tuple[str, str]]:
    """Have each agent write down what became true of its runs; returns who has written it for which token."""
    noted: set[tuple[str, str]] = set()
    agents = [fleet.agent(name) for name in what]
    for answer in survey(
        agents, fleet, caller, at_agent.note_delivered, lambda agent: at_agent.ToNote(what[agent.name])
    ):
        name, delivery = answer.agent.name, told[answer.agent.name]
        if answer.value is None:
            delivery.problems.append(answer.problem)
            continue
        delivery.posted += answer.value.posted
        delivery.settled += answer.value.settled
        delivery.problems += answer.value.problems
        noted |= {(name, token) for token in answer.value.noted}
    return noted
