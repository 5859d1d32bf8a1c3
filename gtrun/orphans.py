"""Ending what a program of others leaves behind, also what has left its session: it becomes a child of ours."""

import contextlib
import ctypes
import os
import select
import signal
from collections.abc import Iterator

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
_WAIT = 1.0  # seconds for the kernel to end a process; one in uninterruptible sleep is left to it


@contextlib.contextmanager
def ended() -> Iterator[None]:
    """Whatever is started in here is killed and reaped at the end, but what belongs to another account."""
    before = _children()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        while left := _children() - before:  # the children of one that is killed come up in the next round
            for pid in left:
                if not _end(pid):
                    before.add(pid)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _children() -> set[int]:
    """Our children, dead ones that nobody has reaped too; none where the kernel does not say (CONFIG_PROC_CHILDREN)."""
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return {int(word) for word in file.read().split()}
    except OSError:
        return set()


def _end(pid: int) -> bool:
    """Kill a child of ours and reap it; as long as it is not reaped, nobody else has its number."""
    try:
        os.kill(pid, signal.SIGKILL)
        gone = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not select.select([gone], [], [], _WAIT)[0]:
            return False
    finally:
        os.close(gone)
    return os.waitpid(pid, os.WNOHANG)[0] == pid
