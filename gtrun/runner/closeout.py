"""`gtrun closeout`: the unit's ExecStopPost. It writes down how the run ended, says so on the issue, then to whom else.

It needs the environment and the run record, nothing else: no bus (gone while a manager shuts down), no board, no
network, no free disk. The truth is on the disk before the board is asked; what cannot be posted stays owed. It keeps
its own deadline, and it always returns 0: the unit's result is the run's, not ours.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gtrun.account import own
from gtrun.errors import GtrunError
from gtrun.model import Ending, Result, Usage
from gtrun.names import RunId, UnitName, decode_path
from gtrun.reach import Worker
from gtrun.reach import operations as at_agent
from gtrun.runner.judge import Evidence, Judgement, judge
from gtrun.runner.update import hand_over
from gtrun.state import outbox
from gtrun.state import record as records
from gtrun.state.darkening import note_quota
from gtrun.state.facts import Begun, Ended
from gtrun.state.noticing import give_owed
from gtrun.state.record import Record
from gtrun.systemd.transient import cgroup_folder
from gtrun.systemd.units import Observed

_USEC = 1_000_000


def closeout(encoded_path: str) -> int:
    """Close out the record's run. The second of the two that a unit has finds nothing left to do."""
    path = Path(decode_path(encoded_path))
    try:
        record = Record(path)
    except FileNotFoundError:
        return 0  # closed already
    except records.CorruptRecord as error:
        print(f"gtrun: {records.set_aside(path, error)}", file=sys.stderr)
        return 0
    with record:
        resolved = record.run.resolved
        # a third: two close-outs, and the rest is systemd's own; the kernel ends us where we cannot end ourselves
        allowed = resolved.stop_timeout / 3
        signal.setitimer(signal.ITIMER_REAL, allowed)
        hand_over(record, encoded_path)  # to a release that may hang: the timer outlives execve(2)
        deadline = time.monotonic() + allowed * 0.9
        _write_ending(record, os.environ, manager_wait=allowed / 2)
        try:
            note_quota(record)
        except GtrunError as error:
            print(f"gtrun: that the quota is used up is not noted: {error.message}", file=sys.stderr)
        try:
            for problem in outbox.post_owed(record, at_agent.open_board):
                print(f"gtrun: {problem}", file=sys.stderr)
            is_board_well = True
        except GtrunError as error:
            print(f"gtrun: the markers of this run are owed: {error.message}", file=sys.stderr)
            is_board_well = False
        try:
            give_owed(record, own(os.environ), until=deadline)
            record.close_if_settled()
        except GtrunError as error:
            print(f"gtrun: a notice of this run is owed: {error.message}", file=sys.stderr)
        if not is_board_well:
            return 0
    state = str(path.parent.parent.parent)
    for problem in outbox.flush(state, at_agent.open_board, skip=path, deadline=deadline):
        print(f"gtrun: outbox: {problem}", file=sys.stderr)
    records.prune(state, resolved.keep)
    return 0


def _write_ending(record: Record, environment: Mapping[str, str], *, manager_wait: float) -> None:
    """Judge the run and make the judgement durable. Does nothing if an earlier close-out has."""
    if record.run.ending is not None:
        return
    run = record.run
    if run.run not in {None, environment["INVOCATION_ID"]}:  # what systemd tells is about another one
        reason = "no close-out was run before its unit was started again"
        record.append(Ended(Ending(result=Result.LOST, reason=reason), time.time()))
        return
    seen = _observe(run.resolved.unit, environment, manager_wait)
    code, status = environment.get("EXIT_CODE", ""), environment.get("EXIT_STATUS", "")
    duration = _duration(seen, run.begun_at)
    active, limit = _active(seen, duration), run.resolved.time_limit
    evidence = Evidence(
        service_result=environment.get("SERVICE_RESULT", ""),
        exit_code=code,
        exit_status=status,
        stop_came_first=None if seen is None else _stop_came_first(seen),
        stop_asked_by=run.stop_asked_by,
        gave_up=record.gave_up,
        disposed=record.disposed,
        was_executed=record.entered if run.resolved.sandbox.is_asked_for else run.begun_at is not None,
        idle_for=run.idle_for,
        ended_for=record.ended_for,
        limit_reached=limit is not None and active is not None and active >= limit,
    )
    judgement, told = judge(evidence), None
    if judgement == Judgement(Result.FAILED) and code == "exited" and run.resolved.plugin is None:
        from gtrun.runner.last_words import exhausted_quota  # noqa: PLC0415 - 6 ms, which only a run that failed pays

        told = exhausted_quota(run.resolved, int(status))
    if told is not None:
        judgement = judge(msgspec.structs.replace(evidence, exhausted=told.line))
    facts = []
    if run.run is None:  # its runner has not said so: it was killed before, or never executed
        was_executed = code in {"killed", "dumped"}
        facts.append(Begun(RunId(environment["INVOCATION_ID"]), run.resolved.dispatched_at if was_executed else None))
    ending = Ending(
        result=judgement.result,
        reason=judgement.reason,
        exit_code=int(status) if code == "exited" and status.isdecimal() else None,
        signal=status if code in {"killed", "dumped"} else None,
        duration=duration,
        usage=_usage(seen),
        service_result=environment.get("SERVICE_RESULT", ""),
        resets_at=told.resets_at if told else None,
    )
    record.append(*facts, Ended(ending, time.time()))


def _observe(unit: UnitName, environment: Mapping[str, str], seconds: float) -> Observed | None:
    """What the manager knows of us; None if it cannot be asked in time."""
    with contextlib.suppress(GtrunError), Worker.start() as worker:
        worker.act_as(own(environment))
        return worker.call(at_agent.observe_ending, at_agent.Watch(unit), seconds=seconds)
    return None


def _stop_came_first(seen: Observed) -> bool:
    return seen.is_stopped or 0 < seen.active_exit < (seen.main_exit or seen.active_exit)


def _duration(seen: Observed | None, begun_at: float | None) -> float | None:
    if seen is not None and 0 < seen.main_start < seen.main_exit:
        return (seen.main_exit - seen.main_start) / _USEC
    return None if begun_at is None else max(0.0, time.time() - begun_at)


def _active(seen: Observed | None, duration: float | None) -> float | None:
    """What the time limit counts: until the stop begins, however long the main process then takes to end."""
    if seen is not None and 0 < seen.active_enter < seen.active_exit:
        return (seen.active_exit - seen.active_enter) / _USEC
    return duration


def _usage(seen: Observed | None) -> Usage:
    """CPU without our own, and peak memory where the kernel counts it."""
    folder = _unit_cgroup()
    cpu = None
    if folder is not None:
        with contextlib.suppress(OSError, ValueError, KeyError):
            counters = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
            cpu = int(counters["usage_usec"]) / _USEC
    if cpu is None and seen is not None and seen.cpu_nsec is not None:
        cpu = seen.cpu_nsec / 1e9
    if cpu is not None:
        cpu = max(0.0, cpu - sum(os.times()[:4]))
    peak = seen.memory_peak if seen is not None else None
    if peak is None and folder is not None:
        with contextlib.suppress(OSError, ValueError):
            peak = int((folder / "memory.peak").read_text())
    return Usage(cpu=cpu, memory_peak=peak)


def _unit_cgroup() -> Path | None:
    """The unit's cgroup: the parent of the `.control` that a delegated unit's ExecStopPost runs in."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::/"):
                folder = cgroup_folder(line.removeprefix("0::"))
                return folder.parent if folder.name == ".control" else folder
    return None
