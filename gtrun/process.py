"""Programs of others that gtrun runs and waits for. The only module that starts one."""

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gtrun.errors import GtrunError

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


def stream(argv: Sequence[str]) -> Iterator[bytes]:
    """The lines that a program prints, as they come, until it ends or the caller stops asking: then it is ended."""
    # sh leaves its child running when its parent is interrupted, so this one is subprocess's
    with subprocess.Popen(argv, env=_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
        try:
            if child.stdout is not None:
                yield from child.stdout
        finally:
            child.terminate()
