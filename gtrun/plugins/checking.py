"""Checking a module in a process of its own: a file can be made so that compiling it takes all memory, or a day.

Whoever dispatches waits for the answer, and no limit of any unit holds here. What ends the child, it or the compiler's
own fault, is a refusal like any other.
"""

import os
import resource
import select
import signal
from typing import NoReturn

import msgspec

from gtrun.errors import LaunchFailed
from gtrun.plugins import wasi

_MEMORY = 2 << 30  # bytes; compilers' modules take 30 times their size, and 16 MiB of them is the most
_CPU = 10, 1 << 19  # seconds for any, and bytes for each one more
_WAIT = 15.0, 1 << 18  # the same of a box that is busy: less than a dispatcher waits (gtrun.asked)


class _Refusal(msgspec.Struct):
    """What is wrong with a module; nothing, if it is empty."""

    message: str = ""
    hint: str = ""


def check(data: bytes, *, memory: int = _MEMORY) -> None:
    """Raises LaunchFailed for what is no module that can be run here, and for one that takes too much to compile."""
    cpu = _CPU[0] + len(data) // _CPU[1]
    reading, writing = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        _tell(data, writing, cpu, memory)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        is_over = False
        try:
            is_over = bool(select.select([answer], [], [], _WAIT[0] + len(data) / _WAIT[1])[0])
        finally:  # also when we are interrupted
            if not is_over:
                os.kill(child, signal.SIGKILL)  # not reaped yet, so nobody else has its number
            said, code = answer.read(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if said:
        refusal = msgspec.json.decode(said, type=_Refusal)
        if refusal.message:
            raise LaunchFailed(refusal.message, hint=refusal.hint)
    elif -code in {signal.SIGKILL, signal.SIGXCPU}:
        raise LaunchFailed(f"the plugin takes too long to compile: more than {cpu} s")
    else:
        raise LaunchFailed(f"the plugin takes more than {memory >> 20} MiB of memory to compile (exit code {code})")


def _tell(data: bytes, writing: int, cpu: int, memory: int) -> NoReturn:
    """The child's life."""
    code = 1
    try:
        for what, most in ((resource.RLIMIT_CPU, cpu), (resource.RLIMIT_DATA, memory), (resource.RLIMIT_CORE, 0)):
            hard = resource.getrlimit(what)[1]
            resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), 2)  # where the compiler says why it aborts
        refusal = _Refusal()
        try:
            wasi.check(data)
        except LaunchFailed as error:
            refusal = _Refusal(error.message, error.hint)
        os.write(writing, msgspec.json.encode(refusal))
        code = 0
    finally:
        os._exit(code)
