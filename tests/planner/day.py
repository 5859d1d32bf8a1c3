"""A day on paper: a fleet, its issues and its mishaps, played on the planner alone, and checked at every pass.

The truth is kept here: which runs go on, whose quota is used up, which rig cannot be reached. A pass sees of it what a
sweep would see; what it then starts is held against the truth, not against what the planner was told. Everything comes
from the seed, so a day that broke a promise is played again by its number.

    python -m tests.planner.day [--seed N] [--small] [--svg FILE]
"""

import argparse
import heapq
import random
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from gtrun.config import Fleet, Rig, Schedule
from gtrun.counters import FAILURES, Book, Pause, Tally, Tried, streak_of_agent, streak_of_rig
from gtrun.model import Issue, Result, Standing
from gtrun.names import IssueKey, unit_name
from gtrun.planner import Backlog, Bar, Held, Plan, Seen, Why, Work, World, plan
from gtrun.quota import QuotaFile, used_up
from tests.planner.fleets import agent, fleet
from tests.planner.picture import Moment, draw

MINUTE, HOUR = 60.0, 3600.0
BEGIN = 1_800_000_000.0
RECENT = 40  # attempts of a target that the streaks are counted from
SKILLS = ("go", "sql", "rust")


@dataclass(frozen=True, slots=True)
class Size:
    """How big a day is."""

    agents: int = 100
    rigs: int = 20
    issues: int = 5000
    hours: int = 24


SMALL = Size(agents=8, rigs=3, issues=300)


@dataclass(slots=True)
class Job:
    """One issue with its fate: how long a run takes, and how each of its runs ends (the last one for all further)."""

    issue: Issue
    arrives: float
    seconds: float
    fate: tuple[Result, ...]
    runs: int = 0
    done_at: float | None = None
    started_at: list[float] = field(default_factory=list)

    @property
    def is_poison(self) -> bool:
        """Whether it never succeeds."""
        return self.fate[-1] is not Result.SUCCESS


@dataclass(slots=True)
class Going:
    """One run that goes on, or has ended and nobody has looked yet."""

    job: Job
    agent: str
    sweep: str
    ends: float
    result: Result
    until: float = 0.0


