"""One structured entry in the journal, in its own protocol (systemd's JOURNAL_NATIVE_PROTOCOL)."""

import contextlib
import select
import socket

from gtrun.systemd.kinds import Kind

_SOCKET = "/run/systemd/journal/socket"
_WAIT = 0.1  # seconds for a journald that is busy; there may be ten others who tell it something
_LONGEST = 8192  # characters of a value: of a datagram that is too large nothing arrives


def write(kind: Kind, message: str, **fields: str) -> None:
    """Write it, as of `gtrun`. A journal that does not take it changes nothing: it has been said elsewhere.

    `fields` are further ones, whose names journald accepts only in capitals. Those that gtrun.catalog names go to a
    terminal as they are.
    """
    told = {
        "MESSAGE": message, "MESSAGE_ID": kind.message_id, "PRIORITY": str(kind.priority),
        "SYSLOG_IDENTIFIER": "gtrun", **fields,
    }  # fmt: skip
    # without O_NONBLOCK a journald that is stopped would stop us
    how = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, how) as journal:
        journal.connect(_SOCKET)  # only of a peer is it known whether its queue has room (unix(7), max_dgram_qlen)
        select.select([], [journal], [], _WAIT)
        journal.send(b"".join(_field(name, value) for name, value in told.items()))


def _field(name: str, value: str) -> bytes:
    """A value goes with its length: a line break in it would begin another field."""
    data = value[:_LONGEST].encode("utf-8", "replace")
    return name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n"
