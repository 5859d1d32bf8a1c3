"""The command line: parse, call, print. Everything it does is a function of the package."""

import contextlib
import gc
import io
import os
import sys
from typing import Any, NoReturn


def main() -> NoReturn:
    """Entry point of `gtrun`: never returns, and never shows a traceback unless `--debug` asks for one."""
    gc.set_threshold(100_000)  # our imports alone set off dozens of collections, which find nothing: 3 ms
    from gtrun.cli.boundary import guarded  # noqa: PLC0415 - so that ^C during our own imports is met there

    _open_standard_streams()
    _say_what_can_be_said()
    # all is written: what is left is taking the interpreter's modules apart, 7 ms for which nobody should wait
    os._exit(guarded(sys.argv[1:]))


def _open_standard_streams() -> None:
    """A caller may have closed them (`>&-`): the next files that we open would take their places."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            if null != descriptor:
                os.dup2(null, descriptor, inheritable=False)
                os.close(null)
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for good


class _Unfailing(io.RawIOBase):
    """The standard error, whatever has become of its reader, its disk or its terminal."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2

    def isatty(self) -> bool:
        return os.isatty(2)

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - any buffer
        view = memoryview(data)
        with contextlib.suppress(OSError):
            while view:
                view = view[os.write(2, view) :]
        return len(data)


def _say_what_can_be_said() -> None:
    """A warning that nobody can read must not keep us from what we do, nor change the exit code.

    Neither must text that the encoding of the standard output has no character for.
    """
    sys.stderr = io.TextIOWrapper(
        _Unfailing(), encoding=sys.stderr.encoding, errors="backslashreplace", write_through=True
    )
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
