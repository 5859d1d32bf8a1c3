"""Programs of others that gtrun runs and waits for. The only module that starts one."""

import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gtrun.errors import GtrunError

_TAIL = 0.3  # seconds in which journald has written the last of a burst
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_ENVIRONMENT = {"PATH": _PATH, "LANG": "C.UTF-8", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"}


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
        program = sh.Command(argv[0], search_paths=_PATH.split(":"))
    except sh.CommandNotFound:
        return Captured(127, "", f"{argv[0]}: not found in {_PATH}")
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


def stream(argv: Sequence[str], *, until: int | None = None) -> Iterator[bytes]:
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
