"""What a pass that is over has to say of each agent's slots. Pure: a table.

A run that an agent was given says enough. Otherwise a free slot is news for whoever makes work or hands it out, and so
is an agent that cannot be used; one that is full, paused or settling is as it is meant to be.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec

from gtrun.model import Notice
from gtrun.planner.availability import Availability, Bar
from gtrun.planner.plan import Plan


class _State(StrEnum):
    FREE = "free"
    BLOCKED = "blocked"
    SILENT = "silent"


_STATES: Mapping[Bar | None, _State] = {
    None: _State.FREE,
    Bar.UNREACHABLE: _State.BLOCKED,
    Bar.NO_COMMAND: _State.BLOCKED,
    Bar.DARK: _State.BLOCKED,
    Bar.BACKING_OFF: _State.BLOCKED,
    Bar.PAUSED: _State.SILENT,
    Bar.FULL: _State.SILENT,
    Bar.SETTLING: _State.SILENT,
}
_NOTICES: Mapping[tuple[_State, bool], Notice | None] = {
    # (state, ready work waits)
    (_State.FREE, False): Notice.SCHEDULER_OPEN,
    (_State.FREE, True): Notice.SLOT_OPEN,
    (_State.BLOCKED, False): Notice.SLOT_BLOCKED,
    (_State.BLOCKED, True): Notice.SLOT_BLOCKED,
    (_State.SILENT, False): None,
    (_State.SILENT, True): None,
}


def slot_of(bar: Bar | None, *, was_given: bool, work_waits: bool) -> Notice | None:
    """What to say of an agent after a pass: why it takes nothing, whether it was given a run, whether some wait."""
    return None if was_given else _NOTICES[_STATES[bar], work_waits]


class SlotNotice(msgspec.Struct, frozen=True, kw_only=True):
    """One agent after a pass. `notice` is None for one of which nothing is to be said; `waiting` issues are ready."""

    agent: Availability
    notice: Notice | None
    waiting: int

    @property
    def told(self) -> str:
        """What makes another notice of it: also the same one, once the agent was given a run in between."""
        return f"{self.notice} {self.agent.bar or 'free'} {self.agent.tally.dispatched}" if self.notice else ""


def slots_of(made: Plan, agents: Collection[str], given: Mapping[str, int], waiting: int) -> list[SlotNotice]:
    """These agents after a pass that was planned so; `given` is how many runs each was given by it."""
    found = {one.availability.agent: one.availability for one in made.agents}
    on_rig = Counter[str]()
    for agent, count in given.items():
        on_rig[found[agent].rig] += count
    told = []
    for one in found.values():
        if one.agent not in agents:
            continue
        rig_free = made.rigs[one.rig].free
        is_rig_full = one.bar is None and rig_free is not None and rig_free <= on_rig[one.rig]
        bar = Bar.FULL if is_rig_full else one.bar
        notice = slot_of(bar, was_given=given.get(one.agent, 0) > 0, work_waits=waiting > 0)
        told.append(SlotNotice(agent=one, notice=notice, waiting=waiting))
    return told
