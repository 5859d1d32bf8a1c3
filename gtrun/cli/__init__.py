"""The command line: parse, call, print. Everything it does is a function of the package."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Entry point of `gtrun`: never returns, and never shows a traceback unless `--debug` asks for one."""
    from gtrun.cli.boundary import guarded  # noqa: PLC0415 - so that ^C during our own imports is met there

    sys.exit(guarded(sys.argv[1:]))
