"""The claim lock: one flock(2) on the claim host, held across the probe of every agent and the start.

The kernel drops it when its holders die, so there is nothing to clean up and nothing to go stale. Nobody inherits it:
whatever is forked while it is held would hold it too, so workers are forked before it is taken. The one that is to
start the unit is lent the descriptor along with that request: it does what it was asked also when the dispatcher is
killed, and until it has, nobody else may look.
"""

import contextlib
import fcntl
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import msgspec

from gtrun.errors import StateError
from gtrun.files import describe, ensure_private_folder, lock_at_once


class Claim(msgspec.Struct):
    """How the lock was got: waited for and held, in seconds; `problem` says why it was not to be had."""

    waited: float = 0.0
    held: float = 0.0
    problem: str = ""


_AWAITED = frozenset({signal.SIGINT, signal.SIGCHLD})
_LONGEST = 10**8
"""Seconds, about three years: a longer wait overflows what the kernel is told."""


@contextlib.contextmanager
def taken(path: Path, *, wait: float, claim: Claim) -> Iterator[int | None]:
    """The lock, if it is to be had within `wait` seconds; else the same without it. `claim` tells which.

    Gives the descriptor, for whoever starts the unit to hold as well; None without the lock. A guard that cannot be
    asked must not stop the fleet, so whatever is wrong with the lock is an answer.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        descriptor = None
        try:
            descriptor = _locked(path, began + min(wait, _LONGEST))
        except (OSError, StateError) as error:
            why = describe(error) if isinstance(error, OSError) else error
            claim.problem = f"the claim lock {path} is not to be had: {why}"
        if descriptor is not None:
            stack.callback(os.close, descriptor)
        elif not claim.problem:
            claim.problem = f"the claim lock {path} was not to be had within {wait:g} s"
        locked = time.monotonic()
        claim.waited = locked - began
        try:
            yield descriptor
        finally:
            if not claim.problem:
                claim.held = time.monotonic() - locked


def _locked(path: Path, deadline: float) -> int | None:
    """The lock's descriptor; None if somebody else held it until the deadline. Raises OSError, StateError.

    The lock is the file, and others come by its name: what is not under that name any more once it has been waited for
    keeps nobody out, and the one that is there now is waited for instead.
    """
    while True:
        descriptor = _open(path)
        try:
            if not _lock(descriptor, deadline - time.monotonic()):
                break
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.lstat()):
                    kept, descriptor = descriptor, -1
                    return kept
            if time.monotonic() >= deadline:
                break
        finally:
            if descriptor >= 0:
                os.close(descriptor)
    return None


def _open(path: Path) -> int:
    """A lock file of this account's own, never through a link and never one that somebody else could hold."""
    ensure_private_folder(path.parent)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    info = os.fstat(descriptor)
    if info.st_uid != os.geteuid() or not stat.S_ISREG(info.st_mode) or info.st_mode & 0o077:
        os.close(descriptor)
        raise StateError(f"it is {stat.filemode(info.st_mode)} of owner {info.st_uid}, not this account's private file")
    return descriptor


def _lock(descriptor: int, wait: float) -> bool:
    """Take the lock; False if somebody else held it for so many seconds.

    flock(2) has no deadline, so the wait is a child's: the lock belongs to the open file, which both share, and it
    stays with the parent when the child has got it and is gone. A deadline or ^C ends the child. Raises OSError.
    """
    if lock_at_once(descriptor):
        return True
    if wait <= 0:
        return False
    # both are waited for where they cannot be missed: neither a ^C just before a select(2), nor one after the fork
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    try:
        child = os.fork()
        if child == 0:
            _wait_for_lock(descriptor, wait)
        try:
            _await_end(child, time.monotonic() + wait)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return lock_at_once(descriptor)  # whatever the child ended of: what it got is ours already


def _await_end(child: int, deadline: float) -> None:
    """Wait until a child has ended or the deadline is there; both signals are blocked. Raises KeyboardInterrupt."""
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        left = deadline - time.monotonic()
        came = signal.sigtimedwait(_AWAITED, left) if left > 0 else None
        if came is None:
            return
        if came.si_signo == signal.SIGINT:
            raise KeyboardInterrupt


def _wait_for_lock(descriptor: int, wait: float) -> NoReturn:
    """The child's life. If the parent is killed it holds nothing that anybody waits for, and soon ends by itself."""
    try:
        os.closerange(0, descriptor)
        os.closerange(descriptor + 1, 1 << 16)
        signal.alarm(int(wait) + 2)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    finally:
        os._exit(0)
