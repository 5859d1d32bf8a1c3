"""What an agent and its rig can take now: capacity from live units, pauses, quota, back-off, settling. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from math import ceil
from typing import Any

import msgspec

from gtrun.config import Agent, Fleet, Schedule
from gtrun.counters import EVERYBODY, Book, Tally
from gtrun.measures import human_seconds, left_of
from gtrun.quota import QuotaFile, dark_until

_MOST_DOUBLINGS = 40


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at an agent showed. `problem` is why it could not be asked; `runs` are then those it is thought
    to have.
    """

    runs: int = 0
    quota: QuotaFile = QuotaFile()
    problem: str = ""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet as one pass sees it. `now` is in seconds since the epoch.

    `sweep` names the pass: what a target was given by this very one does not make it settle. A plugin, for which an
    agent can be looked for as well, needs no agent program and no entitlement.
    """

    fleet: Fleet
    seen: Mapping[str, Seen]
    book: Book = Book()
    now: float
    sweep: str = ""
    is_for_plugin: bool = False


def after(world: World, given: Mapping[str, int]) -> World:
    """The world once this very pass has given agents so many runs each."""
    seen, tallies = dict(world.seen), dict(world.book.agents)
    for agent, runs in given.items():
        one = seen.get(agent, _NOT_ASKED)
        seen[agent] = msgspec.structs.replace(one, runs=one.runs + runs)
        tally = tallies.get(agent, Tally())
        tallies[agent] = msgspec.structs.replace(tally, last_dispatch_at=world.now, last_sweep=world.sweep)
    return msgspec.structs.replace(world, seen=seen, book=msgspec.structs.replace(world.book, agents=tallies))


class Bar(StrEnum):
    """Why an agent or a rig takes nothing; what a person does about it comes first."""

    UNREACHABLE = "unreachable"
    PAUSED = "paused"
    NO_COMMAND = "no-command"
    DARK = "dark"
    FULL = "full"
    BACKING_OFF = "backing-off"
    SETTLING = "settling"


class RigAvailability(msgspec.Struct, frozen=True, kw_only=True):
    """What a rig can take: `free` runs more, None for as many as its agents can. `bar` is why it takes none.

    `until` is when that ends by itself, in seconds since the epoch.
    """

    rig: str
    running: int
    max_runs: int | None
    free: int | None
    tally: Tally
    bar: Bar | None = None
    why: str = ""
    until: float | None = None


class Availability(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent can take: `free` runs more, as far as it and its rig allow. `bar` is why it takes none.

    `until` is when that ends by itself, in seconds since the epoch.
    """

    agent: str
    rig: str
    running: int
    max_runs: int
    free: int
    tally: Tally
    bar: Bar | None = None
    why: str = ""
    until: float | None = None


class _Barred(msgspec.Struct, frozen=True):
    bar: Bar
    why: str
    until: float | None = None


def _told(barred: _Barred | None) -> dict[str, Any]:
    return msgspec.structs.asdict(barred) if barred else {}


def of_agent(world: World, agent: Agent) -> Availability:
    """One agent alone; no agent of another rig has to be seen for that."""
    return _agent(world, agent, _rigs(world, [agent.rig])[agent.rig])


def rigs(world: World) -> dict[str, RigAvailability]:
    """Every rig of the fleet."""
    return _rigs(world, world.fleet.rigs)


def _rigs(world: World, names: Collection[str]) -> dict[str, RigAvailability]:
    running = Counter[str]()
    for agent in world.fleet.agents.values():
        running[agent.rig] += _seen(world, agent).runs
    found = {}
    for rig in map(world.fleet.rigs.__getitem__, names):
        tally = world.book.rigs.get(rig.name, Tally())
        free = None if rig.max_runs is None else max(0, rig.max_runs - running[rig.name])
        full = _full(rig.name, running[rig.name], rig.max_runs) if free == 0 else None
        barred = _pause(world, rig.name) or full or _waits(world, rig.name, tally)
        found[rig.name] = RigAvailability(
            rig=rig.name, running=running[rig.name], max_runs=rig.max_runs, free=0 if barred else free, tally=tally,
            **_told(barred),
        )  # fmt: skip
    return found


