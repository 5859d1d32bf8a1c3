"""What is said of slots after a pass: every state, with and without work, given or not; and what makes it news."""

import pytest

from gtrun.counters import Tally
from gtrun.model import Notice
from gtrun.planner import Availability, Bar, RigAvailability, slots
from gtrun.planner.plan import AgentPlan, Plan, Why
from gtrun.planner.slots import slot_of, slots_of

OPEN, FREE, BLOCKED = Notice.SCHEDULER_OPEN, Notice.SLOT_OPEN, Notice.SLOT_BLOCKED


@pytest.mark.parametrize(
    ("bar", "nothing_waits", "work_waits"),
    [
        (None, OPEN, FREE),
        (Bar.UNREACHABLE, BLOCKED, BLOCKED),
        (Bar.NO_COMMAND, BLOCKED, BLOCKED),
        (Bar.DARK, BLOCKED, BLOCKED),
        (Bar.BACKING_OFF, BLOCKED, BLOCKED),
        (Bar.PAUSED, None, None),
        (Bar.FULL, None, None),
        (Bar.SETTLING, None, None),
    ],
)
def test_the_table(bar, nothing_waits, work_waits):
    assert slot_of(bar, was_given=False, work_waits=False) == nothing_waits
    assert slot_of(bar, was_given=False, work_waits=True) == work_waits
    for waits in (False, True):
        assert slot_of(bar, was_given=True, work_waits=waits) is None


def test_the_table_is_whole():
    assert set(slots._STATES) == {None, *Bar}
    assert set(slots._NOTICES) == {(state, waits) for state in slots._State for waits in (False, True)}


def agent(name, rig="box", bar=None, dispatched=0):
    tally = Tally(dispatched=dispatched)
    return Availability(agent=name, rig=rig, running=0, max_runs=1, free=0 if bar else 1, tally=tally, bar=bar)


def rig(name, free=None, bar=None):
    return RigAvailability(rig=name, running=0, max_runs=free, free=free, tally=Tally(), bar=bar)


def planned(agents, rigs):
    plans = [AgentPlan(one, (), "") for one in agents]
    return Plan(issues=[], agents=plans, rigs={one.rig: one for one in rigs}, started=0, skipped=0, why=Why.NONE)


def found(made, given, waiting=1, agents=None):
    asked = {one.availability.agent for one in made.agents} if agents is None else agents
    return {one.agent.agent: one.notice for one in slots_of(made, asked, given, waiting)}


def test_each_agent_for_itself():
    made = planned([agent("a"), agent("b"), agent("c", bar=Bar.DARK), agent("d", bar=Bar.FULL)], [rig("box")])
    assert found(made, {"a": 1}) == {"a": None, "b": FREE, "c": BLOCKED, "d": None}
    assert found(made, {}, waiting=0) == {"a": OPEN, "b": OPEN, "c": BLOCKED, "d": None}
    assert found(made, {}, agents={"c"}) == {"c": BLOCKED}


def test_a_rig_that_the_pass_has_filled_is_full():
    made = planned([agent("a"), agent("b"), agent("c", "other")], [rig("box", 1), rig("other", 1)])
    assert found(made, {"a": 1}) == {"a": None, "b": None, "c": FREE}
    assert found(planned([agent("a"), agent("b")], [rig("box", 2)]), {"a": 1}) == {"a": None, "b": FREE}


def told(one, waiting=0):
    return slots_of(planned([one], [rig("box")]), {one.agent}, {}, waiting)[0].told


def test_what_is_news():
    assert told(agent("a")) == told(agent("a"))
    assert told(agent("a")) != told(agent("a", dispatched=1))  # it was given a run in between
    assert told(agent("a")) != told(agent("a"), waiting=1)
    assert told(agent("a", bar=Bar.DARK)) != told(agent("a", bar=Bar.UNREACHABLE))
    assert told(agent("a", bar=Bar.FULL)) == told(agent("a", bar=Bar.PAUSED, dispatched=3)) == ""
