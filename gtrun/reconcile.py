"""Making true again what a crash left open: runs without a close-out, markers owed, attempts without an outcome."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from gtrun import alive, announce
from gtrun.account import Account
from gtrun.config import Fleet
from gtrun.delivery import deliver
from gtrun.exits import Exit
from gtrun.gather import look, note
from gtrun.model import Run
from gtrun.reach import operations as at_agent
from gtrun.state.ledger import Attempt, Ledger
from gtrun.survey import Answer, survey

_WAIT = 60.0


@dataclass(frozen=True, slots=True)
class Report:
    """What was mended, and what could not be: `posted` markers, and those `owing` that still wait for a board."""

    lost: list[Run]
    resolved: list[Attempt]
    posted: int
    owing: int
    problems: list[str]


def reconcile(fleet: Fleet, caller: Account) -> Report:
    """Reconcile every agent, and the ledger. Safe at any time, also twice at once. Raises StateError."""
    agents = list(fleet.agents.values())
    answers = survey(agents, fleet, caller, at_agent.reconcile, at_agent.ToReconcile(_WAIT - 5), seconds=_WAIT)
    lost, problems, posted, owing = [], [], 0, 0
    for answer in answers:
        if answer.value is None:
            problems.append(f"{answer.agent.name}: {answer.problem}")
            continue
        lost += answer.value.lost
        problems += [f"{answer.agent.name}: {problem}" for problem in answer.value.problems]
        posted += answer.value.posted
        owing += answer.value.owing
    reachable = {answer.agent.name for answer in answers if answer.value is not None}
    resolved = _decide(fleet, caller, reachable.__contains__)
    with Ledger(caller.state) as ledger:
        note(ledger, look(fleet, caller, ledger, {one.agent for one in ledger.going(reachable)}).values())
    needy = {one.agent.name: one.value for one in answers if one.value and one.value.unavailable and one.value.owing}
    deliveries = deliver(fleet, caller, map(fleet.agent, needy), deadline=time.monotonic() + _WAIT)
    for name, delivery in deliveries.items():
        posted += delivery.posted
        owing -= delivery.settled
        if delivery.settled == needy[name].owing:
            solved = {f"{name}: {problem}" for problem in needy[name].unavailable}
            problems = [problem for problem in problems if problem not in solved]
        problems += [f"{name}: {problem}" for problem in delivery.problems]
    return Report(lost, resolved, posted, owing, list(dict.fromkeys(problems)))


def _decide(fleet: Fleet, caller: Account, is_reachable: Callable[[str], bool]) -> list[Attempt]:
    """Give every attempt whose dispatcher died its outcome: the agent's run records know it."""
    with Ledger(caller.state) as ledger:
        left = [one for one in ledger.undecided() if not alive.is_running(one.dispatcher)]
        for agent in {one.agent for one in left if is_reachable(one.agent) and one.agent in fleet.agents}:
            theirs = [one for one in left if one.agent == agent]
            tokens = at_agent.Tokens([one.token for one in theirs])
            (answer,) = survey([fleet.agents[agent]], fleet, caller, at_agent.runs_by_token, tokens)
            _decide_those_of(ledger, theirs, answer)
        still = {one.token for one in ledger.undecided()}
    return [one for one in left if one.token not in still]


def _decide_those_of(ledger: Ledger, attempts: list[Attempt], answer: Answer[at_agent.Runs]) -> None:
    if answer.value is None:
        return
    runs = {run.resolved.token: run for run in answer.value.runs}
    for attempt in attempts:
        if attempt.token in answer.value.damaged:
            continue
        run = runs.get(attempt.token)
        if run is not None and run.begun_at is not None:
            if ledger.decide(attempt.token, "started", code=Exit.DONE, run=run.run):
                announce.succeeded(attempt, run.run)
        elif run is None or run.ending is not None:
            why = "its dispatcher died before the start"
            if ledger.decide(attempt.token, "failed", code=Exit.FAILED, reason=why):
                announce.failed(attempt, "failed", Exit.FAILED, why)
