"""What a target has been given and what came of it, as automatic picks count it. Pure."""

from collections.abc import Iterable

import msgspec

from gtrun.exits import Exit
from gtrun.model import Result, Run
from gtrun.names import IssueKey

FAILURES = frozenset({Result.FAILED, Result.TIMEOUT, Result.IDLE, Result.KILLED, Result.OOM_KILL, Result.LOST})
"""Results that count against the issue and against the agent.

A used-up quota is no failure of either, and neither is a run that was stopped, or that was not work any more.
"""


STOPPED_BY_HAND = "stopped-by-hand"
"""The result, in the ledger, of a run that somebody asked gtrun to stop: he does not want it to begin again by itself.

One that went down with its manager is `stopped`, and begins again.
"""


def ledger_result(run: Run) -> str | None:
    """How a run ended, as the ledger keeps it; None as long as it has not."""
    if run.ending is None:
        return None
    by_hand = run.ending.result is Result.STOPPED and run.stop_asked_by is not None
    return STOPPED_BY_HAND if by_hand else run.ending.result.value


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt as far as it counts. `at` is when what came of it was known, in seconds since the epoch.

    `sweep` is what all attempts of one pass share; `result` is None while the run goes on, and for what never ran.
    """

    agent: str
    sweep: str
    outcome: str
    at: float
    code: int = 0
    result: str | None = None


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of one agent or rig. Instants are in seconds since the epoch.

    `last_dispatch_count` is how many runs the pass `last_sweep` gave it, the last at `last_dispatch_at`. `failures`
    counts passes in a row that failed, the last at `last_failure_at`.
    """

    dispatched: int = 0
    last_dispatch_at: float | None = None
    last_dispatch_count: int = 0
    last_sweep: str = ""
    successes: int = 0
    failures: int = 0
    last_failure_at: float | None = None


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Who stopped handing out work, and when, in seconds since the epoch."""

    by: str
    at: float


EVERYBODY = ""
"""The name under which a pause is one of the whole fleet; no agent and no rig can have it."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """How far the ledger had come: its last attempt, and the tokens of those that were under way then."""

    last: int = 0
    undecided: frozenset[str] = frozenset()


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger knows that automatic picks depend on.

    `failed` has the instants at which runs of an issue failed, `succeeded` the last at which one succeeded, `stopped`
    when the last one was stopped by hand. `running` are the issues whose last run has not ended as far as is known,
    with its agent. `pauses` are by target, and by EVERYBODY.
    """

    agents: dict[str, Tally] = {}
    rigs: dict[str, Tally] = {}
    pauses: dict[str, Pause] = {}
    failed: dict[IssueKey, list[float]] = {}
    succeeded: dict[IssueKey, float] = {}
    stopped: dict[IssueKey, float] = {}
    running: dict[IssueKey, str] = {}


def streak_of_agent(tried: Iterable[Tried]) -> tuple[int, float | None]:
    """How many passes in a row failed on an agent since its last success, and when the last did."""
    found: dict[str, float] = {}
    for one in sorted(tried, key=lambda one: one.at, reverse=True):
        if one.result == Result.SUCCESS:
            break
        if one.result in FAILURES or _is_failed_launch(one):
            found.setdefault(one.sweep, one.at)
    return len(found), max(found.values(), default=None)


def streak_of_rig(tried: Iterable[Tried]) -> tuple[int, float | None]:
    """The same for the launches on a rig: how a run ends tells of its agent, and so do launches of one agent alone."""
    found: dict[str, float] = {}
    agents = set()
    for one in sorted(tried, key=lambda one: one.at, reverse=True):
        if one.outcome == "started":
            break
        if _is_failed_launch(one):
            found.setdefault(one.sweep, one.at)
            agents.add(one.agent)
    return (len(found), max(found.values())) if len(agents) > 1 else (0, None)


def _is_failed_launch(one: Tried) -> bool:
    return one.outcome == "failed" and one.code != Exit.INTERRUPTED
