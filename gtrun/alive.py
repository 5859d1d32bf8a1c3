"""Naming a process so that its number, given to another one later, is not mistaken for it."""

import os
from pathlib import Path


def _started(pid: int) -> str:
    """When a process began, in clock ticks since boot (field 22 of proc(5)'s stat). Raises ProcessLookupError.

    The name in field 2 may hold spaces and parentheses. A zombie has ended.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
    if fields[0] == "Z":
        raise ProcessLookupError(pid)
    return fields[19]


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def this_process() -> str:
    """This process: `boot:pid:start`."""
    return f"{_boot()}:{os.getpid()}:{_started(os.getpid())}"


def is_running(name: str) -> bool:
    """Whether the process that `this_process` named still runs."""
    boot, pid, start = name.split(":")
    try:
        return boot == _boot() and _started(int(pid)) == start
    except ProcessLookupError:
        return False