class Day:
    """One day; `play` it, then look at `moments` and `counts`."""

    def __init__(self, seed: int, size: Size = SMALL) -> None:
        self.seed = seed
        self.size = size
        self.chance = random.Random(seed)  # noqa: S311 - a day that can be played again
        self.now = BEGIN
        self.moments: list[Moment] = []
        self.counts = Counter[str]()
        self.fleet = self._fleet()
        self.jobs = self._jobs()
        self.down = {rig: self._windows(0.5, 2 * HOUR) for rig in self.fleet.rigs}
        self.paused = {name: self._windows(0.1, HOUR) for name in [*self.fleet.rigs, *self.fleet.agents]}
        self.left = {name: self.chance.randint(3, 30) for name in self.fleet.agents}  # runs until the quota is used up
        self.dark: dict[str, float] = {}
        self.going: list[Going] = []
        self.tried: dict[str, list[Tried]] = defaultdict(list)
        self.on_rig: dict[str, list[Tried]] = defaultdict(list)
        self.given: dict[str, Tally] = {}
        self.failed: dict[IssueKey, list[float]] = defaultdict(list)
        self.open: dict[IssueKey, Job] = {}

    def _fleet(self) -> Fleet:
        names = [f"rig{number:02}" for number in range(self.size.rigs)]
        rigs = [Rig(name=name, max_runs=self.chance.choice([None, None, 4, 5])) for name in names]
        agents = [
            agent(
                f"agent{number:03}", names[number % len(names)], max_runs=self.chance.choice([1, 1, 1, 2]),
                skills=tuple(self.chance.sample(SKILLS, self.chance.choice([0, 0, 1, 2]))),
            )
            for number in range(self.size.agents)
        ]  # fmt: skip
        return fleet(*agents, rigs=rigs, settle=Schedule().settle)

    def _jobs(self) -> list[tuple[float, int, Job]]:
        """A third is there in the morning, the rest comes during the day."""
        jobs = []
        for number in range(1, self.size.issues + 1):
            arrives = BEGIN
            if number > self.size.issues / 3:
                arrives += self.chance.uniform(0, self.size.hours * HOUR * 0.7)
            blockers = (
                (IssueKey(str(self.chance.randint(1, number - 1))),) if self.chance.random() < number / 5e4 else ()
            )
            labels = (f"skill:{self.chance.choice(SKILLS)}",) if self.chance.random() < 0.3 else ()
            issue = Issue(
                key=IssueKey(str(number)), title=f"issue {number}", created_at=arrives, labels=labels,
                priority=self.chance.choices(range(5), [1, 4, 10, 4, 2])[0], blocked_by=blockers,
            )  # fmt: skip
            fate = [self._mishap() for _ in range(8) if self.chance.random() < 0.03][:2]
            fate += [Result.FAILED] if self.chance.random() < 0.01 else [Result.SUCCESS]
            seconds = min(4 * HOUR, self.chance.lognormvariate(6.6, 0.9))
            jobs.append((arrives, number, Job(issue, arrives, seconds, tuple(fate))))
        heapq.heapify(jobs)
        return jobs

    def _mishap(self) -> Result:
        return self.chance.choice(sorted(FAILURES))

    def _windows(self, chance: float, seconds: float) -> list[tuple[float, float]]:
        if self.chance.random() > chance:
            return []
        begin = BEGIN + self.chance.uniform(0, self.size.hours * HOUR)
        return [(begin, begin + self.chance.uniform(0.2, 1) * seconds)]

    def is_in(self, windows: list[tuple[float, float]]) -> bool:
        """Whether it is the time of one of these."""
        return any(begin <= self.now < end for begin, end in windows)

    def answers(self, name: str) -> bool:
        """Whether an agent can be reached."""
        return not self.is_in(self.down[self.fleet.agents[name].rig])

    def truly_running(self) -> list[Going]:
        """The runs that go on, seen or not."""
        return [one for one in self.going if one.ends > self.now]

    def play(self) -> "Day":
        """A pass a minute for as long as the day is, and then until nothing but what rests is left."""
        for number in count():
            self.now = BEGIN + number * MINUTE
            over = number >= self.size.hours * 60
            if over and not self.jobs and not self.going and not self._waiting():
                return self
            assert self.now < BEGIN + 5 * self.size.hours * HOUR, f"seed {self.seed}: it never ends"
            self._pass(f"sweep {number}")
        raise AssertionError

    def _waiting(self) -> list[Job]:
        """What will be tried again by itself, or for the first time."""
        return [job for job in self.open.values() if not job.is_poison and not self._is_stuck(job)]

    def _is_stuck(self, job: Job) -> bool:
        """Whether what blocks it can never be done."""
        blockers = [self.open[key] for key in job.issue.blocked_by if key in self.open]
        return any(one.is_poison or self._is_stuck(one) for one in blockers)

    def _pass(self, sweep: str) -> None:
        while self.jobs and self.jobs[0][0] <= self.now:
            job = heapq.heappop(self.jobs)[2]
            self.open[job.issue.key] = job
        self._learn()
        running = self.truly_running()
        book = self._book()
        seen = {}
        runs, thought = Counter(one.agent for one in running), Counter(book.running.values())
        for name in self.fleet.agents:
            if self.answers(name):
                quota = used_up(self.dark[name], "") if name in self.dark else None
                seen[name] = Seen(runs=runs[name], quota=QuotaFile(quota=quota))
            else:
                seen[name] = Seen(runs=thought[name], problem="no route to host")
        live = {unit_name(one.job.issue.key): one.agent for one in running if self.answers(one.agent)}
        silent = frozenset(name for name in self.fleet.agents if not self.answers(name))
        works = [Work(job.issue, Standing.READY) for job in self.open.values()]
        made = plan(
            World(fleet=self.fleet, seen=seen, book=book, now=self.now, sweep=sweep),
            Backlog(works=works, live=live, silent=silent),
        )
        self._check(made, book, sweep)
        for issue, name in made.starts:
            self._start(self.open[issue.key], name, sweep)
        self._note(made)

    def _learn(self) -> None:
        """Look at the runs that have ended, on the rigs that can be reached."""
        for one in [one for one in self.going if one.ends <= self.now and self.answers(one.agent)]:
            self.going.remove(one)
            self.counts[one.result] += 1
            key, rig = one.job.issue.key, self.fleet.agents[one.agent].rig
            told = Tried(agent=one.agent, sweep=one.sweep, outcome="started", at=one.ends, result=one.result)
            self.tried[one.agent] = [*self.tried[one.agent], told][-RECENT:]
            self.on_rig[rig] = [*self.on_rig[rig], told][-RECENT:]
            if one.result in FAILURES:
                self.failed[key].append(one.ends)
            elif one.result is Result.QUOTA:
                self.dark[one.agent] = one.until
            elif one.result is Result.SUCCESS:
                one.job.done_at = one.ends
                del self.open[key]

    def _book(self) -> Book:
        agents, rigs = {}, {}
        for name in self.fleet.agents:
            failures, at = streak_of_agent(self.tried[name])
            agents[name] = replace(self.given.get(name, Tally()), failures=failures, last_failure_at=at)
        for name in self.fleet.rigs:
            failures, at = streak_of_rig(self.on_rig[name])
            rigs[name] = replace(self.given.get(name, Tally()), failures=failures, last_failure_at=at)
        pauses = {name: Pause(by="ops", at=self.now) for name, windows in self.paused.items() if self.is_in(windows)}
        running = {one.job.issue.key: one.agent for one in self.going}
        return Book(agents=agents, rigs=rigs, pauses=pauses, failed=dict(self.failed), running=running)

    def _start(self, job: Job, name: str, sweep: str) -> None:
        job.started_at.append(self.now)
        self.counts["started"] += 1
        result = job.fate[min(job.runs, len(job.fate) - 1)]
        seconds, until = job.seconds, 0.0
        self.left[name] -= 1
        if self.left[name] <= 0:  # a quota end is no attempt: the same fate waits for the next run
            self.left[name] = self.chance.randint(3, 30)
            result, seconds = Result.QUOTA, self.chance.uniform(1, seconds)
            until = float(round(self.now + seconds + self.chance.uniform(0.5, 5) * HOUR))  # as the state file has it
        else:
            job.runs += 1
        self.going.append(Going(job, name, sweep, self.now + seconds, result, until))
        for target in (name, self.fleet.agents[name].rig):
            told = self.given.get(target, Tally())
            number = told.last_dispatch_count + 1 if told.last_sweep == sweep else 1
            self.given[target] = replace(
                told, dispatched=told.dispatched + 1, last_dispatch_at=self.now, last_sweep=sweep,
                last_dispatch_count=number,
            )  # fmt: skip

    # --- what has to hold ---------------------------------------------------------------------------------------------

    def _check(self, made: Plan, book: Book, sweep: str) -> None:
        where = f"seed {self.seed}, {sweep}"
        running = self.truly_running()
        taken = {one.job.issue.key for one in running}
        by_agent = Counter(one.agent for one in running)
        for issue, name in made.starts:
            assert issue.key not in taken, f"{where}: {issue.key} is started twice at once"
            taken.add(issue.key)
            assert self.answers(name), f"{where}: {name} cannot be reached"
            assert self.dark.get(name, 0.0) <= self.now, f"{where}: {name} is dark"
            by_agent[name] += 1
        self._check_capacity(by_agent, {name for _, name in made.starts}, where)
        left = [one.issue for one in made.issues if one.waits_for is not None]
        for issue in left:
            assert all(first.priority <= issue.priority for first, _ in made.starts), (
                f"{where}: {issue.key} is overtaken"
            )
        idle = [name for name in self.fleet.agents if self._could_take(name, by_agent, book, sweep)]
        assert not left or not idle, f"{where}: {idle[:3]} are idle while {left[0].key} waits"
        for one in made.issues:
            if one.readiness.held in {Held.LIVE, Held.MAYBE_LIVE}:
                assert any(going.job.issue.key == one.issue.key for going in self.going), f"{where}: {one.issue.key}"
            if one.readiness.held is Held.FAILING:
                assert len(self.failed[one.issue.key]) >= 3, f"{where}: {one.issue.key} rests without a reason"

    def _check_capacity(self, by_agent: Counter[str], started_on: set[str], where: str) -> None:
        for name in started_on:
            one = self.fleet.agents[name]
            assert by_agent[name] <= one.max_runs, f"{where}: {name} is over capacity"
            most = self.fleet.rigs[one.rig].max_runs
            assert most is None or self._on_rig(one.rig, by_agent) <= most, f"{where}: {one.rig} is over capacity"

    def _on_rig(self, rig: str, by_agent: Counter[str]) -> int:
        return sum(number for name, number in by_agent.items() if self.fleet.agents[name].rig == rig)

    def _could_take(self, name: str, by_agent: Counter[str], book: Book, sweep: str) -> bool:
        """Whether an agent could take a run by the truth, with the waits as the manual says them."""
        one = self.fleet.agents[name]
        most = self.fleet.rigs[one.rig].max_runs
        if not self.answers(name) or self.dark.get(name, 0.0) > self.now or {name, one.rig} & set(book.pauses):
            return False
        if by_agent[name] >= one.max_runs or (most is not None and self._on_rig(one.rig, by_agent) >= most):
            return False
        schedule = self.fleet.schedule
        for target, tally in ((name, book.agents[name]), (one.rig, book.rigs[one.rig])):
            given = self.given.get(target, Tally())
            settles = schedule.settle * given.last_dispatch_count
            if given.last_sweep != sweep and self.now < (given.last_dispatch_at or 0.0) + settles:
                return False
            wait = min(schedule.backoff_max, schedule.backoff * 2 ** (tally.failures - 1)) if tally.failures else 0.0
            if tally.last_failure_at is not None and self.now < tally.last_failure_at + wait:
                return False
        return True

    def _note(self, made: Plan) -> None:
        states = Counter[str]()
        for one in made.agents:
            bar = one.availability.bar
            works = one.availability.running > 0 or one.issues
            if bar in {Bar.UNREACHABLE, Bar.DARK, Bar.PAUSED}:
                states[bar.value] += 1
            else:
                states["working" if works else "waiting out" if bar else "free"] += 1
        ready = [one for one in made.issues if one.waits_for is not None]
        self.moments.append(
            Moment((self.now - BEGIN) / HOUR, dict(states), len(ready), sum(one.issue.priority == 0 for one in ready))
        )
        self.counts["passes"] += 1
        self.counts[f"limited by {made.why}" if made.why is not Why.NONE else "nothing ready"] += 1


def main(arguments: list[str]) -> int:
    """Play one day, say what happened, and draw it."""
    parser = argparse.ArgumentParser("scripts/day", description="A day of the scheduler on paper.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="8 agents and 300 issues")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw it")
    chosen = parser.parse_args(arguments)
    size = SMALL if chosen.small else Size()
    began = time.process_time()
    day = Day(chosen.seed, size).play()
    print(f"seed {day.seed}: {size.agents} agents, {size.rigs} rigs, {size.issues} issues; nothing was broken")
    print(", ".join(f"{what} {number}" for what, number in sorted(day.counts.items())))
    print(f"{time.process_time() - began:.1f} s of CPU", file=sys.stderr)
    if chosen.svg is not None:
        about = f"{size.agents} agents on {size.rigs} rigs, {size.issues:,} issues, seed {day.seed}"
        chosen.svg.write_text(draw([one for one in day.moments if one.hour <= size.hours], about))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
