"""A child process that acts as one account for its parent.

A manager that does not answer freezes whoever talks to it, and the binding holds the interpreter's lock meanwhile, so
the parent never talks to one itself. The child is forked before the parent knows which account it needs, and imports
the binding while the parent reads its configuration. It then becomes the account for good: as root's child it drops to
it before it opens anything of that account. Requests and replies are JSON, decoded to their types: an account must
not be able to hand its parent anything else.

An account that no process here may become has its own end of this conversation: `gtrun worker`, run there by ssh or
sudo. The child then only passes requests and replies on (see `gtrun.reach.far`).
"""

import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
import time
import typing
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from gtrun import systemd
from gtrun.account import TOKEN_VARIABLES, Account, own
from gtrun.errors import GtrunError, ManagerSilent, NoManager
from gtrun.reach import frames
from gtrun.reach.frames import Failure, Reply, Request
from gtrun.reach.route import IDLE, LEASE, PATIENCE, Far, Route
from gtrun.text import plain

if typing.TYPE_CHECKING:
    from gtrun.reach.operations import Session

A = TypeVar("A", bound=msgspec.Struct)
R = TypeVar("R")

_PARTING = 0.5  # seconds
_LATE = 2.0  # seconds that whoever passes a request on has to say that its lease has run out
_TWIN_WAIT = 10.0  # seconds
_NO_ANSWER = (msgspec.MsgspecError, ValueError, RecursionError)
"""What decoding raises: an account may answer what it likes. ValueError: an exit code that there is not."""

_TWIN = b"t"
_ACCOUNT = b"a"
_FAR = b"f"
_PROBE = b"p"


