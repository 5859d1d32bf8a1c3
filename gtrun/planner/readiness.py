"""Which issues are ready, and why the others are not. Pure, and linear in issues and their blockers."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from gtrun.config import Schedule
from gtrun.counters import Book
from gtrun.measures import human_seconds
from gtrun.model import Issue, Standing
from gtrun.names import IssueKey, unit_name

_NAMED = 3
"""Blockers that are told by name."""


class Work(msgspec.Struct, frozen=True):
    """One open issue, and where it stands by its board."""

    issue: Issue
    standing: Standing = Standing.READY


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """All open issues of the board, and what is under way.

    `live` has the agent by the plain unit name of each issue that is live anywhere. `silent` are the agents that could
    not be asked: what was last run there may still run.
    """

    works: Sequence[Work]
    live: Mapping[str, str] = {}
    silent: frozenset[str] = frozenset()


class Held(StrEnum):
    """Why an issue is not ready."""

    NOT_WORK = "not-work"
    AWAITING = "awaiting"
    SHIPPED = "shipped"
    UNLABELLED = "unlabelled"
    UNTRUSTED = "untrusted"
    BLOCKED = "blocked"
    CYCLE = "cycle"
    STOPPED = "stopped"
    LIVE = "live"
    MAYBE_LIVE = "maybe-live"
    FAILING = "failing"


class Readiness(msgspec.Struct, frozen=True):
    """One issue: ready (`held` is None), or why not.

    `until` is when that ends by itself, in seconds since the epoch.
    """

    issue: Issue
    held: Held | None = None
    why: str = ""
    until: float | None = None


def readiness(backlog: Backlog, book: Book, schedule: Schedule, ready_label: str | None, now: float) -> list[Readiness]:
    """Every issue, in the order in which they get their turn: the most urgent first, then the oldest."""
    blockers = _blockers(backlog.works)
    cycles = _cycles(blockers)
    label = ready_label.casefold() if ready_label is not None else None
    found = []
    for work in sorted(backlog.works, key=_turn):
        held = (
            _by_standing(work, book, schedule, now)
            or _by_label(work.issue, label, ready_label)
            or _by_blockers(work.issue, blockers, cycles)
            or _by_runs(work.issue, backlog, book)
            or _by_failures(work.issue, book, schedule, now)
        )
        found.append(held or Readiness(work.issue))
    return found


def _turn(work: Work) -> tuple[int, float, int, str]:
    issue = work.issue
    return (issue.priority, issue.created_at, len(issue.key), issue.key)


_STANDINGS = {
    Standing.NOT_WORK: (Held.NOT_WORK, "is not work: it is closed or carries a terminal mark"),
    Standing.AWAITING: (Held.AWAITING, "awaits a person: a run of it has succeeded, and nothing is merged yet"),
    Standing.SHIPPED: (Held.SHIPPED, "is shipped: a pull request for it is merged"),
}


def _by_standing(work: Work, book: Book, schedule: Schedule, now: float) -> Readiness | None:
    """By its board, and by the ledger: the marker of a run that has succeeded may not have been posted yet."""
    standing, succeeded_at = work.standing, book.succeeded.get(work.issue.key)
    if standing is Standing.READY:
        if (succeeded_at or 0.0) <= (work.issue.turned_at or 0.0):
            return None
        standing = Standing.AWAITING
    held, why = _STANDINGS[standing]
    if standing is not Standing.AWAITING or schedule.retry is None or succeeded_at is None:
        return Readiness(work.issue, held, why)
    until = min(succeeded_at, now) + schedule.retry  # the clock may have been set back
    if until <= now:
        return None
    return Readiness(work.issue, held, f"{why}; it is tried again in {human_seconds(until - now)}", until)


def _by_label(issue: Issue, label: str | None, shown: str | None) -> Readiness | None:
    if label is None:
        why = "was opened by a stranger, and no ready_label is set, by which somebody could say that it is wanted"
        return Readiness(issue, Held.UNTRUSTED, why) if issue.is_by_stranger else None
    if any(one.casefold() == label for one in issue.labels):
        return None
    return Readiness(issue, Held.UNLABELLED, f"has no label {shown!r}")


def _blockers(works: Iterable[Work]) -> dict[IssueKey, list[IssueKey]]:
    """What still blocks each issue: open, neither shipped nor ended by a terminal mark.

    An issue of another repository, which is not among the works, is named by the board only while it is open.
    """
    open_ones = {one.issue.key for one in works if one.standing not in {Standing.NOT_WORK, Standing.SHIPPED}}
    return {
        work.issue.key: [key for key in dict.fromkeys(work.issue.blocked_by) if key in open_ones or "#" in key]
        for work in works
        if work.issue.blocked_by
    }


def _by_blockers(
    issue: Issue, blockers: Mapping[IssueKey, list[IssueKey]], cycles: Mapping[IssueKey, list[IssueKey]]
) -> Readiness | None:
    ring = cycles.get(issue.key)
    if ring is not None:
        others = [
            key for key in ring[: _NAMED + 2] if key != issue.key
        ]  # a ring may be long, and this is done for each
        what = f"it and {_some(others, len(ring) - 1)} block each other" if others else "it blocks itself"
        return Readiness(issue, Held.CYCLE, f"can never be ready: {what}")
    left = blockers.get(issue.key)
    return Readiness(issue, Held.BLOCKED, f"is blocked by {_some(left, len(left))}, not done yet") if left else None


def _cycles(blockers: Mapping[IssueKey, list[IssueKey]]) -> dict[IssueKey, list[IssueKey]]:
    """For each issue that waits for itself, all that wait for each other with it.

    They are the strongly connected components of the blockers, by Tarjan's algorithm, without its recursion: a chain
    may be longer than the interpreter's stack.
    """
    found: dict[IssueKey, list[IssueKey]] = {}
    index: dict[IssueKey, int] = {}
    low: dict[IssueKey, int] = {}
    stack: list[IssueKey] = []
    on_stack: set[IssueKey] = set()
    for root in blockers:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        path = [(root, iter(blockers[root]))]
        stack.append(root)
        on_stack.add(root)
        while path:
            key, rest = path[-1]
            deeper = next((one for one in rest if one in blockers and (one not in index or one in on_stack)), None)
            if deeper is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[key])
                if low[key] == index[key]:
                    _take_ring(key, stack, on_stack, blockers, found)
            elif deeper in index:
                low[key] = min(low[key], index[deeper])
            else:
                index[deeper] = low[deeper] = len(index)
                stack.append(deeper)
                on_stack.add(deeper)
                path.append((deeper, iter(blockers[deeper])))
    return found


def _take_ring(
    key: IssueKey,
    stack: list[IssueKey],
    on_stack: set[IssueKey],
    blockers: Mapping[IssueKey, list[IssueKey]],
    found: dict[IssueKey, list[IssueKey]],
) -> None:
    """Take the component that ends with `key` off the stack; note it if it is a cycle."""
    ring = [stack.pop()]
    while ring[-1] != key:
        ring.append(stack.pop())
    on_stack.difference_update(ring)
    if len(ring) > 1 or key in blockers[key]:
        found.update(dict.fromkeys(ring, sorted(ring, key=lambda one: (len(one), one))))


def _some(keys: Sequence[IssueKey], number: int) -> str:
    """So many issues, of which the first few are there to be named: `12, 13 and 4 more`."""
    if number > _NAMED:
        return f"{', '.join(keys[:_NAMED])} and {number - _NAMED} more"
    return f"{', '.join(keys[: number - 1])} and {keys[number - 1]}" if number > 1 else keys[0]


def _by_runs(issue: Issue, backlog: Backlog, book: Book) -> Readiness | None:
    agent = backlog.live.get(unit_name(issue.key))
    if agent is not None:
        return Readiness(issue, Held.LIVE, f"is live on {agent}")
    agent = book.running.get(issue.key)
    if agent in backlog.silent:
        return Readiness(issue, Held.MAYBE_LIVE, f"may still be live on {agent}, which does not answer")
    if book.stopped.get(issue.key, 0.0) > (issue.turned_at or 0.0):
        why = "was stopped by hand: it waits until somebody names it, reopens it or changes its labels"
        return Readiness(issue, Held.STOPPED, why)
    return None


def _by_failures(issue: Issue, book: Book, schedule: Schedule, now: float) -> Readiness | None:
    """The circuit breaker: a failure counts for a while, and not beyond the next turn that a person gives the issue."""
    since = max(now - schedule.attempts_decay, issue.turned_at or 0.0)
    # what lies further ahead was read from a clock that was wrong (gtrun.measures.left_of)
    counted = sorted(at for at in book.failed.get(issue.key, ()) if since < at <= now + schedule.attempts_decay)
    if len(counted) < schedule.attempts:
        return None
    until = counted[-schedule.attempts] + schedule.attempts_decay
    runs = "1 run" if len(counted) == 1 else f"{len(counted)} runs"
    why = (
        f"{runs} of it failed within {human_seconds(schedule.attempts_decay)}: it rests for"
        f" {human_seconds(max(0.0, until - now))} more, or until somebody reopens it or changes its labels"
    )
    return Readiness(issue, Held.FAILING, why, until)
