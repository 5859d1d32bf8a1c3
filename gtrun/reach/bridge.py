"""Asking a manager behind ssh with nothing of ours running there: its bus comes through systemd-stdio-bridge(1).

For the probe of the other agents, of which there may be many. Where ssh gets there and the bus does not come through,
the question is left to `gtrun worker` there: that one skips what a shell's start-up files print, needs no bridge, and
can tell what is wrong. Where ssh does not get there, no other connection would.
"""

import os
import signal
import socket
from collections.abc import Sequence

from gtrun.errors import GtrunError
from gtrun.reach.far import SSH_FAILED, connect, errors_file, is_dropped, raise_explained, said
from gtrun.reach.operations import Session
from gtrun.reach.route import ONE_TRY, Far
from gtrun.systemd.bus import Bus

# how ssh begins its last line where it has no connection: ssh: connect to host …, ssh: Could not resolve hostname …
_NO_CONNECTION = "ssh: "


class BridgedSession(Session):
    """A connection to the manager and nothing else of its account: only units can be asked for."""

    def __init__(self, bus: Bus) -> None:
        """Take over a connection that works."""
        self.prepared = None
        self._bus = bus


def bridged(parent: socket.socket, far: Far) -> BridgedSession | None:
    """The far manager's bus; None if it does not come through. Raises NoManager if ssh does not get there, HungUp."""
    argv = far.bridge
    return None if argv is None else connect(far, parent, lambda _: _try(far, argv))


def _try(far: Far, argv: Sequence[str]) -> BridgedSession | None:
    errors = errors_file()
    try:
        return BridgedSession(_open(argv, errors))
    except GtrunError:
        last = said(errors)
        if is_dropped(last) or last.startswith(_NO_CONNECTION):
            raise_explained(far, SSH_FAILED, last)
        return None
    finally:
        os.close(errors)


def _open(argv: Sequence[str], errors: int) -> Bus:
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