class Worker:
    """The parent's end. A context manager: leaving it ends the child, whatever it is doing."""

    def __init__(self, connection: socket.socket, process: int, *, is_ours: bool) -> None:
        """Take over a child's socket and its pidfd; use `start` or `twin`. `is_ours`: it is ours to reap."""
        self._socket = connection
        self._process = process
        self._is_ours = is_ours
        self._seconds: float | None = None
        self._who = "nobody yet"
        self._hung_up_at: float | None = None
        self._is_far = False
        self._lent_until: float | None = None
        self.patience = 0.0
        """Seconds that the first answer may take longer, as a connection has to be made for it."""

    @classmethod
    def start(cls) -> typing.Self:
        """Fork the child. It costs 1 ms, and the child starts to import the binding at once.

        Raises GtrunError where the kernel has no process or descriptor for it.
        """
        try:
            ours, theirs = socket.socketpair()
            child = os.fork()  # it never flushes what of ours is in a buffer
        except OSError as error:
            hint = "look at the limits of this session: ulimit -a"
            raise GtrunError(f"cannot make a process that talks to the manager: {error.strerror}", hint=hint) from None
        if child == 0:
            ours.close()
            _serve(theirs)
        theirs.close()
        return cls(ours, os.pidfd_open(child), is_ours=True)

    def twin(self) -> "Worker":
        """Another worker, forked by this one while it is nobody yet: the binding is not imported again.

        Raises ManagerSilent if the child does not answer.
        """
        ours, theirs = socket.socketpair()
        processes: list[int] = []
        try:
            with theirs:
                socket.send_fds(self._socket, [_TWIN], [theirs.fileno()])
            if not select.select([self._socket], [], [], _TWIN_WAIT)[0]:
                raise ManagerSilent("the process that forks workers did not answer")
            _, processes, _, _ = socket.recv_fds(self._socket, 1, 1)
        except ConnectionError:
            pass  # as at its end
        finally:
            if not processes:
                ours.close()
        if not processes:
            raise self._went_away()
        return Worker(ours, processes[0], is_ours=False)

    def __enter__(self) -> typing.Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child; a second call does nothing.

        It is given a moment to end by itself, in which it takes back a run that was prepared and not started; and the
        time that it needs to hear from a far end what came of a request for which it was lent something. Raises
        KeyboardInterrupt if that is not waited for: it hears it all the same, and then ends.
        """
        process, self._process = self._process, -1
        if process < 0:
            return
        self.hang_up()
        left = max((self._hung_up_at or 0.0) + _PARTING, self._lent_until or 0.0) - time.monotonic()
        if not select.select([process], [], [], max(0.0, left))[0]:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            select.select([process], [], [], _PARTING)
        if self._is_ours:
            os.waitid(os.P_PIDFD, process, os.WEXITED)
        os.close(process)

    def hang_up(self) -> None:
        """The first half of `close`: several workers can part at the same time."""
        if self._hung_up_at is None:
            self._hung_up_at = time.monotonic()
            self._socket.close()

    def act_as(self, route: Route, *, units_only: bool = False) -> None:
        """From now on the child is this account, or passes everything on to it. Raises NoManager if it may not be.

        With `units_only` nothing but `list_units` will be asked, which takes less of a far box.
        """
        if isinstance(route, Far):
            self._who, self.patience, kind = route.who, PATIENCE, _PROBE if units_only else _FAR
            self._is_far = True
        elif os.geteuid() in {0, route.uid}:
            self._who, kind = route.name, _ACCOUNT
        else:
            raise NoManager(
                f"agent account {route.name} is another account, and only root may act for it",
                hint=f"run this as {route.name} or as root: sudo gtrun …",
            )
        try:
            self._socket.sendall(kind)
        except ConnectionError:
            raise self._went_away() from None
        self._send(msgspec.json.encode(route))

    def call(
        self,
        operation: Callable[["Session", A], R],
        arguments: A,
        *,
        seconds: float = 20.0,
        forever: bool = False,
        lend: int | None = None,
    ) -> R:
        """Have an operation of `gtrun.reach.operations` carried out, within `seconds` (and `patience`).

        Raises what the operation raises, and ManagerSilent at the deadline: the child is ended, and what was under
        way may have happened or not. `forever` waits without a deadline, and still ends at ^C. `lend` is a descriptor
        that the child has as well, from now until it has answered or is dead: what it locks stays locked if we die.
        For a far end, which cannot have it, the child keeps it until that has answered, or cannot carry the request out
        any more.
        """
        self.ask(operation, arguments, seconds=None if forever else seconds, lend=lend)
        return self.answer(operation, seconds=None if forever else seconds + self.patience)

    def ask(
        self,
        operation: Callable[["Session", A], R],
        arguments: A,
        *,
        seconds: float | None,
        lend: int | None = None,
    ) -> None:
        """The first half of `call`: several workers can be asked before the first has answered."""
        self._seconds = seconds
        is_leased = self._is_far and lend is not None
        request = Request(
            operation.__name__, msgspec.Raw(msgspec.json.encode(arguments)), seconds or 0.0, LEASE if is_leased else 0.0
        )
        self._lent_until = time.monotonic() + LEASE + _LATE if is_leased else None
        self._send(msgspec.json.encode(request), lend)

    def answer(self, operation: Callable[["Session", A], R], *, seconds: float | None) -> R:
        """The second half of `call`. `seconds` is what is left for it; None waits without a deadline."""
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            reply = msgspec.json.decode(self._receive(deadline), type=Reply)
            if reply.connected_at is not None and self.patience:
                deadline = None if self._seconds is None else reply.connected_at + self._seconds
                self.patience = 0.0
                reply = msgspec.json.decode(self._receive(deadline), type=Reply)
        except TimeoutError:
            self.close()
            raise ManagerSilent(
                f"the user manager of {self._who} did not answer within {self._seconds:g} s",
                hint="what was asked may still happen: look with `gtrun live`",
            ) from None
        except _NO_ANSWER as error:
            raise self._misspoke(error) from None
        self.patience = 0.0
        self._lent_until = None
        kind: type[R] = typing.get_type_hints(operation)["return"]
        try:
            failure = reply.failure.error() if reply.failure is not None else None
            value = msgspec.json.decode(reply.value, type=kind) if failure is None else None
        except _NO_ANSWER as error:
            raise self._misspoke(error) from None
        if failure is not None:
            raise failure
        return typing.cast("R", value)

    def fileno(self) -> int:
        """The descriptor that becomes readable when the answer is there (for select(2))."""
        return self._socket.fileno()

    def _send(self, data: bytes, lend: int | None = None) -> None:
        framed = frames.framed(data)
        try:
            if lend is not None:
                framed = framed[socket.send_fds(self._socket, [framed], [lend]) :]
            self._socket.sendall(framed)
        except ConnectionError:
            raise self._went_away() from None

    def _went_away(self) -> NoManager:
        if self.patience:
            return NoManager(f"{self._who} could not be reached in time", hint=f"try it by hand: ssh {self._who} true")
        return ManagerSilent(
            f"the process that acts for {self._who} went away",
            hint="what was asked may have happened: look with `gtrun live`, then settle it with `gtrun reconcile`",
        )

    def _misspoke(self, error: Exception) -> ManagerSilent:
        """What it says cannot be an answer; it is not listened to any more."""
        self.close()
        return ManagerSilent(
            f"{self._who} gave no answer of gtrun: {plain(str(error))[:200]}",
            hint="which gtrun does it run? What was asked may have happened: look with `gtrun live`",
        )

    def _receive(self, deadline: float | None) -> bytes:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)

        def exactly(count: int) -> bytes:
            data = b""
            while len(data) < count:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and (left <= 0 or not poll.poll(left * 1000)):
                    raise TimeoutError
                try:
                    chunk = self._socket.recv(count - len(data))
                except ConnectionError:
                    chunk = b""
                if not chunk:
                    if self._lent_until is not None:  # nobody keeps for us what was lent, so we keep our own
                        select.select([], [], [], max(0.0, self._lent_until - time.monotonic()))
                    raise self._went_away()
                data += chunk
            return data

        return exactly(frames.LENGTH.unpack(exactly(frames.LENGTH.size))[0])


def _serve(connection: socket.socket) -> typing.NoReturn:
    """The child's life: one identity, then requests until the parent hangs up."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C is the parent's to handle: it ends us
        systemd.import_binding()  # while the parent reads its configuration

        # what a dispatch asks for, before it does and for all twins; the parent does not need it yet
        from gtrun.reach.operations import Session, looking, quota, starting  # noqa: F401, PLC0415

        connection, kind, identity = _first(connection)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whatever is started from here on is waited for, also by git
        if kind in {_FAR, _PROBE}:
            _serve_far(connection, msgspec.json.decode(identity, type=Far), units_only=kind == _PROBE)
        elif kind == _ACCOUNT:
            account = msgspec.json.decode(identity, type=Account)
            _become(account)
            _answer_all(connection.fileno(), connection.fileno(), Session(account), lender=connection)
        code = 0
    except ConnectionError:
        pass  # our parent hung up before it told us who we are
    except BaseException:  # noqa: BLE001 - a process's own boundary: a bug of ours, shown as the interpreter would
        sys.excepthook(*sys.exc_info())
    finally:
        # not sys.exit: what the parent has registered for its own end is not ours to run
        os._exit(code)


