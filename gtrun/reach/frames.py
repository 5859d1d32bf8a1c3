"""Requests and replies on their way between a worker and whoever it works for: JSON, each behind its length."""

import os
import select
import socket
import struct
import time

import msgspec

from gtrun.errors import BoardUnavailable, GtrunError, LaunchFailed, ManagerSilent, NoManager, Refused, StateError
from gtrun.exits import Exit

LENGTH = struct.Struct("!I")
MOST = 1 << 28
"""Bytes of one frame: what claims to be longer is no answer of ours."""

_OF_DBUS = b"\0AUT"
"""How D-Bus's authentication begins: whoever sends that was led to us by a key that is bound to gtrun worker."""

_KINDS: dict[str, type[GtrunError]] = {
    kind.__name__: kind
    for kind in (BoardUnavailable, GtrunError, LaunchFailed, ManagerSilent, NoManager, Refused, StateError)
}


class Request(msgspec.Struct):
    """An operation by its name; `seconds` is 0 for one without a deadline.

    With a `lease` it is not carried out later than so many seconds after the last answer, nor once nobody waits for it.
    """

    operation: str
    arguments: msgspec.Raw
    seconds: float
    lease: float = 0.0


class Failure(msgspec.Struct):
    """An error on its way."""

    kind: str
    message: str
    hint: str
    code: int

    @classmethod
    def of(cls, error: GtrunError) -> "Failure":
        """The error, as the nearest kind that the other side knows."""
        kind = next((base.__name__ for base in type(error).__mro__ if base.__name__ in _KINDS), "GtrunError")
        return cls(kind, error.message, error.hint, int(error.code))

    def error(self) -> GtrunError:
        """The error, to be raised."""
        return _KINDS.get(self.kind, GtrunError)(self.message, hint=self.hint, code=Exit(self.code))


class Reply(msgspec.Struct):
    """A value or a failure; or only a note, before the first of them, that a far end was reached at that instant.

    The instant is on time.monotonic(), which is the same for every process of this box.
    """

    value: msgspec.Raw = msgspec.Raw(b"null")
    failure: Failure | None = None
    connected_at: float | None = None


KEPT_ALIVE = b""
"""A frame that asks for nothing."""


def framed(data: bytes) -> bytes:
    """The data behind its length."""
    return LENGTH.pack(len(data)) + data


def read(descriptor: int, *, idle: float | None = None) -> bytes | None:
    """The next frame, waited for; None once the other side has hung up. Raises ConnectionError.

    With `idle` the other side has hung up as well if it has written nothing for so many seconds.
    """
    head = _exactly(descriptor, LENGTH.size, idle)
    return None if head in {None, _OF_DBUS} else _exactly(descriptor, LENGTH.unpack(head or b"")[0], idle)


def read_lent(connection: socket.socket) -> tuple[bytes | None, list[int]]:
    """The next frame of a socket, with the descriptors that were lent with it, for us to close."""
    flags = socket.MSG_WAITALL | socket.MSG_CMSG_CLOEXEC
    head, lent, _, _ = socket.recv_fds(connection, LENGTH.size, 1, flags)
    if len(head) < LENGTH.size:
        return None, lent
    return _exactly(connection.fileno(), LENGTH.unpack(head)[0]), lent


def _exactly(descriptor: int, count: int, idle: float | None = None) -> bytes | None:
    data = bytearray()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while len(data) < count:
        if idle is not None and not poll.poll(idle * 1000):
            return None
        chunk = os.read(descriptor, min(count - len(data), 1 << 20))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def write(descriptor: int, data: bytes) -> None:
    """Write a frame, waiting where there is no room. Raises ConnectionError."""
    view = memoryview(framed(data))
    while view:
        view = view[os.write(descriptor, view) :]


def note_connected(descriptor: int) -> None:
    """Tell whoever waits for the first answer that the far end is reached: from now on its time counts."""
    write(descriptor, msgspec.json.encode(Reply(connected_at=time.monotonic())))
