"""The last thing that a runner does: by execve(2) it becomes the agent program or the plugin, or says why it cannot."""

import os
import resource
import signal
import sys
from collections.abc import Mapping
from typing import NoReturn

from gtrun.errors import GtrunError
from gtrun.files import describe
from gtrun.model import ResolvedRun
from gtrun.names import RunId
from gtrun.program import Program, resolve

NOT_FOUND = 127
NOT_EXECUTABLE = 126
"""The exit codes that a shell has for it."""


def resolved_here(
    run: ResolvedRun, run_id: RunId, prompt_file: str, inherited: Mapping[str, str], secrets: Mapping[str, str]
) -> Program:
    """`resolve` with the stack limit of this very process."""
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0] % (1 << 64)  # -1 is no limit
    if run.plugin is not None:
        from gtrun.plugins import program as plugins  # noqa: PLC0415 - what no issue needs

        return plugins.resolve(run, run_id, inherited=inherited, stack=stack)
    return resolve(run, run_id, prompt_file, inherited=inherited, secrets=secrets, stack=stack)


def armed(program: Program, run: ResolvedRun, payload: bytes, record: int) -> Program:
    """An agent program as it is; for a plugin, with its bytes as they were checked (`gtrun.plugins.program`).

    Raises LaunchFailed if these are not they, OSError.
    """
    if run.plugin is None:
        return program
    from gtrun.plugins import program as plugins  # noqa: PLC0415 - what no issue needs

    return plugins.armed(program, run, payload, record)


def become(program: Program) -> NoReturn:
    """Execute the agent program. Raises OSError if the kernel does not take it."""
    if program.stdin is not None:
        _replace_stdin(program.stdin.encode())
    os.chdir(program.workdir)
    sys.stdout.flush()
    sys.stderr.flush()
    # Python ignores both from its start, and what is ignored stays so across execve(2)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execve(program.path, program.argv, program.environment)  # noqa: S606 - no shell is the point


def why_not(program: Program, error: OSError) -> str:
    """What kept us from becoming the program; execve(2) also says ENOENT for the interpreter in its first line."""
    if error.filename != program.path:
        return f"cannot prepare the start of {program.path}: {describe(error)}"
    if isinstance(error, FileNotFoundError) and os.path.exists(program.path):  # noqa: PTH110
        return f"cannot execute {program.path}: the interpreter that its first line names is not there"
    return f"cannot execute {program.path}: {error.strerror}"


def complained(error: GtrunError, code: int) -> int:
    """Say it in the journal; returns the code."""
    print(f"gtrun: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"gtrun: hint: {error.hint}", file=sys.stderr)
    return code


def _replace_stdin(data: bytes) -> None:
    """Standard input is an anonymous file with the prompt: no pipe that somebody has to fill, no name on the disk."""
    descriptor = os.memfd_create("prompt", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(descriptor, 0)
    os.close(descriptor)
