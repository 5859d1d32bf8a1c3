"""Picking: a dispatch that names no issue gets the best ready one for its target; a sweep, one for each free slot.

What is picked is started by the one protocol (`gtrun.dispatch`), which asks under the claim lock once more what the
agent can take, and whether anybody has started the issue since. Whoever was faster there is no failure: the next best
is taken instead, and what an agent cannot be given after all goes to another one before anything less urgent does.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from gtrun import slots
from gtrun.account import Account
from gtrun.asked import Say
from gtrun.config import Fleet
from gtrun.counters import Mark
from gtrun.dispatch import Started, dispatch
from gtrun.errors import AgentTaken, GtrunError, ManagerSilent, NoManager, Refused, UsageError
from gtrun.exits import Exit
from gtrun.gather import Pile, Scene, gather, read_board, world_of
from gtrun.model import Issue
from gtrun.names import IssueKey, in_words, unit_name
from gtrun.planner import Availability, Backlog, Bar, IssuePlan, Plan, availability, plan
from gtrun.planner.slots import SlotNotice, slots_of
from gtrun.quota import QuotaFile
from gtrun.reach import Worker
from gtrun.reconcile import Report, reconcile
from gtrun.request import Request, check_own_code
from gtrun.state.ledger import Ledger
from gtrun.survey import Lookouts

_ISSUE_IS_TAKEN = frozenset({Exit.DUPLICATE, Exit.NOT_WORK, Exit.CLAIMED})
_AGENT_IS_TAKEN = frozenset({Exit.QUOTA, Exit.NO_CAPACITY})


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants something picked. `environment` and `by` as in `Request`; `sweep` names this pass."""

    caller: Account
    environment: Mapping[str, str]
    by: str
    sweep: str
    prefer_skills: tuple[str, ...] = ()

    def request(self, issue: Issue, agent: str, planned: Mark | None = None) -> Request:
        """The request for what was picked. A second unit on purpose is for whoever names the issue."""
        environment = {name: value for name, value in self.environment.items() if name != "DISPATCH_ALLOW_DUPLICATE"}
        return Request(agent, issue.key, self.caller, environment, self.by, self.sweep, planned=planned)

    def gather(self, fleet: Fleet, ledger: Ledger, pile: Pile | None = None) -> Scene:
        """What this pass is planned from; the hatch for the quota guard is one for the plan as well."""
        scene = gather(fleet, self.caller, ledger, sweep=self.sweep, pile=pile)
        if self.environment.get("DISPATCH_IGNORE_QUOTA") != "1":
            return scene
        seen = {name: msgspec.structs.replace(one, quota=QuotaFile()) for name, one in scene.world.seen.items()}
        return msgspec.structs.replace(scene, world=msgspec.structs.replace(scene.world, seen=seen))


def new_sweep() -> str:
    """A name for a pass."""
    return os.urandom(16).hex()


def planned(fleet: Fleet, order: Order, *, targets: Collection[str] | None = None, batch: int | None) -> Plan:
    """What a pass would start now, on these agents or on any; nothing changes. Raises BoardUnavailable, StateError."""
    with Ledger(order.caller.state, keep=False) as ledger:
        scene = order.gather(fleet, ledger)
    return plan(scene.world, scene.backlog, targets=targets, prefer_skills=order.prefer_skills, batch=batch)


def choose(fleet: Fleet, order: Order, target: str) -> IssuePlan:
    """What `dispatch_next` would start now. Raises what it raises where that is nothing."""
    agents = agents_of(fleet, target)
    made = planned(fleet, order, targets=agents, batch=1)
    for one in made.issues:
        if one.agent is not None:
            return one
    raise nothing_to_start(made, target, agents)


def agents_of(fleet: Fleet, target: str) -> set[str]:
    """The names of the agents that a target stands for. Raises UsageError for none."""
    agents = {agent.name for agent in fleet.target(target)}
    if not agents:
        raise UsageError(f"rig {target} has no agent", hint=f'give it one: [agents.NAME] with rig = "{target}"')
    return agents


