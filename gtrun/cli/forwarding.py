"""Commands of the claim account: here, or there by `gtrun.forward`; and the other end of that, `gtrun forwarded`."""

import contextlib
import os
import sys
from collections.abc import Callable

from gtrun.cli.invocation import Invocation
from gtrun.config import Fleet


def elsewhere(invocation: Invocation, fleet: Fleet) -> int | None:
    """None if the command belongs here; otherwise it has run where it does, and this is its exit code."""
    return run_there(invocation, fleet) if belongs_elsewhere(invocation, fleet) else None


def whose(invocation: Invocation, fleet: Fleet) -> str:
    """For "there is nothing": whose agents were asked, if the fleet's own are those of another configuration."""
    if not belongs_elsewhere(invocation, fleet):
        return ""
    return f"asked were the agents of {fleet.source} here; those of {fleet.claim.host}: ssh {fleet.claim.host} gtrun ps"


def belongs_elsewhere(invocation: Invocation, fleet: Fleet) -> bool:
    """Whether claims are made by another account or on another box. Raises ConfigError if it was sent here for that."""
    if fleet.claim.host is None:
        return False
    from gtrun.forward import disagreement, is_here  # noqa: PLC0415 - only a fleet with a claim host pays for it

    caller = invocation.caller()
    if is_here(fleet.claim, caller.name):
        return False
    if invocation.origin is not None:
        raise disagreement(fleet, invocation.origin, caller.name)
    return True


def run_there(invocation: Invocation, fleet: Fleet, *, starts: str | None = None, attached: bytes | None = None) -> int:
    """Have the command run where claims are made (see `gtrun.forward`), with its output on our own streams."""
    from gtrun import forward  # noqa: PLC0415

    caller, environment = invocation.caller(), invocation.environment
    return forward.run_there(fleet, caller, invocation.arguments, environment, _write, starts=starts, attached=attached)


def _write(number: int, data: bytes) -> None:
    stream = sys.stdout if number == 1 else sys.stderr
    if number == 1 and sys.stdout.isatty():  # data go to a program as they are, to a person's terminal escaped
        from gtrun.text import plain_lines  # noqa: PLC0415

        data = plain_lines(data.decode(errors="backslashreplace")).encode()
    stream.buffer.write(data)
    stream.flush()


def framed(payload: str, run: Callable[[], int]) -> int:
    """Run a forwarded command; whoever forwarded it can tell its output and its exit code from all else."""
    from gtrun.forward import begin_line, end_line, nonce_of  # noqa: PLC0415

    nonce = nonce_of(payload)
    if not nonce:
        return run()
    _print_on_both(begin_line(nonce))
    code = run()
    _print_on_both(end_line(nonce, code))
    return code


def _print_on_both(line: str) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # the connection is gone: there is nobody to tell
            stream.write(line)
            stream.flush()


def opened(payload: str) -> Invocation:
    """The invocation that was forwarded; its hatches take the place of those that the account's own login has set."""
    from gtrun.forward import HATCHES, received, unpack  # noqa: PLC0415

    order = unpack(payload)
    attached = None if order.attached is None else received(order.attached, sys.stdin.buffer)
    environment = {name: value for name, value in os.environ.items() if name not in HATCHES}
    return Invocation({**environment, **order.environment}, None, order.arguments, order.origin, attached)
