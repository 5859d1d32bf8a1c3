"""The command line: parse, call, print. Everything it does is a function of the package."""

import gc
import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Entry point of `gtrun`: never returns, and never shows a traceback unless `--debug` asks for one."""
    gc.set_threshold(100_000)  # our imports alone set off dozens of collections, which find nothing: 3 ms
    from gtrun.cli.boundary import guarded  # noqa: PLC0415 - so that ^C during our own imports is met there

    _open_standard_streams()
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