def dispatch_next(fleet: Fleet, order: Order, target: str, worker: Worker, say: Say) -> Started:
    """Start the best ready issue for a target, with workers forked from one that is nobody yet.

    Raises Refused: 10 if the target takes nothing, 9 if that is for its quota alone, 12 if nothing is ready. Raises
    BoardUnavailable (75), and what `dispatch` raises.
    """
    agents = agents_of(fleet, target)
    check_own_code(fleet, order.caller)
    with Ledger(order.caller.state) as ledger:
        scene = order.gather(fleet, ledger)
    taken: dict[IssueKey, str] = {}
    refusal: GtrunError | None = None
    while True:
        backlog = _with_live(scene.backlog, taken)
        made = plan(scene.world, backlog, targets=agents, prefer_skills=order.prefer_skills, batch=1)
        if not made.starts:
            slots.tell(fleet, order.caller, slots_of(made, agents, {}, made.skipped), say)
            raise refusal if refusal is not None and not agents else nothing_to_start(made, target, agents)
        issue, agent = made.starts[0]
        try:
            with worker.twin() as another:
                return dispatch(fleet, order.request(issue, agent, scene.mark), another, say)
        except GtrunError as error:
            if error.code not in _ISSUE_IS_TAKEN and not _is_for_another(error):
                raise
            say(f"issue {issue.key} is not for {agent}: {error.message}")
            refusal = error
            if error.code in _ISSUE_IS_TAKEN:
                taken[issue.key] = agent
            else:
                agents = agents - {agent}


def _is_for_another(error: GtrunError) -> bool:
    """Whether nothing but the agent was in the way, and nothing can have been started."""
    if isinstance(error, NoManager):
        return not isinstance(error, ManagerSilent)
    return error.code in _AGENT_IS_TAKEN


def choose_for_plugin(fleet: Fleet, order: Order, request: Request) -> list[str]:
    """The agents of a target that can take a plugin now, who was given something longest ago first.

    Raises Refused (10), NoManager where there is none, StateError.
    """
    agents = agents_of(fleet, request.target)
    with Ledger(order.caller.state, keep=False) as ledger:  # whoever starts it learns the same once more
        world = msgspec.structs.replace(world_of(fleet, order.caller, ledger), is_for_plugin=True)
    found = [one for one in availability.agents(world, availability.rigs(world)).values() if one.agent in agents]
    free = [one for one in found if one.free > 0]
    if not free:
        raise _takes_nothing(found, named="--plugin FILE")
    return [one.agent for one in sorted(free, key=lambda one: (one.tally.last_dispatch_at or 0.0, one.agent))]


def dispatch_plugin(fleet: Fleet, order: Order, request: Request, worker: Worker, say: Say) -> Started:
    """Start a plugin on one of its target's agents, with workers forked from one that is nobody yet.

    Raises what `choose_for_plugin` and `dispatch` raise.
    """
    check_own_code(fleet, order.caller)
    *others, last = choose_for_plugin(fleet, order, request)
    for agent in others:
        try:
            with worker.twin() as another:
                return dispatch(fleet, for_agent(order, request, agent), another, say)
        except AgentTaken as error:
            say(f"{in_words(request.issue)} is not for {agent}: {error.message}")
    with worker.twin() as another:
        return dispatch(fleet, for_agent(order, request, last), another, say)


def for_agent(order: Order, request: Request, agent: str) -> Request:
    """The request with the agent that was picked for its target."""
    return msgspec.structs.replace(request, target=agent, sweep=order.sweep)


def _with_live(backlog: Backlog, taken: Mapping[IssueKey, str]) -> Backlog:
    """The backlog where these have been started meanwhile, by whomever: what they block is blocked as before."""
    live = {unit_name(key): agent for key, agent in taken.items()}
    return msgspec.structs.replace(backlog, live=dict(backlog.live) | live)


def nothing_to_start(made: Plan, target: str, agents: Collection[str]) -> GtrunError:
    """Why a plan for one target starts nothing, as the error that ends its dispatch."""
    asked = [one.availability for one in made.agents if one.availability.agent in agents]
    if all(one.free == 0 for one in asked):
        return _takes_nothing(asked)
    counts = Counter(one.readiness.held.value for one in made.issues if one.readiness.held is not None)
    why = ", ".join(f"{number} {what.replace('-', ' ')}" for what, number in sorted(counts.items()))
    return Refused(
        f"nothing is ready for {target}: {why or 'there is no open issue'}",
        code=Exit.NOTHING_READY,
        hint="gtrun sweep --dry-run says why of each issue",
    )


