"""`gtrun idle`: one look at a run, by a timer of its own. A run without output and without CPU for too long is ended.

The first question costs one file of the kernel's; the journal is asked only about a run that used no CPU, the manager
only to end one. What the last look saw is in a file of the unit's runtime folder, which goes with it. Whatever cannot
be told keeps the run alive.
"""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from gtrun.account import Account, own
from gtrun.errors import GtrunError
from gtrun.files import describe
from gtrun.model import Run
from gtrun.names import UnitName, decode_path
from gtrun.state import record as records
from gtrun.state.facts import FoundIdle
from gtrun.systemd import entry, idle, journal
from gtrun.systemd.kinds import Kind
from gtrun.systemd.transient import cgroup_folder

_SHARE = 0.001  # of one CPU: what an event loop with nothing to do takes for looking at its clock


class Reading(msgspec.Struct, frozen=True):
    """What a look saw, in seconds: when, the unit's CPU, and since when nothing had happened (CLOCK_MONOTONIC)."""

    at: float
    cpu: float
    since: float


def compare(before: Reading | None, at: float, cpu: float, last_line_at: Callable[[], float | None]) -> Reading | None:
    """What a look sees, given what the last one saw; None if it cannot tell. The journal is asked only if need be."""
    if before is None or cpu - before.cpu > (at - before.at) * _SHARE:
        return Reading(at, cpu, since=at)
    last = last_line_at()
    return None if last is None else Reading(at, cpu, since=max(before.since, last))


def look(encoded_path: str) -> int:
    """One look at the record's run."""
    path = Path(decode_path(encoded_path))
    try:
        run = records.read(path)
    except FileNotFoundError:
        return 0
    limit, name = run.resolved.idle_limit, idle.folder(run.resolved)
    if limit is None or name is None or run.run is None or run.ending is not None:
        return 0
    account = own(os.environ)
    cgroup = _cgroup(run, account)
    if cgroup is None:
        return 0  # it has ended
    memory = Path(account.runtime, name, "reading")
    now = compare(_read(memory), time.monotonic(), _cpu(cgroup), lambda: journal.last_line_at(run, account.uid))
    if now is None:
        text = f"idle_limit of {run.resolved.unit} is not in force: this account cannot read its own journal"
        entry.write(Kind.IDLE_NOT_IN_FORCE, text, GTRUN_UNIT=run.resolved.unit)
        return 0
    _remember(memory, now, run.resolved.unit)
    if now.at - now.since >= limit:
        _end(run, account, now.at - now.since)
    elif run.idle_for is not None:  # a look that was killed had found it idle, and had not ended it
        with contextlib.suppress(FileNotFoundError):
            records.append_with_lock(path, FoundIdle(None))
    return 0


def _read(memory: Path) -> Reading | None:
    try:
        return msgspec.json.decode(memory.read_bytes(), type=Reading)
    except (OSError, msgspec.MsgspecError):
        return None


def _remember(memory: Path, now: Reading, unit: UnitName) -> None:
    """What cannot be remembered begins anew, and the run lives on."""
    temporary = memory.with_name(f".{memory.name}.{os.getpid()}")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600)) as file:
            file.write(msgspec.json.encode(now))
        temporary.rename(memory)
    except OSError as error:
        text = f"what a run does cannot be remembered: {describe(error)}"
        entry.write(Kind.IDLE_NOT_REMEMBERED, text, GTRUN_UNIT=unit)


def _cgroup(run: Run, account: Account) -> Path | None:
    """The unit's cgroup: beside our own, unless it is in a slice of its own. None if it is gone."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::/"):
            ours = cgroup_folder(line.removeprefix("0::"))
            beside = ours.parent / run.resolved.unit
            manager = next((one for one in ours.parents if one.name == f"user@{account.uid}.service"), ours.parent)
            return beside if beside.is_dir() else next(manager.rglob(run.resolved.unit), None)
    return None


def _cpu(cgroup: Path) -> float:
    counters = dict(line.split() for line in (cgroup / "cpu.stat").read_text().splitlines())
    return int(counters["usage_usec"]) / 1_000_000


def _end(run: Run, account: Account, seconds: float) -> None:
    """Have the unit stopped, if it is still this very run."""
    from gtrun.reach import Worker  # noqa: PLC0415 - the usual look does not need it
    from gtrun.reach import operations as at_agent  # noqa: PLC0415

    wanted = at_agent.ToEndIdle(run.resolved.unit, run.run, run.resolved.token, seconds)
    try:
        with Worker.start() as worker:
            worker.act_as(account)
            worker.call(at_agent.end_idle, wanted)
    except GtrunError as error:
        text = f"{run.resolved.unit} is idle and could not be ended: {error.message}"
        entry.write(Kind.IDLE_NOT_ENDED, text, GTRUN_UNIT=run.resolved.unit)
