"""Waiting for one's turn to start up: as many dispatchers of one account do it at once as there are CPUs.

Starting up is CPU and nothing else, so more of them are done no sooner. But the kernel gives each as much of a CPU as
whoever holds the claim lock, for whom all the others wait: twenty that start up at once make that one ten times slower.

Nobody is kept back for long, nor where the files cannot be had: a turn is a courtesy, not a guard.
"""

import contextlib
import fcntl
import os
import pwd
import signal
from collections.abc import Callable, Iterator
from typing import NoReturn

_WAIT = 5.0
"""Seconds after which one starts up out of turn: whoever is in there may be stopped."""


@contextlib.contextmanager
def turn() -> Iterator[Callable[[], None]]:
    """Have one of the places until the end, or until what it gives is called. It takes SIGALRM: main thread only."""
    descriptor = -1

    def over() -> None:
        nonlocal descriptor
        if descriptor >= 0:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for a child that was forked meanwhile and has it too
            os.close(descriptor)
            descriptor = -1

    # where the claim lock is, unless fleet.toml says otherwise, which nobody has read yet
    with contextlib.suppress(OSError, KeyError):
        home = pwd.getpwuid(os.geteuid()).pw_dir
        descriptor = _place(f"{home}/.local/state/gtrun/starting", len(os.sched_getaffinity(0)))
    try:
        yield over
    finally:
        over()


def _place(prefix: str, places: int) -> int:
    """A descriptor whose file is locked, or was waited for long enough. Raises OSError.

    Each place is a file, and the kernel frees that of a process that dies.
    """
    mine = os.getpid() % places
    for number in range(places):
        descriptor = _open(f"{prefix}.{(mine + number) % places}")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            return descriptor
    descriptor = _open(f"{prefix}.{mine}")
    _wait(descriptor)
    return descriptor


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)


def _wait(descriptor: int) -> None:
    """Lock it, or give up. A ^C that comes just before the kernel begins to wait is heard a moment later."""

    def give_up(*_: object) -> NoReturn:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    try:
        signal.setitimer(signal.ITIMER_REAL, _WAIT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except TimeoutError:
        pass
    finally:
        signal.signal(signal.SIGALRM, before)