def _takes_nothing(asked: Sequence[Availability], *, named: str = "ISSUE") -> GtrunError:
    told = "; ".join(dict.fromkeys(one.why for one in asked))
    bars = {one.bar for one in asked}
    if bars == {Bar.DARK}:
        return Refused(told, code=Exit.QUOTA, hint=f"if that is wrong: gtrun quota clear {asked[0].agent}")
    if bars == {Bar.UNREACHABLE}:
        return NoManager(told, hint="gtrun doctor says what is in the way")
    return Refused(
        told,
        code=Exit.NO_CAPACITY,
        hint=f"gtrun rigs shows what each agent can take; to start one all the same: gtrun dispatch AGENT {named}",
    )


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass did: what it was planned from, what it started, and why something planned was not.

    `interrupted` is what ended it before its end.
    """

    report: Report
    plan: Plan
    started: list[Started]
    failed: list[tuple[Issue, str, GtrunError]]
    interrupted: GtrunError | None = None


def sweep(
    fleet: Fleet, order: Order, worker: Worker, say: Say, *, batch: int | None, heard: Callable[[Started], None]
) -> Swept:
    """One pass: reconcile, plan, start. It has no state of its own, so two at once are two dispatchers.

    `heard` is told of each run as it is started. The board is read first: raises BoardUnavailable with nothing done,
    StateError.
    """
    check_own_code(fleet, order.caller)
    pile = read_board(fleet)
    report = reconcile(fleet, order.caller)
    with Ledger(order.caller.state) as ledger:
        # what was posted may have changed where an issue stands
        scene = order.gather(fleet, ledger, None if report.posted else pile)
    made = plan(scene.world, scene.backlog, prefer_skills=order.prefer_skills, batch=batch)
    started: list[Started] = []
    failed: list[tuple[Issue, str, GtrunError]] = []
    taken: dict[IssueKey, str] = {}
    left = set(fleet.agents)
    interrupted: GtrunError | None = None

    def planned_anew() -> list[tuple[Issue, str]]:
        world = availability.after(scene.world, Counter(one.run.agent for one in started))
        backlog = _with_live(scene.backlog, taken)
        more = None if batch is None else batch - len(started)
        return plan(world, backlog, targets=left, prefer_skills=order.prefer_skills, batch=more).starts

    try:
        with Lookouts(fleet, order.caller, worker) as lookouts:
            starts = made.starts
            while starts:
                issue, agent = starts.pop(0)
                try:
                    with worker.twin() as another:
                        one = dispatch(fleet, order.request(issue, agent, scene.mark), another, say, lookouts)
                except GtrunError as error:
                    if error.code is Exit.INTERRUPTED:
                        raise
                    failed.append((issue, agent, error))
                    if not _is_for_another(error):
                        taken[issue.key] = agent
                    if error.code not in _ISSUE_IS_TAKEN:
                        # whatever keeps it from this one keeps it from all; they go to whoever is left, in their order
                        left.discard(agent)
                        starts = planned_anew()
                else:
                    started.append(one)
                    taken[issue.key] = agent
                    heard(one)
        slots.tell(fleet, order.caller, _slots_after(made, started, failed), say)
    except KeyboardInterrupt:
        interrupted = GtrunError("interrupted", code=Exit.INTERRUPTED)
    except GtrunError as error:
        interrupted = error
    return Swept(report=report, plan=made, started=started, failed=failed, interrupted=interrupted)


def _slots_after(
    made: Plan, started: Sequence[Started], failed: Sequence[tuple[Issue, str, GtrunError]]
) -> list[SlotNotice]:
    """What is to be said of the agents; of one that somebody else was faster with, that is for the next pass."""
    taken = {agent for _, agent, error in failed if isinstance(error, Refused)}
    asked = {one.availability.agent for one in made.agents} - taken
    given = Counter(one.run.agent for one in started)
    return slots_of(made, asked, given, waiting=made.skipped + made.started - len(started))
