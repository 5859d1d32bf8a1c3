"""Programs of others that gtrun runs and waits for. The only module that starts one."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from gtrun.errors import GtrunError

_MOST = 1 << 20  # bytes that are kept of what a program writes
_GRACE = 2.0  # seconds for a program to end in order
_TAIL = 0.3  # seconds in which journald has written the last of a burst
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_ENVIRONMENT = {"PATH": PATH, "LANG": "C.UTF-8", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"}


@dataclass(frozen=True, slots=True)
class Captured:
    """What a program printed on stdout and stderr, and its exit code (127: there is no such program)."""

    code: int
    output: str
    errors: str


def capture(argv: Sequence[str], *, deadline: float = 10.0) -> Captured:
    """Run a program to its end in a closed environment, without a terminal; `deadline` is in seconds.

    Raises GtrunError if it did not end in time (it is killed).
    """
    import sh  # noqa: PLC0415 - 95 ms that no dispatch and no run pays

    try:
        program = sh.Command(argv[0], search_paths=PATH.split(":"))
    except sh.CommandNotFound:
        return Captured(127, "", f"{argv[0]}: not found in {PATH}")
    try:
        done = program(
            *list(argv[1:]),
            _env=_ENVIRONMENT,
            _tty_out=False,
            _in="",
            _ok_code=tuple(range(256)),
            _timeout=deadline,
            _return_cmd=True,
        )
    except sh.TimeoutException as error:
        raise GtrunError(f"{Path(argv[0]).name} did not answer within {deadline:g} s") from error
    return Captured(done.exit_code, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


def stream(argv: Sequence[str], *, until: int | None = None) -> Generator[bytes, None, None]:
    """The lines that a program prints, as they come, until it ends or the caller stops asking: then it is ended.

    When descriptor `until` becomes readable, what is still on its way is given, then it ends as well.
    """
    # sh leaves its child running when its parent is interrupted, so this one is subprocess's; and one that follows a
    # quiet journal would outlive a parent that was killed (prctl(2), PR_SET_PDEATHSIG)
    tied = ["setpriv", "--pdeathsig=TERM", "--", *argv]
    with subprocess.Popen(tied, env=_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
        try:
            yield from _lines(child.stdout.fileno() if child.stdout else -1, until)
        finally:
            child.terminate()


def relay(
    argv: Sequence[str],
    hear: Callable[[int, bytes], bool],
    *,
    environment: Mapping[str, str],
    deadline: Callable[[], float | None],
    given: bytes = b"",
) -> int:
    """Run a program until it ends; returns its exit code, or the negative number of a signal.

    Its input is what is `given`. `hear` gets what it writes as it comes, to stdout (1) or stderr (2), and says with
    True that nothing else is wanted: then it is ended. `deadline` is asked before each wait: an instant of
    time.monotonic() or None. Raises TimeoutError.
    """
    tied = ["setpriv", "--pdeathsig=TERM", "--", *argv]
    with (
        _input(given) as source,
        subprocess.Popen(
            tied, env=dict(environment), stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as child,
    ):
        try:
            return _relay(child, hear, deadline)
        finally:
            child.terminate()
            try:
                child.wait(1.0)
            except subprocess.TimeoutExpired:  # it was stopped
                child.kill()


@contextlib.contextmanager
def _input(given: bytes) -> Iterator[int]:
    """A descriptor to read from: a file in memory, which nobody has to fill while its reader works."""
    if not given:
        yield subprocess.DEVNULL
        return
    with os.fdopen(os.memfd_create("input", os.MFD_CLOEXEC), "w+b") as file:
        file.write(given)
        file.seek(0)
        yield file.fileno()


def quick(argv: Sequence[str], *, seconds: float, most: int = 4 << 20) -> bytes | None:
    """What a program prints within `seconds`; None if it takes longer, prints more or fails. For those in a hurry."""
    parts: list[bytes] = []
    deadline = time.monotonic() + seconds

    def hear(number: int, data: bytes) -> bool:
        parts.extend([data] if number == 1 else [])
        return sum(map(len, parts)) > most

    try:
        code = relay(argv, hear, environment=_ENVIRONMENT, deadline=lambda: deadline)
    except (TimeoutError, OSError):
        return None
    return b"".join(parts) if code == 0 and sum(map(len, parts)) <= most else None


def finish(argv: Sequence[str], *, environment: Mapping[str, str], deadline: float) -> Captured:
    """Run a program to its end without input, in a session of its own; `deadline` is in seconds.

    What it makes can be read by every account (umask 022). Raises GtrunError if it did not end in time: it is killed,
    with every child that has not left its process group, and so it is when this process is interrupted.
    """
    name, until = Path(argv[0]).name, time.monotonic() + deadline
    kept = {1: bytearray(), 2: bytearray()}

    def hear(stream: int, chunk: bytes) -> bool:
        if time.monotonic() > until:  # one that never stops to talk
            raise TimeoutError
        kept[stream].extend(chunk[: _MOST - len(kept[stream])])
        return False

    with contextlib.ExitStack() as stack:
        try:
            child = stack.enter_context(_in_session(argv, environment, errors=subprocess.PIPE, umask=0o022))
        except OSError as error:
            return Captured(127, "", f"{argv[0]}: {error.strerror}")
        try:
            code = _relay(child, hear, lambda: until)
        except TimeoutError:
            raise GtrunError(f"{name} did not end within {deadline:g} s") from None
    return Captured(code, kept[1].decode("utf-8", "replace"), kept[2].decode("utf-8", "replace"))


@contextlib.contextmanager
def _in_session(
    argv: Sequence[str], environment: Mapping[str, str], *, errors: int, folder: str | None = None, umask: int = -1
) -> Iterator["subprocess.Popen[bytes]"]:
    """A program without input, in a session of its own; if it has not ended by itself, it is killed with its children.

    Raises OSError if it cannot be executed.
    """
    with subprocess.Popen(
        list(argv), env=dict(environment), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
        start_new_session=True, umask=umask,
    ) as child:  # fmt: skip
        try:
            yield child
        finally:
            if child.returncode is None:
                os.killpg(child.pid, signal.SIGKILL)  # not reaped yet, so nobody else has its number


def _relay(
    child: "subprocess.Popen[bytes]", hear: Callable[[int, bytes], bool], deadline: Callable[[], float | None]
) -> int:
    streams = {stream.fileno(): number for number, stream in ((1, child.stdout), (2, child.stderr)) if stream}
    gone = os.pidfd_open(child.pid)
    try:
        poll = select.poll()
        for descriptor in (*streams, gone):
            poll.register(descriptor, select.POLLIN)
        while True:
            until = deadline()
            ready = poll.poll(None if until is None else max(0.0, until - time.monotonic()) * 1000)
            if not ready:
                raise TimeoutError
            spoke = [descriptor for descriptor, _ in ready if descriptor in streams]
            for descriptor in spoke:
                chunk = os.read(descriptor, 1 << 16)
                if not chunk:
                    poll.unregister(descriptor)
                elif hear(streams[descriptor], chunk):
                    return 0
            if not spoke:  # it has ended and all is read; a child of its own may keep the pipes open
                return child.wait()
    finally:
        os.close(gone)


def printed_by(argv: Sequence[str], environment: Mapping[str, str], *, seconds: float, most: int) -> tuple[int, bytes]:
    """Run a program without input that prints a secret; returns its exit code and what it printed, a little more than
    `most` bytes at the utmost. What it says on stderr is nobody's to read.

    Raises TimeoutError, and OSError if it cannot be executed; it is ended with its children then.
    """
    said = bytearray()

    def hear(_number: int, chunk: bytes) -> bool:
        said.extend(chunk)
        return len(said) > most

    until = time.monotonic() + seconds
    with _in_session(argv, environment, errors=subprocess.DEVNULL, folder="/") as child:
        return _relay(child, hear, lambda: until), bytes(said)


def converse(
    argv: Sequence[str | bytes],
    *,
    environment: Mapping[str, str],
    deadline: float,
    hear: Callable[[bytes], None],
    feed: Iterable[bytes] = (),
    umask: int = -1,
    folder: str | None = None,
    hears_errors: bool = False,
    grace: float = _GRACE,
    pipe_size: int = -1,
) -> int:
    """Run a program to its end in a session of its own; returns its exit code, or the negative number of a signal.

    It reads what `feed` yields, `hear` gets what it writes to stdout as it comes, and what it says on stderr is
    dropped, or heard as well. After `deadline` seconds, or when `feed` or `hear` raises, it is ended with all its
    children: by SIGTERM, so that it takes back its lock files, then, `grace` seconds later, by SIGKILL. With pipes of
    one page (`pipe_size`) `feed` is asked for more only when it has read all. Raises TimeoutError, OSError if it cannot
    be executed.
    """
    until = time.monotonic() + deadline
    with contextlib.ExitStack() as stack:
        child = subprocess.Popen(
            list(argv), env=dict(environment), bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if hears_errors else subprocess.DEVNULL, start_new_session=True, umask=umask,
            cwd=folder, pipesize=pipe_size,
        )  # fmt: skip
        gone = os.pidfd_open(child.pid)
        stack.callback(os.close, gone)
        stack.callback(_end_group, child, gone, grace)
        output = stack.enter_context(cast("IO[bytes]", child.stdout)).fileno()
        _feed_and_hear(
            output, stack.enter_context(cast("IO[bytes]", child.stdin)), gone, filter(None, feed), hear, until
        )
    return child.returncode


def _feed_and_hear(
    output: int,
    stdin: IO[bytes],
    gone: int,
    feed: Iterator[bytes],
    hear: Callable[[bytes], None],
    until: float,
) -> None:
    pipe, rest = stdin.fileno(), memoryview(b"")
    os.set_blocking(pipe, False)
    poll = select.poll()
    for descriptor, event in ((output, select.POLLIN), (pipe, select.POLLOUT), (gone, select.POLLIN)):
        poll.register(descriptor, event)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll(max(0.0, until - time.monotonic()) * 1000)}
        if not ready or time.monotonic() > until:  # the latter: one that never stops to talk
            raise TimeoutError
        if pipe in ready:
            rest = rest or memoryview(next(feed, b""))
            try:
                written = os.write(pipe, rest) if rest else 0
            except BrokenPipeError:  # it has read enough
                written = 0
            rest = rest[written:]
            if not written:
                poll.unregister(pipe)
                stdin.close()
        if output in ready:
            chunk = os.read(output, 1 << 16)
            if chunk:
                hear(chunk)
            else:
                poll.unregister(output)
        elif gone in ready:  # all is read; a child of its own may keep the pipe open
            return


def _end_group(child: "subprocess.Popen[bytes]", gone: int, grace: float) -> None:
    """End a program with its children, and reap it: as long as it is not reaped, nobody else has its number."""
    if not select.select([gone], [], [], 0)[0]:
        os.killpg(child.pid, signal.SIGTERM)
        select.select([gone], [], [], grace)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def pause(seconds: float) -> None:
    """Wait before a program is tried again; ^C ends it."""
    select.select([], [], [], seconds)


def _lines(output: int, until: int | None) -> Iterator[bytes]:
    poll = select.poll()
    poll.register(output, select.POLLIN)
    if until is not None:
        poll.register(until, select.POLLIN)
    rest = b""
    timeout: float | None = None
    while ready := poll.poll(timeout):
        if any(descriptor == until for descriptor, _ in ready):
            poll.unregister(until or 0)
            timeout = _TAIL * 1000
        if any(descriptor == output for descriptor, _ in ready):
            chunk = os.read(output, 1 << 16)
            if not chunk:
                break
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole
    if rest:
        yield rest


class Spawned:
    """A program that runs beside us, in a session of its own: no terminal, and ^C is ours to handle."""

    def __init__(self, argv: Sequence[str], *, stream: int, errors: int) -> None:
        """Start it with `stream`, one end of a socket, as its standard input and output; it ends with us.

        Its environment is ours: ssh_config(5) can refer to any of it. Raises GtrunError if it cannot be executed.
        """
        tied = ["setpriv", "--pdeathsig=KILL", "--", *argv]
        try:
            self._child = subprocess.Popen(tied, stdin=stream, stdout=stream, stderr=errors, start_new_session=True)
        except OSError as error:
            raise GtrunError(f"cannot execute {tied[0]}: {error.strerror}") from error
        self.pidfd = os.pidfd_open(self._child.pid)

    def end(self, grace: float) -> int | None:
        """Wait `grace` seconds for its end, then kill it with all its children; gives its exit code.

        None if it is somebody else's process (sudo's) and does not end: then it ends when it sees that we are gone.
        """
        is_over = bool(select.select([self.pidfd], [], [], grace)[0])
        try:
            os.killpg(self._child.pid, signal.SIGKILL)  # not reaped yet, so nobody else has its number
        except PermissionError:
            if not is_over:
                return None
        return self._child.wait()
