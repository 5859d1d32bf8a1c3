"""The part of the sweep's benchmark that runs in the box, as root. stdin: a `Plan`; stdout: `Figures`, both JSON."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import msgspec

from gtrun.account import own
from gtrun.board.local import LocalBoard
from gtrun.config import Fleet, load
from gtrun.gather import read_board
from gtrun.names import IssueKey
from gtrun.planner import Backlog, Seen, World, plan
from gtrun.state.ledger import Ledger

_GTRUN = "/opt/gtrun/bin/gtrun"
_SECONDS = 120.0
_TIMES = 5


class Plan(msgspec.Struct):
    """What to measure: sweeps of so many `runs`, and a plan for so many issues with the fleet of each file."""

    config: str
    rounds: int
    runs: int
    planned: dict[int, str]


class Planned(msgspec.Struct):
    """Seconds of CPU, the least of some: all of it, and its parts."""

    cpu: float
    board: float
    ledger: float
    plan: float


class Figures(msgspec.Struct):
    """Seconds: each sweep, and from each of its launches to the next; what the plan for so many issues took."""

    sweeps: list[float]
    gaps: list[list[float]]
    plans: dict[int, Planned]


class CannotMeasure(Exception):
    """A command did not do what it is timed for."""


def measure(plan: Plan) -> Figures:
    """Plans first, then sweeps."""
    plans = {count: _planned(count, load({}, Path(path))) for count, path in plan.planned.items()}
    fleet, sweeps, gaps = load({}, Path(plan.config)), [], []
    for _ in range(plan.rounds):
        issues = _issues(fleet, plan.runs)
        began = time.perf_counter()
        told = _gtrun("sweep")
        sweeps.append(time.perf_counter() - began)
        if not re.search(rf"^Dispatched {plan.runs} of {plan.runs} planned$", told, re.MULTILINE):
            raise CannotMeasure(f"the sweep said: {told}")
        with Ledger(own(os.environ).state) as ledger:
            started = sorted(attempt.at for issue in issues for attempt in ledger.attempts(issue))
        gaps.append([after - before for before, after in pairwise(started)])
        _gtrun("stop", "--all")
        for issue in issues:
            with LocalBoard.open(fleet.board.path) as board:
                board.close_issue(issue)
    return Figures(sweeps, gaps, plans)


def _issues(fleet: Fleet, count: int) -> list[IssueKey]:
    with LocalBoard.open(fleet.board.path, create=True) as board:
        return [
            board.add(
                f"Mend roof {number}", body="It rains in. " * 20, priority=number % 5,
                labels=["skill:go", "roof"] if number % 3 else [],
            )
            for number in range(count)
        ]  # fmt: skip


def _gtrun(*arguments: str) -> str:
    done = subprocess.run(
        [_GTRUN, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_SECONDS
    )
    if done.returncode != 0:
        raise CannotMeasure(f"gtrun {arguments} exited with {done.returncode}: {done.stderr}")
    return done.stdout


def _planned(count: int, fleet: Fleet) -> Planned:
    """What a sweep does between its looks at the agents, who are all free."""
    _issues(fleet, count)
    found = []
    for _ in range(_TIMES):
        began = time.process_time()
        pile = read_board(fleet)
        read = time.process_time()
        with Ledger(own(os.environ).state) as ledger, ledger.together():
            book = ledger.book(fleet.agents, fleet.rigs, pile.board, 0.0)
        counted = time.process_time()
        seen = dict.fromkeys(fleet.agents, Seen())
        made = plan(World(fleet=fleet, seen=seen, book=book, now=time.time()), Backlog(works=pile.works))
        ended = time.process_time()
        if (len(made.issues), made.started) != (count, len(fleet.agents)):
            raise CannotMeasure(f"{made.started} of {len(made.issues)} issues were planned")
        found.append(Planned(ended - began, read - began, counted - read, ended - counted))
    return min(found, key=lambda one: one.cpu)


def main() -> int:
    """Measure what stdin asks for; returns the exit code."""
    try:
        figures = measure(msgspec.json.decode(sys.stdin.buffer.read(), type=Plan))
    except CannotMeasure as error:
        print(f"\nbench: {error}", file=sys.stderr)
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
