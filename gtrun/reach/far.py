"""Passing requests on to `gtrun worker`, which ssh or sudo runs as another account, and making that connection.

Everything here happens in a worker's child: its parent's deadline and ^C end it, and it ends ssh. A connection that
was refused because too many are being made (sshd's MaxStartups and MaxSessions) is tried again; what was asked over one
that came about never is, since it may have happened.

A descriptor that was lent with a request stays here, as no other account and no other box can have it. It is kept until
the far end has answered; also without a parent, and also without a connection. A request that is under way then may
still arrive, but not at any time: with it goes a lease, within which the far end, whose clock began at its last answer,
either carries it out or is killed by its own kernel. So when that time has passed on our clock, which began later,
nothing can come of it any more.
"""

import contextlib
import fcntl
import os
import pwd
import random
import re
import resource
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import NoReturn, TypeVar

import msgspec

from gtrun.errors import GtrunError, ManagerSilent, NoManager
from gtrun.files import ensure_private_folder, lock_at_once
from gtrun.process import Spawned
from gtrun.reach import frames
from gtrun.reach.frames import Failure, Reply
from gtrun.reach.route import KEEP_ALIVE, LEASE, LOCALHOST, ONE_TRY, PATIENCE, Far
from gtrun.text import plain, shorten

C = TypeVar("C")

PROTOCOL = 2
GREETING = b"gtrun-worker %d" % PROTOCOL
"""The line by which the far end begins; what a shell's start-up files printed before it is skipped."""

AT_ONCE = 8
"""Connections to one host that one account makes at a time; sshd begins to refuse the eleventh (MaxStartups)."""

SSH_FAILED = 255
_BANNER = 1 << 16  # bytes
_SLACK = 1.0  # seconds in which a far end whose lease has run out is surely dead
_GRACE = 0.3  # seconds for ssh to end by itself, in which the far end takes back what was not started
_ERRORS = 1 << 13  # bytes of stderr that are read
_ERRORS_MOST = 1 << 24  # bytes after which ssh is ended by SIGXFSZ
_GREETED = re.compile(rb"\ngtrun-worker ([0-9]{1,9})\n")


class ConnectionDropped(NoManager):
    """Refused before anything was asked, and perhaps not the next time; `tries` is how often it is worth it."""

    tries = 1000


class HungUp(Exception):
    """Our parent is gone, or wants no answer any more."""


