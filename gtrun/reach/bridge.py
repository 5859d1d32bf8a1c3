"""Asking a manager behind ssh with nothing of ours running there: its bus comes through systemd-stdio-bridge(1).

For the probe of the other agents, of which there may be many. Whatever keeps it from coming about, but for a connection
that is to be made again, leaves the question to `gtrun worker` there: that one skips what a shell's start-up files
print, needs no bridge, and can tell what is wrong.
"""

import os
import random
import signal
import socket
import time
from itertools import count

from gtrun.errors import GtrunError
from gtrun.reach.far import errors_file, is_dropped, one_of_few, pause_after, said, wait_apart
from gtrun.reach.operations import Session
from gtrun.reach.route import ONE_TRY, PATIENCE, Far
from gtrun.systemd.bus import Bus


class BridgedSession(Session):
    """A connection to the manager and nothing else of its account: only units can be asked for."""

    def __init__(self, bus: Bus) -> None:
        """Take over a connection that works."""
        self.prepared = None
        self._bus = bus


def bridged(parent: socket.socket, far: Far) -> BridgedSession | None:
    """The far manager's bus; None if it does not come through. Raises HungUp."""
    if far.bridge is None:
        return None
    deadline = time.monotonic() + PATIENCE
    for tried in count(1):
        errors = errors_file()
        try:
            with one_of_few(far):
                return BridgedSession(_open(far.bridge, errors))
        except GtrunError:
            pause = pause_after(tried, random.random())  # noqa: S311 - apart is all that they have to be
            if not is_dropped(said(errors)) or time.monotonic() + pause >= deadline:
                return None
        finally:
            os.close(errors)
        wait_apart(parent, pause)
    raise AssertionError


def _open(argv: list[str], errors: int) -> Bus:
    """Whoever waits here cannot be interrupted: the process is ended, and ssh with it. Raises BusError."""
    stderr = os.dup(2)
    os.dup2(errors, 2)
    try:
        bus = Bus.through(["setpriv", "--pdeathsig=KILL", "--", *argv])
        try:
            signal.alarm(int(ONE_TRY))
            bus.ping()
            signal.alarm(0)
        except BaseException:
            bus.close()
            raise
        return bus
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
