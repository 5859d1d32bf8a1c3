"""The claim lock: one flock(2) on the claim host, held across the probe of every agent and the start.

The kernel drops it when its holder dies, so there is nothing to clean up and nothing to go stale. Nobody inherits it:
whatever is forked while it is held would hold it too, so workers are forked before it is taken.
"""

import contextlib
import fcntl
import os
import select
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gtrun.errors import StateError
from gtrun.files import describe, ensure_private_folder


class Claim(msgspec.Struct):
    """How the lock was got: waited for and held, in seconds; `problem` says why it was not to be had."""

    waited: float = 0.0
    held: float = 0.0
    problem: str = ""


@contextlib.contextmanager
def taken(path: Path, *, wait: float, claim: Claim) -> Iterator[None]:
    """The lock, if it is to be had within `wait` seconds; else the same without it. `claim` tells which.

    A guard that cannot be asked must not stop the fleet, so whatever is wrong with the lock is an answer.
    """
    began = time.monotonic()
    try:
        descriptor = _open(path)
    except (OSError, StateError) as error:
        claim.problem = f"the claim lock cannot be opened: {describe(error) if isinstance(error, OSError) else error}"
        yield
        return
    try:
        if not _lock(descriptor, wait):
            claim.problem = f"the claim lock {path} was not to be had within {wait:g} s"
        locked = time.monotonic()
        claim.waited = locked - began
        try:
            yield
        finally:
            claim.held = time.monotonic() - locked
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    """A lock file of this account's own, never through a link and never one that somebody else could hold."""
    ensure_private_folder(path.parent)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    info = os.fstat(descriptor)
    if info.st_uid != os.geteuid() or not stat.S_ISREG(info.st_mode) or info.st_mode & 0o077:
        os.close(descriptor)
        raise StateError(f"{path} is not a private file of this account")
    return descriptor


def _lock(descriptor: int, wait: float) -> bool:
    """Take the lock; False if somebody else held it all the while.

    flock(2) has no deadline, so the wait is a child's: the lock belongs to the open file, which both share, and it
    stays with the parent when the child has got it and is gone. A deadline or ^C ends the child.
    """
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # if the parent is killed it must not wait on, as it would then hold the lock for nobody
        signal.alarm(int(wait) + 2)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os._exit(0)
    gone = os.pidfd_open(child)
    try:
        return bool(select.select([gone], [], [], wait)[0])
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(gone)
