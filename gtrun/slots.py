"""Telling what a pass found of each agent's slots, once: to the journal, and to the command of `[notify]`.

A notice is news only where it is another one than the last of that agent, or where the agent was given a run since. The
ledger remembers the last; it has the new one before that is told, so a pass that is killed here tells it never, and not
twice.
"""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from gtrun.account import Account
from gtrun.asked import Say
from gtrun.config import Fleet
from gtrun.config.trust import check_executed
from gtrun.errors import ConfigError, StateError
from gtrun.model import Notice, Notify
from gtrun.notices import document, utc
from gtrun.notify import GRACE, hand_over
from gtrun.planner.slots import SlotNotice
from gtrun.program import expand_program
from gtrun.request import is_alone
from gtrun.state.ledger import Ledger
from gtrun.systemd import entry
from gtrun.systemd.kinds import Kind
from gtrun.text import plain


def tell(fleet: Fleet, caller: Account, found: Iterable[SlotNotice], say: Say) -> None:
    """Tell what is news; whatever goes wrong is one line, and keeps no pass from having done its work."""
    by_agent = {one.agent.agent: one for one in found}
    try:
        with Ledger(caller.state) as ledger:
            news = ledger.learn_slots({agent: one.told for agent, one in by_agent.items()})
    except StateError as error:
        say(f"warning: no slots are told: {error.message}")
        return
    fresh = [(notice, one) for agent, one in by_agent.items() if agent in news and (notice := one.notice)]
    for notice, one in fresh:
        _log(notice, one)
    command = expand_program(fleet.notify.command, caller.home)
    if not command or not fresh:
        return
    try:
        if not is_alone(fleet, caller):
            check_executed([Path(command[0])], caller.uid)
    except ConfigError as error:
        say(f"the notify command is not executed: {error.message}")
        return
    _hand_over(replace(fleet.notify, command=command), caller, fresh, say)


def _hand_over(notify: Notify, caller: Account, fresh: Sequence[tuple[Notice, SlotNotice]], say: Say) -> None:
    """Each notice to the command, all of them together within its time-out: one that hangs would do so for each."""
    problems = []
    until = time.monotonic() + notify.timeout + GRACE
    for notice, one in fresh:
        seconds = until - time.monotonic()
        if seconds > GRACE:
            problem = hand_over(notify, _document(notice, one), caller, seconds=seconds, handed=lambda: None)
        else:
            problem = "the notify command has used up its time"
        if problem:
            problems.append(f"{notice} of {one.agent.agent}: {problem}")
    if problems:
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        say(problems[0] + more)


def _document(notice: Notice, one: SlotNotice) -> bytes:
    agent = one.agent
    return document(
        notice, time.time(), agent=agent.agent, rig=agent.rig, state=agent.bar or "free", why=agent.why or None,
        until=utc(agent.until), running=agent.running, max_runs=agent.max_runs, free=agent.free, waiting=one.waiting,
        dispatched=agent.tally.dispatched,
    )  # fmt: skip


def _log(notice: Notice, one: SlotNotice) -> None:
    agent = one.agent
    kind, what = {
        Notice.SCHEDULER_OPEN: (Kind.SCHEDULER_OPEN, "is free, and nothing is ready"),
        Notice.SLOT_OPEN: (Kind.SLOT_OPEN, f"is free, and was given none of the {one.waiting} that are ready"),
        Notice.SLOT_BLOCKED: (Kind.SLOT_BLOCKED, f"can be given nothing: {agent.why}"),
    }[notice]
    entry.write(
        kind, f"{agent.agent} {what}", GTRUN_NOTICE=notice, GTRUN_AGENT=agent.agent, GTRUN_RIG=agent.rig,
        GTRUN_STATE=agent.bar or "free", GTRUN_FREE=str(agent.free), GTRUN_WAITING=str(one.waiting),
        GTRUN_REASON=plain(agent.why),
    )  # fmt: skip
