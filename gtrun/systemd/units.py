"""Units as a manager tells them, and the one definition of "live"."""

import re
from collections.abc import Iterable, Sequence

import msgspec

from gtrun.names import RunId, UnitName, is_run_unit
from gtrun.systemd.bus import JOB, OBJECT, SERVICE, UNIT, Bus, BusError, BusTimeout

_NO_INVOCATION = "0" * 32


class UnitState(msgspec.Struct, frozen=True, kw_only=True):
    """One row of ListUnitsByPatterns (org.freedesktop.systemd1(5)); `job` is 0 where none is queued.

    `file` is the unit file where somebody has asked for it.
    """

    name: str
    description: str
    load: str
    active: str
    sub: str
    path: str
    job: int
    file: str = ""

    @property
    def said(self) -> str:
        """The states as systemctl writes them: `loaded/active/running`."""
        states = f"{self.load}/{self.active}/{self.sub}" + (" with a job" if self.job else "")
        return states + (f", from {self.file}" if self.file else "")


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager knows about one service. Instants are on CLOCK_MONOTONIC in µs, 0 where not reached yet.

    `run` is None before systemd has given the unit an invocation ID. `is_stopped` says of a unit that never was active
    whether a stop is under way; for one that was, the instants tell it.
    """

    state: UnitState
    run: RunId | None
    main_pid: int
    active_enter: int
    active_exit: int
    main_start: int
    main_exit: int
    cpu_nsec: int | None
    memory_peak: int | None
    is_stopped: bool = False


def is_live(unit: UnitState) -> bool:
    """Whether something runs or is about to: a job is pending, or the state is not `inactive` or `failed`.

    So a queued start and a running close-out count. What is loaded is not asked: after a daemon-reload a unit that
    runs can be `bad-setting` or `error`.
    """
    return unit.job != 0 or unit.active not in {"inactive", "failed"}


def live_count(units: Iterable[UnitState]) -> int:
    """How many slots of an agent its units take: every live one of a run counts, whoever started it."""
    return sum(is_live(unit) and is_run_unit(unit.name) for unit in units)


def _state(row: Sequence[str | int]) -> UnitState:
    name, description, load, active, sub, _following, path, job, _type, _job_path = row
    return UnitState(
        name=str(name), description=str(description), load=str(load), active=str(active), sub=str(sub), path=str(path),
        job=int(job),
    )  # fmt: skip


def list_units(bus: Bus, patterns: Sequence[str]) -> list[UnitState]:
    """Every loaded unit whose name matches; no filter by state, which misses units in between. Raises BusError."""
    rows = bus.call("ListUnitsByPatterns", "asas", [], list(patterns))
    return [_state(row) for row in rows or []]


def occupant(bus: Bus, name: UnitName) -> UnitState | None:
    """What occupies a unit's name, also a mere file; None if nothing does. Raises BusError."""
    rows = bus.call("ListUnitsByNames", "as", [name])
    states = [_state(row) for row in rows or []]
    return next((state for state in states if state.load != "not-found"), None)


def object_path(name: UnitName) -> str:
    """The D-Bus object of a unit, as the manager derives it from the name (sd_bus_path_encode(3))."""
    label = "".join(
        char if char.isascii() and char.isalnum() and not (place == 0 and char.isdigit()) else f"_{ord(char):02x}"
        for place, char in enumerate(name)
    )
    return f"/org/freedesktop/systemd1/unit/{label}"


def file_of(bus: Bus, state: UnitState) -> str:
    """The file that a unit comes from; empty if it has none or is gone."""
    try:
        return str(bus.get(state.path, UNIT, "FragmentPath", "s"))
    except BusError:
        return ""


def observe(bus: Bus, state: UnitState) -> Observed:
    """The details of one loaded service. Raises BusError, also when it is collected meanwhile."""

    def number(interface: bytes, name: str, signature: str) -> int:
        return int(bus.get(state.path, interface, name, signature))

    def counter(name: str) -> int | None:
        try:
            value = number(SERVICE, name, "t")
        except BusError:  # MemoryPeak is newer than systemd 252
            return None
        return value if value < (1 << 64) - 1 else None

    active_enter = number(UNIT, "ActiveEnterTimestampMonotonic", "t")
    return Observed(
        state=state,
        run=invocation(bus, state.path),
        main_pid=number(SERVICE, "MainPID", "u"),
        active_enter=active_enter,
        active_exit=number(UNIT, "ActiveExitTimestampMonotonic", "t"),
        main_start=number(SERVICE, "ExecMainStartTimestampMonotonic", "t"),
        main_exit=number(SERVICE, "ExecMainExitTimestampMonotonic", "t"),
        cpu_nsec=counter("CPUUsageNSec"),
        memory_peak=counter("MemoryPeak"),
        is_stopped=active_enter == 0 and state.job != 0 and _is_stop(bus, state.job),
    )


def _is_stop(bus: Bus, job: int) -> bool:
    try:
        return bus.get(f"{OBJECT}/job/{job}", JOB, "JobType", "s") in {"stop", "restart"}
    except BusError:  # done meanwhile
        return False


def invocation(bus: Bus, path: str) -> RunId | None:
    """The invocation ID of the unit at `path`; None before it has one. Raises BusError."""
    value = bytes(bus.get(path, UNIT, "InvocationID", "ay") or []).hex()
    return RunId(value) if value not in {"", _NO_INVOCATION} else None


def occupant_of_run(bus: Bus, name: UnitName, run: RunId | None) -> UnitState | None:
    """What occupies the name, if it is this run (any, for None). Raises BusError.

    A unit without an invocation ID yet is a successor: the run that is known has had its ID since it began.
    """
    state = occupant(bus, name)
    if state is None or run is None:
        return state
    return state if invocation(bus, state.path) == run else None


def version_number(text: str) -> int:
    """The number in a manager's version, as `252.39-1~deb12u2`; 0 if there is none."""
    match = re.match(r"\d+", text)
    return int(match[0]) if match else 0


def user_manager_is_down(uid: int) -> bool:
    """Whether the machine's manager says that the user's does not run (user@.service(5)). Raises BusError."""
    path = f"{OBJECT}/unit/user_40{uid}_2eservice"
    return Bus.of_system().get(path, UNIT, "ActiveState", "s") in {"inactive", "failed"}


def wait_until_gone(bus: Bus, name: UnitName, *, run: RunId | None = None, deadline: float | None) -> bool:
    """Wait until nothing of the run (of any, for None) occupies the name.

    False when `deadline` (time.monotonic()) came first. Raises BusError.
    """
    bus.subscribe()
    bus.listen("UnitRemoved")
    bus.listen("Reloading")
    signals = bus.signals("UnitRemoved", "Reloading", deadline=deadline)
    while occupant_of_run(bus, name, run) is not None:
        try:
            # a unit that goes while the manager re-executes itself is told by the end of that alone: Reloading(no)
            next(body for body in signals if body[0] == name or body[0] is False)
        except BusTimeout:
            return False
    return True
