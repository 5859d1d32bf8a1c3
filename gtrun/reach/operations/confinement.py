"""What holds a run in bounds: checked before the start, looked at in the kernel afterwards, tried out by doctor."""

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from gtrun.errors import GtrunError, LaunchFailed
from gtrun.files import ensure_private_folder
from gtrun.model import ResolvedRun, Sandbox
from gtrun.names import Token, is_plain_argument, probe_unit_name
from gtrun.program import expand_home
from gtrun.reach.operations.session import Session
from gtrun.reach.route import this_installation
from gtrun.systemd import effects, exitstatus, transient, units
from gtrun.systemd.bus import MANAGER, OBJECT, SERVICE, UNIT, Bus, BusError, Property

_PATHS = ("read_write_paths", "read_only_paths", "inaccessible_paths", "bind_paths", "bind_read_only_paths")
_OF_THE_SYSTEM = ("/usr/", "/lib/")
_PROBE_SECONDS = 8.0


def settled(sandbox: Sandbox, home: str) -> Sandbox:
    """The sandbox with the paths that it means here. Raises LaunchFailed: with one that is not there no unit starts."""
    found = {key: tuple(expand_home(path, home) for path in getattr(sandbox, key)) for key in _PATHS}
    for key, paths in found.items():
        for path in paths:
            if not is_plain_argument(path):
                raise LaunchFailed(f"sandbox.{key}: {path!r} has characters that a unit's file cannot carry")
            if not os.path.lexists(path):
                hint = "create it, or take it out: a unit with it does not start"
                raise LaunchFailed(f"sandbox.{key}: {path} is not there", hint=hint)
    return msgspec.structs.replace(sandbox, **found)


def with_worktrees(sandbox: Sandbox, state: str) -> Sandbox:
    """The sandbox with the folder in it where a run works whose clone is not touched (`gtrun.clones`).

    Raises StateError if that folder cannot be made.
    """
    folder = Path(state, "worktrees")
    if sandbox.protect_home == "tmpfs":
        ensure_private_folder(folder)
        return msgspec.structs.replace(sandbox, bind_paths=(*sandbox.bind_paths, str(folder)))
    if sandbox.protect_system == "strict" or sandbox.protect_home == "read-only":
        ensure_private_folder(folder)
        return msgspec.structs.replace(sandbox, read_write_paths=(*sandbox.read_write_paths, str(folder)))
    return sandbox


def refuse_hidden(sandbox: Sandbox, what: str, path: str) -> None:
    """Raises LaunchFailed if the sandbox hides what the run executes: it could only fail."""
    if _is_below(path, sandbox.inaccessible_paths):
        key, hint = "inaccessible_paths", "take what it lies in out of that list"
    elif sandbox.protect_home == "yes" and _is_below(path, effects.HOMES):
        key, hint = "protect_home", 'use "tmpfs" with bind_paths or bind_read_only_paths, or "read-only"'
    elif (
        sandbox.protect_home == "tmpfs"
        and _is_below(path, effects.HOMES)
        and not _is_below(path, (*sandbox.bind_paths, *sandbox.bind_read_only_paths))
    ):
        key, hint = "protect_home", "name its folder in bind_paths or bind_read_only_paths"
    else:
        return
    raise LaunchFailed(f"sandbox.{key} hides {what}: {path}", hint=hint)


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(f"{path}/".startswith(f"{folder.rstrip('/')}/") for folder in folders)


def not_in_force(session: Session, run: ResolvedRun, path: str) -> list[str]:
    """The settings of a run that the kernel does not hold for its unit; none for a unit that is gone."""
    try:
        cgroup = str(session.bus.get(path, SERVICE, "ControlGroup", "s"))
        pid = int(session.bus.get(path, SERVICE, "MainPID", "u"))
    except BusError:
        return []
    return _not_in_force(session, run, cgroup, pid)


def _not_in_force(session: Session, run: ResolvedRun, cgroup: str, pid: int) -> list[str]:
    home = session.account.home
    return effects.not_in_force(run.limits, run.slice, run.sandbox, cgroup=cgroup, pid=pid, home=home)


def drop_ins(bus: Bus, path: str) -> list[str]:
    """What somebody laid over a unit, without what the distribution itself lays over every one (systemd.unit(5))."""
    try:
        found = bus.get(path, UNIT, "DropInPaths", "as")
    except BusError:
        return []
    return [str(each) for each in found or [] if not is_of_the_system(str(each))]


def is_of_the_system(path: str) -> bool:
    """Whether the distribution brought it, and not the account or the administrator."""
    return path.startswith(_OF_THE_SYSTEM)


def laid_over_runs(session: Session) -> list[str]:
    """What the account or the administrator laid over every unit of a run (systemd.unit(5), drop-ins)."""
    return [
        str(path)
        for path in unit_files(session, ("task-*service.d/*.conf", "plugin-*service.d/*.conf", "service.d/*.conf"))
    ]


def unit_files(session: Session, patterns: Sequence[str]) -> list[Path]:
    """The files of that form in the manager's search path, without what the distribution brought. Raises NoManager."""
    places = session.bus.get(OBJECT, MANAGER, "UnitPath", "as")
    found = [path for place in places for pattern in patterns for path in sorted(Path(place).glob(pattern))]
    return [path for path in found if not is_of_the_system(str(path))]


def tried_out(session: Session, run: ResolvedRun) -> list[str]:
    """The settings that are not in force here, found out with a unit that is held in the same bounds and does nothing.

    Nothing of it is left. Raises GtrunError if such a unit does not start.
    """
    bus, name = session.bus, probe_unit_name(Token(os.urandom(8).hex()))
    wanted: list[Property] = [
        ("Description", "s", f"gtrun doctor tries out the limits and the sandbox of {run.agent}"),
        ("Type", "s", "exec"),
        ("ExecStart", "a(sasb)", [transient.exec_line([*this_installation(), "probe"])]),
        ("CollectMode", "s", "inactive-or-failed"),
        ("Delegate", "b", True),
        ("RuntimeMaxUSec", "t", int(_PROBE_SECONDS * 1_000_000)),
        ("AddRef", "b", True),
        *transient.confinement(run.limits, run.slice, run.sandbox),
    ]
    bus.listen("JobRemoved")
    job = transient.start(bus, name, wanted)
    path = units.object_path(name)
    deadline = time.monotonic() + _PROBE_SECONDS
    try:
        if transient.job_result(bus, job, deadline=deadline) != "done":
            status = int(bus.get(path, SERVICE, "ExecMainStatus", "i"))
            raise GtrunError(f"a unit with its limits and its sandbox does not start: {exitstatus.said(status)}")
        return not_in_force(session, run, path)
    finally:
        with contextlib.suppress(BusError):
            bus.call("StopUnit", "ss", name, "replace")
        with contextlib.suppress(BusError):
            bus.call_unit(path, "Unref")
        units.wait_until_gone(bus, name, deadline=deadline)
