"""Naming a process so that its number, given to another one later, is not mistaken for it."""

import os
from pathlib import Path


def _started(pid: int) -> str:
    """Field 22 of proc(5)'s stat, in clock ticks since boot; the name before it may hold spaces and parentheses."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


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
    except FileNotFoundError:
        return False
