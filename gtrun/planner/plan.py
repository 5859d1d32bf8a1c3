"""The plan: ready issues in their order, each to the agent that suits it best. Pure.

Any agent can take any issue, so whoever is next in the order gets a slot as long as there is one: nothing more urgent
ever waits behind something less urgent, and no slot stays free while an issue is ready. Skills only choose between
agents: the one that has the most of those that are asked for, then the one that waited longest for a run, then by name.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from gtrun.config import Agent
from gtrun.model import Issue
from gtrun.names import IssueKey
from gtrun.planner import availability
from gtrun.planner.availability import Availability, RigAvailability, World
from gtrun.planner.readiness import Backlog, Readiness, readiness

SKILL = "skill:"
"""How a label begins that names a skill."""


class Why(StrEnum):
    """What a plan stopped at: nothing was ready, or the first of these to be used up."""

    NONE = "none"
    CAPACITY = "capacity"
    BATCH = "batch"
    READY = "ready"


class IssuePlan(msgspec.Struct, frozen=True):
    """What becomes of one issue: it goes to `agent`, or waits. `waits_for` is why one that is ready does."""

    readiness: Readiness
    agent: str | None = None
    waits_for: Why | None = None
    why: str = ""

    @property
    def issue(self) -> Issue:
        """The issue."""
        return self.readiness.issue


class AgentPlan(msgspec.Struct, frozen=True):
    """What one agent gets now, in this order, and why that is all."""

    availability: Availability
    issues: tuple[IssueKey, ...]
    why: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Every issue in its order, every agent in the configuration's. `skipped` issues are ready, and not started."""

    issues: Sequence[IssuePlan]
    agents: Sequence[AgentPlan]
    rigs: Mapping[str, RigAvailability]
    started: int
    skipped: int
    why: Why

    @property
    def starts(self) -> list[tuple[Issue, str]]:
        """What is to be started, in this order, and by which agent."""
        return [(one.issue, one.agent) for one in self.issues if one.agent is not None]


def plan(
    world: World,
    backlog: Backlog,
    *,
    targets: Collection[str] | None = None,
    prefer_skills: Collection[str] = (),
    batch: int | None = None,
) -> Plan:
    """Plan one pass. `targets` are the agents that may be given work, None for all; `batch` is the most to start."""
    rigs = availability.rigs(world)
    found = availability.agents(world, rigs)
    fleet = world.fleet
    turns = readiness(backlog, world.book, fleet.schedule, fleet.board.ready_label, world.now)
    slots = _Slots(fleet.agents, found, rigs, targets, prefer_skills)
    ready = sum(one.held is None for one in turns)
    limits = {Why.BATCH: ready if batch is None else batch, Why.READY: ready, Why.CAPACITY: slots.capacity()}
    starts = min(limits.values())
    why = Why.NONE if ready == 0 else min(limits, key=lambda one: (limits[one], batch is None and one is Why.BATCH))
    waits = _waits(why, batch, found, targets)
    issues: list[IssuePlan] = []
    given: dict[str, list[IssueKey]] = {}
    for one in turns:
        if one.held is not None:
            issues.append(IssuePlan(one, why=one.why))
        elif starts > 0:
            starts -= 1
            agent, reason = slots.take(one.issue)
            given.setdefault(agent, []).append(one.issue.key)
            issues.append(IssuePlan(one, agent, why=reason))
        else:
            issues.append(IssuePlan(one, waits_for=why, why=waits))
    started = sum(map(len, given.values()))
    limit = why if started < ready else Why.READY
    agents = [_told(one, tuple(given.get(one.agent, ())), targets, limit, batch) for one in found.values()]
    return Plan(issues=issues, agents=agents, rigs=rigs, started=started, skipped=ready - started, why=why)


