"""From the runner, outside of the sandbox, to the process inside it that becomes the agent program.

There may be no file that both can see: a sandbox can hide the home, /tmp and /run. So the manager keeps two
descriptors for the unit and gives them to its main process (FileDescriptorStoreMax= of systemd.service(5)): the run as
an anonymous file, and its record, in which to note why the program could not be executed.
"""

import contextlib
import fcntl
import os
import select
import socket
from collections.abc import Mapping

import msgspec

from gtrun.errors import StateError
from gtrun.model import ResolvedRun
from gtrun.names import RunId

PASSED_BY = frozenset({"LISTEN_FDNAMES", "LISTEN_FDS", "LISTEN_PID", "LISTEN_PIDFDID", "NOTIFY_SOCKET"})
"""The variables of the way, which are not the agent program's."""

_FIRST = 3  # SD_LISTEN_FDS_START of sd_listen_fds(3)
_RUN, _RECORD = "run", "record"
_WAIT = 10.0


class Handover(msgspec.Struct, frozen=True):
    """What the runner has come to: the run to execute, or the exit code with which it ended instead.

    `release` is the one that the runner ended up in, empty for none. `secrets` are variables that credentials make: in
    memory, as they are for the agent program. `payload` has the bytes of a plugin.
    """

    run: ResolvedRun
    run_id: RunId
    release: str
    prompt_file: str
    secrets: dict[str, str]
    code: int | None = None
    payload: bytes = b""


def give(handover: Handover, record: int, environment: Mapping[str, str]) -> None:
    """Have the manager keep it for the unit's main process. `record` is a descriptor. Raises StateError."""
    memory = os.memfd_create("run", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(memory), "wb") as file:
            file.write(msgspec.json.encode(handover))
        address = environment["NOTIFY_SOCKET"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
            notify.connect(f"\0{address[1:]}" if address.startswith("@") else address)
            for name, descriptor in ((_RUN, memory), (_RECORD, record)):
                socket.send_fds(notify, [f"FDSTORE=1\nFDNAME={name}".encode()], [descriptor])
            _await_reading(notify)
    except (OSError, KeyError) as error:
        raise StateError(f"cannot hand the run over into its sandbox: {error}") from error
    finally:
        os.close(memory)


def _await_reading(notify: socket.socket) -> None:
    """Until the manager has read what was sent (sd_notify_barrier(3)): of a sender that is gone it may know no unit."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        with contextlib.closing(os.fdopen(writing, "wb", buffering=0)):
            socket.send_fds(notify, [b"BARRIER=1"], [writing])
        poll = select.poll()
        poll.register(reading, 0)  # POLLHUP comes unasked
        if not poll.poll(_WAIT * 1000):
            raise StateError(f"the manager did not take the run within {_WAIT:g} s")
    finally:
        os.close(reading)


def take(environment: Mapping[str, str]) -> tuple[Handover, int]:
    """What was given, and the record's descriptor. Both stay for a next program until `keep` is called.

    Raises StateError.
    """
    names = environment.get("LISTEN_FDNAMES", "").split(":")
    if environment.get("LISTEN_PID") != str(os.getpid()) or sorted(names) != [_RECORD, _RUN]:
        raise StateError("nothing was handed over: only the unit of a run executes this")
    given = {name: _FIRST + number for number, name in enumerate(names)}
    with os.fdopen(given[_RUN], "rb", closefd=False) as file:
        file.seek(0)
        return msgspec.json.decode(file.read(), type=Handover), given[_RECORD]


def keep() -> None:
    """Have no other program inherit what was given: it has secrets in it, and the run's record."""
    for number in range(2):
        fcntl.fcntl(_FIRST + number, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