def pass_on(parent: socket.socket, far: Far, failure: GtrunError | None = None) -> None:
    """Answer every request of the parent's with what the far end answers, until one of them hangs up.

    `failure` is known already to keep a connection from coming about.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # we want to know how ssh ended
    link: Link | GtrunError | None = failure  # an error is every answer from then on
    try:
        if link is None:
            try:
                link = connect(far, parent, lambda until: Link(far, parent, until))
            except GtrunError as error:
                link = error
            else:
                frames.note_connected(parent.fileno())
        while True:
            _await_request(parent, link)
            request, lent = frames.read_lent(parent)
            if request is None:
                break
            reply = _answer(link, request, is_leased=bool(lent)) if isinstance(link, Link) else link
            for descriptor in lent:
                os.close(descriptor)
            if isinstance(reply, GtrunError):
                link, reply = reply, msgspec.json.encode(Reply(failure=Failure.of(reply)))
            frames.write(parent.fileno(), reply)
    except (HungUp, ConnectionError):
        pass
    finally:
        parent.close()
        if isinstance(link, Link):
            link.close()


def _await_request(parent: socket.socket, link: "Link | GtrunError") -> None:
    """Wait until the parent has something to say, and keep the far end alive meanwhile."""
    poll = select.poll()
    poll.register(parent, select.POLLIN)
    while not poll.poll(KEEP_ALIVE * 1000):
        if isinstance(link, Link):
            link.keep_alive()


def _answer(link: "Link", request: bytes, *, is_leased: bool) -> bytes | GtrunError:
    """The far end's reply; or why there is none, and the link is closed. Raises HungUp.

    What is leased is waited for whatever happens to our parent, and may not be carried out any more once we are back.
    """
    before = {}
    try:
        if is_leased:
            for number in (signal.SIGTERM, signal.SIGHUP):  # which are for whole services and sessions
                before[number] = signal.signal(number, signal.SIG_IGN)
        return link.exchange(request, lease=LEASE if is_leased else 0.0)
    except GtrunError as error:
        link.close()
        if is_leased:
            select.select([], [], [], max(0.0, link.leased_until - time.monotonic()))
        return error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def connect(far: Far, parent: socket.socket, make: Callable[[float], C]) -> C:
    """A connection to the far end; `make` makes one until an instant of time.monotonic(), if need be several times.

    Raises NoManager with what is in the way and how to mend it, HungUp.
    """
    deadline = time.monotonic() + PATIENCE
    for tried in count(1):
        try:
            with one_of_few(far):
                return make(min(deadline, time.monotonic() + ONE_TRY))
        except ConnectionDropped as error:
            pause = pause_after(tried, random.random())  # noqa: S311 - apart is all that they have to be
            if tried >= error.tries or time.monotonic() + pause >= deadline:
                raise
            wait_apart(parent, pause)
    raise AssertionError


def pause_after(tried: int, chance: float) -> float:
    """Seconds before the next try: each time about twice as many, up to two, and for nobody the same."""
    return float(min(2.0, 0.05 * 2**tried)) * (0.5 + chance)


def wait_apart(parent: socket.socket, seconds: float) -> None:
    """Let some time pass, unless the parent hangs up. Raises HungUp."""
    poll = select.poll()
    poll.register(parent, select.POLLRDHUP)
    if poll.poll(seconds * 1000):
        raise HungUp


@contextlib.contextmanager
def one_of_few(far: Far) -> Iterator[None]:
    """At most `AT_ONCE` processes of this account are in here for one host; the kernel lets a dead one's place go.

    Where the files cannot be had, nobody is kept back: sshd's own limit and another try are left.
    """
    if far.by == "sudo":
        yield
        return
    descriptor = -1
    try:
        try:
            folder = Path(far.slots)
            ensure_private_folder(folder)
            descriptor = _slot(folder, far.host)
        except (OSError, GtrunError):
            pass
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _slot(folder: Path, host: str) -> int:
    first = random.randrange(AT_ONCE)  # noqa: S311
    descriptor = -1
    for number in range(AT_ONCE):
        if descriptor >= 0:
            os.close(descriptor)
        path = folder / f"{host}.{(first + number) % AT_ONCE}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if lock_at_once(descriptor):
            return descriptor
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # our parent ends us at its deadline
    return descriptor


class Link:
    """A connection to the far end, which has greeted. Every wait ends when the parent hangs up."""

    def __init__(self, far: Far, parent: socket.socket, deadline: float) -> None:
        """Start ssh or sudo and wait for the greeting. Raises ConnectionDropped, NoManager, HungUp."""
        self._far = far
        self._parent = parent
        self._socket, theirs = socket.socketpair()
        self._errors = errors_file()
        self._received = b""
        self._answered_at = 0.0
        self.leased_until = 0.0
        """When the far end surely has carried out what it ever will of the last request; 0 without a lease."""
        with theirs:
            self._child = Spawned(far.worker(), stream=theirs.fileno(), errors=self._errors)
        try:
            self._greet(deadline)
        except BaseException:
            self.close()
            raise

    def close(self) -> int | None:
        """End the connection and its ssh; gives ssh's exit code if it has ended. A second call does nothing."""
        if self._socket.fileno() < 0:
            return None
        self._socket.close()
        return self._child.end(_GRACE)

    def keep_alive(self) -> None:
        """Tell the far end that somebody is there. Whatever is wrong with the connection is the next request's."""
        with contextlib.suppress(OSError):
            self._socket.sendall(frames.framed(frames.KEPT_ALIVE))

    def exchange(self, request: bytes, *, lease: float = 0.0) -> bytes:
        """A request's reply. Raises ManagerSilent if the connection is lost: then it may have been carried out.

        With a lease it may be until `leased_until`, and a hang-up is not noticed before that. Raises GtrunError if so
        much time has passed since the last reply that it was not sent.
        """
        self.leased_until = self._answered_at + lease + _SLACK if lease else 0.0
        if lease and time.monotonic() > self._answered_at + lease:
            message = f"{self._far.who} was not asked: it last answered more than {lease:g} s ago"
            raise GtrunError(message, hint="nothing was started: dispatch it again")
        try:
            self._socket.sendall(frames.framed(request))
            (length,) = frames.LENGTH.unpack(self._take(frames.LENGTH.size, self.leased_until or None))
            if length > frames.MOST:
                raise ManagerSilent(f"what {self._far.who} sent is no reply of gtrun's")
            reply = self._take(length, self.leased_until or None)
            self._answered_at = time.monotonic()
        except (OSError, EOFError):  # among them TimeoutError
            self.close()
            raise ManagerSilent(
                f"the connection to {self._far.who} was lost{self._said(': ')}",
                hint="what was asked may have happened: look with `gtrun live`, then settle it with `gtrun reconcile`",
            ) from None
        return reply

    def _greet(self, deadline: float) -> None:
        self._received = b"\n"
        try:
            while (greeted := _GREETED.search(self._received)) is None:
                if len(self._received) > _BANNER:
                    raise NoManager(
                        f"{self._far.who} prints without end before gtrun begins",
                        hint="look at the start-up files of its shell",
                    )
                self._receive(deadline)
            self._received = self._received[greeted.end() :]
            if int(greeted[1]) != PROTOCOL:
                raise NoManager(
                    f"gtrun at {self._far.who} speaks protocol {int(greeted[1])}, and this one speaks {PROTOCOL}",
                    hint="install the same version of gtrun on both sides",
                )
            (length,) = frames.LENGTH.unpack(self._take(frames.LENGTH.size, deadline))
            reply = msgspec.json.decode(self._take(min(length, frames.MOST), deadline), type=Reply)
        except (ConnectionError, EOFError):
            raise_explained(self._far, self.close(), self._said())
        except TimeoutError:
            raise NoManager(
                f"{self._far.who} did not answer within {ONE_TRY:g} s{self._said(': ')}",
                hint=f"try it by hand: {self._by_hand()}",
            ) from None
        except msgspec.DecodeError:
            raise NoManager(f"what {self._far.who} sent is no greeting of gtrun's") from None
        if reply.failure is not None:
            raise reply.failure.error()

    def _by_hand(self) -> str:
        return by_hand(self._far)

    def _take(self, count: int, deadline: float | None) -> bytes:
        while len(self._received) < count:
            self._receive(deadline)
        data, self._received = self._received[:count], self._received[count:]
        return data

    def _receive(self, deadline: float | None) -> None:
        """Add what comes next. Raises EOFError at the end, TimeoutError at the deadline."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._child.pidfd, select.POLLIN)
        if not self.leased_until:
            poll.register(self._parent, select.POLLRDHUP)
        left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        ready = {descriptor for descriptor, _ in poll.poll(left)}
        if not ready:
            raise TimeoutError
        if self._parent.fileno() in ready:
            raise HungUp
        if self._socket.fileno() in ready:
            chunk = self._socket.recv(1 << 20)
            if chunk:
                self._received += chunk
                return
        raise EOFError  # also when ssh is gone and something that it left still holds the socket

    def _said(self, before: str = "") -> str:
        return said(self._errors, before)


def errors_file() -> int:
    """Where a connection's stderr goes: memory that nobody has to empty, and that nobody can fill."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (_ERRORS_MOST, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    return os.memfd_create("stderr", os.MFD_CLOEXEC)