def _serve_far(connection: socket.socket, far: Far, *, units_only: bool) -> None:
    from gtrun.reach.far import HungUp, pass_on  # noqa: PLC0415 - it starts programs, which few need

    session, failure = None, None
    if units_only:
        from gtrun.reach.bridge import bridged  # noqa: PLC0415

        try:
            session = bridged(connection, far)
        except HungUp:
            return
        except GtrunError as error:
            failure = error
    if session is None:
        pass_on(connection, far, failure)
    else:
        with contextlib.suppress(ConnectionError):  # nobody waits any more: the next read says so
            frames.note_connected(connection.fileno())
        _answer_all(connection.fileno(), connection.fileno(), session)


def _first(connection: socket.socket) -> tuple[socket.socket, bytes, bytes]:
    """The identity, after as many twins as the parent asks for; in a twin, its own connection and identity."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # twins are reaped by the kernel
    while True:
        tag, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
        if tag != _TWIN:
            return connection, tag, frames.read(connection.fileno()) or b"" if tag else b""
        child = os.fork()
        if child == 0:
            connection.close()
            connection = socket.socket(fileno=descriptors[0])
            continue
        os.close(descriptors[0])
        try:
            process = os.pidfd_open(child)
        except ProcessLookupError:  # it has ended already, as when the parent is gone
            socket.send_fds(connection, [_TWIN], [])
            continue
        socket.send_fds(connection, [_TWIN], [process])
        os.close(process)


def serve(name: str) -> int:
    """`gtrun worker NAME`: the far end. Standard input and output are the connection; returns an exit code."""
    from gtrun.reach.far import GREETING  # noqa: PLC0415

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    incoming, outgoing = _take_standard_streams()
    os.chdir("/")
    os.umask(0o077)
    account, reply = None, Reply()
    if "SUDO_USER" in os.environ:  # a sudoers file may keep the caller's variables, which name the caller's folders
        _forget_folders()
    try:
        account = own(os.environ)
        if account.name != name:
            raise NoManager(
                f"it was {name} who was to be reached, and this is {account.name}",
                hint=f"look at the entry of this key in ~/.ssh/authorized_keys of {account.name}",
            )
    except GtrunError as error:
        reply = Reply(failure=Failure.of(error))
    try:
        os.write(outgoing, b"\n" + GREETING + b"\n")
        frames.write(outgoing, msgspec.json.encode(reply))
    except ConnectionError:
        return 1
    if account is None or reply.failure is not None:
        return 1
    systemd.import_binding()
    from gtrun.reach.operations import Session  # noqa: PLC0415

    _answer_all(incoming, outgoing, Session(account), idle=IDLE)
    return 0


def _take_standard_streams() -> tuple[int, int]:
    """Nothing that is printed by chance gets between the replies, and no child has the connection."""
    incoming, outgoing = (fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3) for number in (0, 1))
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in (0, 1):
        os.dup2(null, number)
    os.close(null)
    return incoming, outgoing


def _answer_all(
    incoming: int,
    outgoing: int,
    session: "Session",
    *,
    lender: socket.socket | None = None,
    idle: float | None = None,
) -> None:
    answered_at = 0.0
    try:
        while True:
            request, lent = frames.read_lent(lender) if lender else (frames.read(incoming, idle=idle), [])
            if request is None:
                break
            if request == frames.KEPT_ALIVE:
                continue
            asked = msgspec.json.decode(request, type=Request)
            limit = asked.seconds and asked.seconds + _LATE
            if asked.lease:
                limit = answered_at + asked.lease - _now()
            if asked.seconds and not asked.lease:
                answer = _answer(session, asked, limit)
            else:
                with _ended_by_hangup(incoming):
                    answer = _answer(session, asked, limit)
            for descriptor in lent:
                os.close(descriptor)  # before the answer: the parent then counts on being the only one
            answered_at = _now()
            frames.write(outgoing, msgspec.json.encode(answer))
    except (BrokenPipeError, ConnectionResetError):
        pass  # our parent hung up while we worked
    finally:
        if session.prepared is not None:  # the parent was interrupted or killed before it asked for the start
            session.prepared.discard()


def _now() -> float:
    """Seconds on a clock that goes on while the box is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@contextlib.contextmanager
