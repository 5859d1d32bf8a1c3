"""The box's own cgroup: made by us beside everything else, emptied and removed by us.

`<cgroup2>/gtrun-harness/<id>` is locked (flock on the directory itself) by the keeper of a box for as long as
that box lives; a directory that can be locked by someone else is one whose owner is dead, and is swept.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

FAMILY = "gtrun-harness"
VERSION_1 = ("systemd",)  # where systemd-nspawn repeats the payload's path when host and guest differ (sync_cgroup)


class CgroupError(Exception):
    """The kernel or the way this machine mounts cgroups does not allow a box."""


def hierarchy() -> Path:
    """Where cgroup2 is mounted: /sys/fs/cgroup, or /sys/fs/cgroup/unified beside version 1."""
    for candidate in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if (candidate / "cgroup.controllers").exists():
            return candidate
    raise CgroupError("cgroup2 is mounted neither at /sys/fs/cgroup nor at /sys/fs/cgroup/unified")


def family() -> Path:
    """The one directory at the hierarchy's root that is ours."""
    return hierarchy() / FAMILY


def claim(name: str) -> tuple[Path, int]:
    """Make and lock the cgroup of one box; the lock ends with the descriptor, so with its holder."""
    top = family()
    while True:
        top.mkdir(exist_ok=True)
        try:
            with _locked(top):
                sweep(top)
                _hand_down_controllers(top)
                mine = top / name
                mine.mkdir()
                lock = os.open(mine, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return mine, lock
        except FileNotFoundError:  # the last box of another process took the family directory with it
            continue


def release(mine: Path) -> None:
    """Kill whatever is left in the box's cgroup and remove it, and the family's directory after the last."""
    kill_all(mine)
    remove(mine)
    for top in [family(), *(Path("/sys/fs/cgroup") / name / FAMILY for name in VERSION_1)]:
        with contextlib.suppress(OSError):  # not there, or another box's too
            top.rmdir()


def sweep(top: Path) -> None:
    """Remove the cgroups of boxes whose keeper is dead; the caller holds the family's lock."""
    for child in [entry for entry in top.iterdir() if entry.is_dir()]:
        try:
            lock = os.open(child, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            kill_all(child)
            remove(child)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)


def kill_all(mine: Path, *, timeout: float = 10.0) -> None:
    """SIGKILL all in this cgroup and below (kernel documentation, cgroup-v2.rst), wait until it is empty.

    timeout: seconds, then CgroupError.
    """
    try:
        (mine / "cgroup.kill").write_text("1")
    except FileNotFoundError:
        return
    deadline = time.monotonic() + timeout
    with (mine / "cgroup.events").open() as events:
        changed = select.poll()
        changed.register(events, select.POLLPRI | select.POLLERR)
        while "populated 0" not in events.read():
            left = deadline - time.monotonic()
            if left <= 0:
                raise CgroupError(f"{mine}: processes survive SIGKILL for {timeout:g} s")
            changed.poll(left * 1000)
            events.seek(0)


def remove(mine: Path) -> None:
    """Remove an empty cgroup and all below it, and what nspawn made for it in version 1's hierarchies."""
    inside = mine.relative_to(hierarchy())
    for twin in [mine, *(Path("/sys/fs/cgroup") / name / inside for name in VERSION_1)]:
        for directory, _, _ in os.walk(twin, topdown=False):
            with contextlib.suppress(FileNotFoundError):
                Path(directory).rmdir()


def _hand_down_controllers(top: Path) -> None:
    for controller in (top / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):  # one that cannot be had is what the product has to report, too
            (top / "cgroup.subtree_control").write_text(f"+{controller}")


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