def said(errors: int, before: str = "") -> str:
    """The last line on a connection's stderr: whatever was wrong is said last."""
    size = os.fstat(errors).st_size
    text = os.pread(errors, _ERRORS, max(0, size - _ERRORS)).decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return before + plain(shorten(lines[-1], 300)) if lines else ""


def by_hand(far: Far) -> str:
    """What a person types to see for themselves."""
    return f"sudo -u {far.name} true" if far.by == "sudo" else f"ssh {far.destination} true"


_DROPPED = re.compile(
    r"kex_exchange_identification|ssh_exchange_identification|Connection reset by|Connection closed by"
    r"|Session open refused|Broken pipe|Resource temporarily unavailable"
)
_REFUSED = "Connection refused"
_TRIES_IF_REFUSED = 4  # a second, in which an sshd that is restarted is back

# what ssh, sudo and shells say, and what then mends it
_HINTS = (
    ("Permission denied", "let a key of this account in there, without a passphrase or with an agent; try: {by_hand}"),
    ("HOST IDENTIFICATION HAS CHANGED", "somebody may be in between; if the host was made anew: ssh-keygen -R {host}"),
    ("Host key verification failed", "connect once by hand and compare the host's key: {by_hand}"),
    ("Could not resolve hostname", "correct `host` of the rig, or give it a Host entry in ~/.ssh/config"),
    ("password is required", "add to sudoers: {caller} ALL=({name}) NOPASSWD: {gtrun} worker {name}"),
    ("interactive authentication is required", "add to sudoers: {caller} ALL=({name}) NOPASSWD: {gtrun} worker {name}"),
    ("not allowed to", "add to sudoers: {caller} ALL=({name}) NOPASSWD: {gtrun} worker {name}"),
    ("must have a tty", "add to sudoers: Defaults:{caller} !requiretty"),
    ("failed to execute sudo", 'install sudo, or reach the account by ssh: reach = "ssh"'),
    ("failed to execute ssh", "install the OpenSSH client"),
    ("No such command", "the gtrun there is too old: install the same version as here"),
    ("there is no command", "the gtrun there is too old: install the same version as here"),
    ("Unknown command", "the gtrun there is too old: install the same version as here"),
)


def is_dropped(last: str) -> bool:
    """Whether ssh says that it was turned away before it could ask."""
    return bool(_DROPPED.search(last) or _REFUSED in last)


def raise_explained(far: Far, code: int | None, last: str) -> NoReturn:
    """What ended a connection before the greeting. Raises ConnectionDropped if it may come about the next time."""
    if far.by == "ssh" and code == SSH_FAILED and is_dropped(last):
        error = ConnectionDropped(f"{far.who} cannot be reached: {last}", hint=f"try it by hand: {by_hand(far)}")
        error.tries = _TRIES_IF_REFUSED if _REFUSED in last else error.tries
        raise error
    known = {"by_hand": by_hand(far), "host": far.host, "name": far.name, "gtrun": " ".join(far.gtrun)}
    known["caller"] = pwd.getpwuid(os.geteuid()).pw_name
    if code in {126, 127} and "setpriv:" not in last:
        where = "a path that this account can execute" if far.host == LOCALHOST else "its path there"
        hint = f"install gtrun there, or name {where} as `gtrun` of the rig"
        last = last or f"exit code {code}"
        raise NoManager(f"{far.who} cannot execute {far.gtrun[0]}: {last}", hint=hint)
    hint = next((hint.format(**known) for words, hint in _HINTS if words in last), "")
    last = last or f"{far.by} ended with {code}"
    raise NoManager(f"{far.who} cannot be reached: {last}", hint=hint or f"try it by hand: {by_hand(far)}")