def _ended_by_hangup(connection: int) -> Iterator[None]:
    """What has no deadline, or must not happen without its parent, ends with it, also with one that was killed.

    We may be anywhere in the binding, so the kernel has to do it: by SIGIO, whose default is that (fcntl(2), O_ASYNC).
    Raises ConnectionResetError if the parent is gone already.
    """
    flags = fcntl.fcntl(connection, fcntl.F_GETFL)
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETFL, flags | os.O_ASYNC)
    if select.select([connection], [], [], 0)[0]:
        raise ConnectionResetError
    try:
        yield
    finally:
        fcntl.fcntl(connection, fcntl.F_SETFL, flags)


def _become(account: Account) -> None:
    """Drop to the account for good (credentials(7)); a no-op for one's own."""
    if os.geteuid() != account.uid:
        os.initgroups(account.name, account.gid)
        os.setresgid(account.gid, account.gid, account.gid)
        os.setresuid(account.uid, account.uid, account.uid)
        os.environ.update(HOME=account.home, USER=account.name, LOGNAME=account.name)
        _forget_folders()
        _forget_secrets()
    os.chdir("/")
    os.umask(0o077)


def _forget_folders() -> None:
    """Drop the variables by which a login tells its own folders and its bus."""
    for name in [name for name in os.environ if name.startswith(("XDG_", "DBUS_"))]:
        del os.environ[name]


def _forget_secrets() -> None:
    """Drop the tokens of whoever started this process: the account is to use its own."""
    for name in TOKEN_VARIABLES:
        os.environ.pop(name, None)
    os.environ.pop("CREDENTIALS_DIRECTORY", None)


def _answer(session: "Session", request: Request, limit: float) -> Reply:
    """Carry it out within `limit` seconds, or be ended; 0 is without end, and below that it is too late already."""
    if limit < 0:
        late = f"it is too late for what was asked of this process: over {request.lease:g} s since its last answer"
        return Reply(failure=Failure.of(GtrunError(late, hint="nothing was done: ask again")))
    from gtrun.reach import operations  # noqa: PLC0415 - it imports the binding

    operation = operations.by_name(request.operation)
    hints = typing.get_type_hints(operation)
    # the parent ends us at its deadline; if it was killed meanwhile, the kernel does, since the binding may hang, and
    # does so before we go on if we were stopped
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        value = operation(session, msgspec.json.decode(request.arguments, type=hints["arguments"]))
    except GtrunError as error:
        return Reply(failure=Failure.of(error))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return Reply(value=msgspec.Raw(msgspec.json.encode(value)))


def as_account(route: Route) -> Worker:
    """A worker that already acts as the account. Raises NoManager."""
    worker = Worker.start()
    try:
        worker.act_as(route)
    except GtrunError:
        worker.close()
        raise
    return worker