class _Slots:
    """The slots that are left while a plan is made."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        found: Mapping[str, Availability],
        rigs: Mapping[str, RigAvailability],
        targets: Collection[str] | None,
        prefer_skills: Collection[str],
    ) -> None:
        self._free = {one.agent: one.free for one in found.values() if targets is None or one.agent in targets}
        self._rig_of = {one.agent: one.rig for one in found.values()}
        self._rig_free = {one.rig: one.free for one in rigs.values()}
        self._skills = {agent.name: frozenset(agent.skills) for agent in agents.values()}
        self._preferred = frozenset(skill.strip().casefold() for skill in prefer_skills)
        # agents never given anything come first, those of this very plan last
        self._last = {one.agent: (0, one.tally.last_dispatch_at or 0.0) for one in found.values()}

    def capacity(self) -> int:
        """How many runs can be started."""
        by_rig: dict[str, int] = {}
        for agent, free in self._free.items():
            by_rig[self._rig_of[agent]] = by_rig.get(self._rig_of[agent], 0) + free
        most = {rig: self._rig_free[rig] for rig in by_rig}
        return sum(free if (limit := most[rig]) is None else min(free, limit) for rig, free in by_rig.items())

    def take(self, issue: Issue) -> tuple[str, str]:
        """The agent that suits an issue best, and why it is that one. There has to be one: see `capacity`."""
        wanted = self._preferred | skills_of(issue)
        left = [agent for agent, free in self._free.items() if free > 0 and self._rig_free[self._rig_of[agent]] != 0]
        best = min(left, key=lambda agent: (-len(wanted & self._skills[agent]), self._last[agent], agent))
        has = wanted & self._skills[best]
        self._free[best] -= 1
        rig_free = self._rig_free[self._rig_of[best]]
        if rig_free is not None:
            self._rig_free[self._rig_of[best]] = rig_free - 1
        self._last[best] = (self._last[best][0] + 1, self._last[best][1])
        if has:
            return best, f"goes to {best}, which has the skill {', '.join(sorted(has))}"
        lacking = f"; nobody free has the skill {', '.join(sorted(wanted))}" if wanted else ""
        only = len(left) == 1
        return best, f"goes to {best}, {'the only one free' if only else 'which has waited longest'}{lacking}"


def skills_of(issue: Issue) -> frozenset[str]:
    """The skills that an issue asks for by labels like `skill:go`."""
    names = (label.casefold() for label in issue.labels)
    return frozenset(filter(None, (name.removeprefix(SKILL).strip() for name in names if name.startswith(SKILL))))


def _waits(why: Why, batch: int | None, found: Mapping[str, Availability], targets: Collection[str] | None) -> str:
    """What is said of every issue that is ready and not started."""
    if why is Why.BATCH:
        return f"waits for the next pass: this one starts {batch} at most"
    return (
        f"waits for an agent: {_in_the_way(one for one in found.values() if targets is None or one.agent in targets)}"
    )


def _in_the_way(agents: Iterable[Availability]) -> str:
    """Why nobody is free: `2 full, 1 dark`."""
    counts: dict[str, int] = {}
    for one in agents:
        what = "given other issues" if one.bar is None else one.bar.value.replace("-", " ")
        counts[what] = counts.get(what, 0) + 1
    return ", ".join(f"{number} {what}" for what, number in counts.items()) or "there is none"


def _told(
    one: Availability, issues: tuple[IssueKey, ...], targets: Collection[str] | None, why: Why, batch: int | None
) -> AgentPlan:
    if targets is not None and one.agent not in targets:
        return AgentPlan(one, issues, "is not asked for")
    if one.bar is not None:
        return AgentPlan(one, issues, one.why)
    if issues:
        return AgentPlan(one, issues, f"is given {', '.join(issues)}")
    if why is Why.BATCH:
        return AgentPlan(one, issues, f"is free, and this pass starts {batch} at most")
    if why is Why.CAPACITY:
        return AgentPlan(one, issues, f"is free, and what {one.rig} can take goes to others")
    return AgentPlan(one, issues, "is free, and nothing is ready for it")
