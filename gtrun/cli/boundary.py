"""The one place where an error becomes a message and an exit code."""

import errno
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gtrun.errors import GtrunError, Refused
from gtrun.exits import Exit
from gtrun.text import plain
from gtrun.turns import turn

if TYPE_CHECKING:
    from gtrun.cli.invocation import Invocation


def guarded(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. What it printed has arrived by then, or that is said."""
    match arguments:
        case ["forwarded", payload]:
            from gtrun.cli.forwarding import framed  # noqa: PLC0415

            return framed(payload, lambda: _arrived(arguments))
        case _:
            return _arrived(arguments)


def _arrived(arguments: Sequence[str]) -> int:
    code = _answered(arguments)
    # at the interpreter's own end a failure would be a traceback and exit code 120
    return code if _has_arrived() else code or Exit.FAILED


def _has_arrived() -> bool:
    """Hand over what was printed. False, and said, if it cannot be; a reader that is gone needs none."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        _discard_output()
        print(f"gtrun: cannot write to the standard output: {error.strerror}", file=sys.stderr)
        return False
    return True


def _answered(arguments: Sequence[str], invocation: "Invocation | None" = None) -> int:
    try:
        return _command(arguments, invocation)
    except GtrunError as error:
        complain(error)
        return error.code
    except KeyboardInterrupt:
        print("gtrun: interrupted", file=sys.stderr)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        _discard_output()  # the reader went away (`gtrun show 1 | head`): there is nothing to say
        return Exit.DONE
    except Exception as error:  # noqa: BLE001 - this is the boundary
        if isinstance(error, OSError) and not _has_arrived():
            return Exit.FAILED  # a command that prints piece by piece, as `ps --watch`
        if "--debug" in arguments:
            sys.excepthook(*sys.exc_info())
        else:
            print(f"gtrun: this is a bug in gtrun: {plain(repr(error))}", file=sys.stderr)
            print("gtrun: run it again as `gtrun --debug …` and report what it prints", file=sys.stderr)
        return Exit.BUG


def _discard_output() -> None:
    """Nothing of what was printed is left for the interpreter to flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())


def _is_closed(record: str) -> bool:
    """Whether a run's record is not among the open ones any more: the first of a unit's two close-outs has done it all.

    The unit's name is free only when the second is over, so that one does not first import what it will not need.
    """
    from gtrun.names import decode_path  # noqa: PLC0415

    try:
        os.stat(decode_path(record))  # noqa: PTH116
    except OSError as error:
        return error.errno == errno.ENOENT
    return False


def complain(error: GtrunError) -> None:
    """An error on stderr: what, and what to do."""
    told = f"refused: {error.message}" if isinstance(error, Refused) else error.message
    for line in told.split("\n"):
        print(f"gtrun: {plain(line)}", file=sys.stderr)
    if error.hint:
        print(f"gtrun: hint: {plain(error.hint)}", file=sys.stderr)


def _command(arguments: Sequence[str], forwarded: "Invocation | None") -> int:  # noqa: C901, PLR0912 - a case a command
    match arguments:
        # What the unit executes, and the plain form of the one command that is typed and timed most: neither has
        # an option, so neither pays for the option parser (32 of 75 ms).
        case ["run", record]:
            from gtrun.runner.run import run  # noqa: PLC0415

            return run(record)
        case ["probe"]:  # what `doctor` tries a profile out with: it is looked at, and stopped
            signal.pause()
            return Exit.DONE
        case ["wasi", order]:  # what runs a plugin that is a WebAssembly module, in its unit
            from gtrun.plugins.host import host  # noqa: PLC0415

            return host(order)
        case ["enter"]:
            from gtrun.runner.enter import enter  # noqa: PLC0415

            return enter()
        case ["closeout", record]:
            if _is_closed(record):
                return Exit.DONE
            from gtrun.runner.closeout import closeout  # noqa: PLC0415

            return closeout(record)
        case ["idle", record]:
            from gtrun.runner.idle import look  # noqa: PLC0415

            return look(record)
        case ["worker", name]:  # what ssh or sudo executes as an agent's account; not for people
            from gtrun.reach.worker import serve  # noqa: PLC0415

            return serve(name)
        case ["imports"]:
            from gtrun.cli.proof import prove  # noqa: PLC0415

            return prove()
        case ["dispatch", *typed]:
            with turn() as over:
                from gtrun.cli.dispatching import dispatch  # noqa: PLC0415
                from gtrun.cli.invocation import Invocation  # noqa: PLC0415

                if len(typed) == 2 and not any(word.startswith("-") for word in typed):
                    invocation = forwarded or Invocation.of(os.environ, arguments=arguments)
                    return dispatch(invocation, *typed, has_started_up=over)
            return _parsed(arguments, forwarded)
        case ["forwarded", payload] if forwarded is None:
            from gtrun.cli.forwarding import opened  # noqa: PLC0415

            invocation = opened(payload)
            return _answered(invocation.arguments, invocation)
        case _:
            return _parsed(arguments, forwarded)


def _parsed(arguments: Sequence[str], forwarded: "Invocation | None") -> int:
    from gtrun.cli.app import parse_and_run  # noqa: PLC0415

    return parse_and_run(arguments, forwarded)