def agents(world: World, rigs: Mapping[str, RigAvailability]) -> dict[str, Availability]:
    """Every agent of the fleet, on rigs as the function of that name tells them."""
    return {agent.name: _agent(world, agent, rigs[agent.rig]) for agent in world.fleet.agents.values()}


def _agent(world: World, agent: Agent, rig: RigAvailability) -> Availability:
    seen, tally = _seen(world, agent), world.book.agents.get(agent.name, Tally())
    free = max(0, agent.max_runs - seen.runs)
    full = _full(agent.name, seen.runs, agent.max_runs) if free == 0 else None
    barred = _barred(world, agent, seen, rig) or full or _waits(world, agent.name, tally)
    if barred is None and rig.bar is not None:
        barred = _Barred(rig.bar, rig.why, rig.until)
    return Availability(
        agent=agent.name, rig=agent.rig, running=seen.runs, max_runs=agent.max_runs, tally=tally,
        free=0 if barred else free if rig.free is None else min(free, rig.free),
        **_told(barred),
    )  # fmt: skip


def _barred(world: World, agent: Agent, seen: Seen, rig: RigAvailability) -> _Barred | None:
    if rig.bar is Bar.PAUSED:
        return _Barred(rig.bar, rig.why)
    paused = _pause(world, agent.name)
    if paused is not None:
        return paused
    if seen.problem:
        return _Barred(Bar.UNREACHABLE, f"{agent.name} does not answer: {seen.problem}")
    if world.is_for_plugin:
        return None
    if not agent.run.command:
        return _Barred(Bar.NO_COMMAND, f"{agent.name} has no command in fleet.toml")
    return _dark(agent, seen.quota, world.now)


def _seen(world: World, agent: Agent) -> Seen:
    return world.seen.get(agent.name, _NOT_ASKED)


_NOT_ASKED = Seen(problem="nobody has asked it")


def _pause(world: World, target: str) -> _Barred | None:
    for name, what in ((EVERYBODY, "handing out work"), (target, target)):
        pause = world.book.pauses.get(name)
        if pause is not None:
            return _Barred(Bar.PAUSED, f"{what} is paused by {pause.by} since {_instant(pause.at)}")
    return None


def _dark(agent: Agent, quota: QuotaFile, now: float) -> _Barred | None:
    """A quota state that cannot be understood is not in the way, as for the guard."""
    try:
        dark = dark_until(quota, now)
    except ValueError:
        return None
    if dark is None:
        return None
    return _Barred(Bar.DARK, f"the quota of {agent.name} is used up until {_instant(dark.at)}", dark.at)


def _waits(world: World, target: str, tally: Tally) -> _Barred | None:
    """Backing off after failures, or settling after what another pass gave it."""
    schedule, now = world.fleet.schedule, world.now
    if tally.failures and tally.last_failure_at is not None:
        left = left_of(backoff(schedule, tally.failures), tally.last_failure_at, now)
        if left:
            failed = "1 failure" if tally.failures == 1 else f"{tally.failures} failures in a row"
            why = f"{target} backs off for {human_seconds(ceil(left))} more, after {failed}"
            return _Barred(Bar.BACKING_OFF, why, now + left)
    if tally.last_dispatch_at is not None and tally.last_sweep != world.sweep:
        settles = min(schedule.settle * tally.last_dispatch_count, max(schedule.settle, schedule.backoff_max))
        left = left_of(settles, tally.last_dispatch_at, now)
        if left:
            given = "1 run" if tally.last_dispatch_count == 1 else f"{tally.last_dispatch_count} runs"
            why = f"{target} settles for {human_seconds(ceil(left))} more, after it was given {given}"
            return _Barred(Bar.SETTLING, why, now + left)
    return None


def backoff(schedule: Schedule, failures: int) -> float:
    """For how many seconds a target gets nothing after so many failures in a row."""
    return float(min(schedule.backoff * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), schedule.backoff_max))


def _full(target: str, running: int, most: int | None) -> _Barred:
    return _Barred(Bar.FULL, f"{target} is full: {running} of {most} {'run' if most == 1 else 'runs'}")


def _instant(at: float) -> str:
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M UTC}"
    except (ValueError, OverflowError, OSError):
        return "some day"
