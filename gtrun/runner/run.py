"""`gtrun run`: the unit's ExecStart. It makes sure that this is still work, says that it starts, and becomes the agent.

The order is the promise: bring gtrun itself up to date, sync the clones, resolve, ask the board whether this is still
work, make the started intent durable, post the marker, execve(2). Nothing of gtrun is left in the unit while the agent
program works. The exit codes for what ends here are those of a shell: 127 not found, 126 not executable.
"""

import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from gtrun import credentials
from gtrun.account import own
from gtrun.board import disposal
from gtrun.board.local import LocalBoard
from gtrun.errors import BoardUnavailable, GtrunError, LaunchFailed, StateError
from gtrun.files import describe
from gtrun.markers import Kind
from gtrun.model import ResolvedRun
from gtrun.names import RunId, decode_path
from gtrun.program import Program, resolve
from gtrun.runner import update as update_step
from gtrun.runner.update import this_release
from gtrun.state import outbox
from gtrun.state import record as records
from gtrun.state.record import Begun, Disposed, Fact, GaveUp, Noted, Owed, Record, WorksIn
from gtrun.text import plain

_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
_BOARD_WAIT = 3.0


def run(encoded_path: str) -> int:
    """Run the record's run. Returns only if nothing is executed: 0 if it is not work any more, else 126 or 127."""
    path = Path(decode_path(encoded_path))
    run_id = RunId(os.environ["INVOCATION_ID"])
    try:
        record = Record(path)
    except FileNotFoundError:
        raise _begun_already() from None
    with record:
        begun = Begun(run_id, time.time(), this_release())
        is_going_on = update_step.is_going_on(record, run_id)
        if not is_going_on:
            if record.run.begun_at is not None or record.run.ending is not None:
                raise _begun_already()
            record.append(begun)
    if not is_going_on and record.run.resolved.update:
        update_step.update(path, encoded_path, begun)
    resolved = record.run.resolved
    try:
        resolved = _sync_clones(path, resolved, run_id) if resolved.clones else resolved
    except LaunchFailed as error:
        with _reopened(path) as record:
            return _give_up(record, error, _NOT_EXECUTABLE)
    with _reopened(path) as record:
        try:
            stack = resource.getrlimit(resource.RLIMIT_STACK)[0] % (1 << 64)  # -1 is no limit
            secrets = credentials.gather(resolved, os.environ)
            prompt = str(records.prompt_file(path))
            program = resolve(resolved, run_id, prompt, inherited=os.environ, secrets=secrets, stack=stack)
        except LaunchFailed as error:
            return _give_up(record, error, _NOT_FOUND)
        gone = _disposed(record, resolved)
        if gone:
            record.append(Disposed(gone))
            print(f"gtrun: issue {resolved.issue.key} is not work any more ({gone}): nothing was started")
            return 0
        record.append(Owed(Kind.STARTED))
        try:
            outbox.post_owed(record, _open_board)
        except GtrunError as error:
            print(f"gtrun: the started marker is owed: {error.message}", file=sys.stderr)
    try:
        _execute(program, records.prompt_file(path))
    except OSError as error:
        with Record(path) as record:
            return _give_up(record, LaunchFailed(_why_not(program, error)), _NOT_EXECUTABLE)


def _reopened(path: Path) -> Record:
    try:
        return Record(path)
    except FileNotFoundError:
        raise StateError(f"the record of this run is gone: {path}") from None


def _sync_clones(path: Path, run: ResolvedRun, run_id: RunId) -> ResolvedRun:
    """Bring the run's clones to the remote's state; returns the run with its workdir where it is now.

    It may take long, so the record is not locked meanwhile: who stops the run writes into it. Raises LaunchFailed if
    the run has no clone to work in.
    """
    from gtrun.clones.sync import Sync  # noqa: PLC0415 - what a run without clones does without
    from gtrun.git import git_of  # noqa: PLC0415

    def append(fact: Fact) -> None:
        with _reopened(path) as record:
            record.append(fact)

    def note(text: str) -> None:
        append(Noted(text))
        print(f"gtrun: {plain(text)}", file=sys.stderr)

    git = git_of(own(os.environ), os.environ, run.path)
    state = str(path.parent.parent.parent)
    return Sync(run, run_id, state, git, note, lambda clone, folder: append(WorksIn(clone, folder))).all()


def _begun_already() -> StateError:
    """One record is one run: `systemctl restart`, or a drop-in with Restart=, would make it two."""
    return StateError("this run has begun before, and a unit that is started again is none: dispatch the issue instead")


def _open_board(path: str) -> LocalBoard:
    return LocalBoard.open(path, wait=_BOARD_WAIT)


def _give_up(record: Record, error: GtrunError, code: int) -> int:
    record.append(GaveUp(error.message))
    print(f"gtrun: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"gtrun: hint: {error.hint}", file=sys.stderr)
    return code


def _why_not(program: Program, error: OSError) -> str:
    """What kept us from becoming the program; execve(2) also says ENOENT for the interpreter in its first line."""
    if error.filename != program.path:
        return f"cannot prepare the start of {program.path}: {describe(error)}"
    if isinstance(error, FileNotFoundError) and os.path.exists(program.path):  # noqa: PTH110
        return f"cannot execute {program.path}: the interpreter that its first line names is not there"
    return f"cannot execute {program.path}: {error.strerror}"


def _disposed(record: Record, run: ResolvedRun) -> str | None:
    """Ask the board both questions, last of all: is the issue open, does it carry a terminal mark?

    A board that does not answer lets the run proceed, and the started marker says so.
    """
    try:
        with _open_board(run.board) as board:
            issue = board.issue(run.issue.key)
            if issue is None:
                return "it does not exist"
            return disposal(issue, board.comments(run.issue.key), run.terminal_labels, run.terminal_glyphs)
    except BoardUnavailable as error:
        note = f"whether this is still work could not be asked: {error.message}"
        record.append(Noted(note))
        print(f"gtrun: {note}", file=sys.stderr)
        return None


def _execute(program: Program, prompt_file: Path) -> NoReturn:
    """Become the agent program. Raises OSError if the kernel does not take it."""
    if program.wants_prompt_file:
        descriptor = os.open(prompt_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(program.prompt.encode())
    if program.stdin is not None:
        _replace_stdin(program.stdin.encode())
    os.chdir(program.workdir)
    sys.stdout.flush()
    sys.stderr.flush()
    # Python ignores both from its start, and what is ignored stays so across execve(2)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execve(program.path, program.argv, program.environment)  # noqa: S606 - no shell is the point


def _replace_stdin(data: bytes) -> None:
    """Standard input is an anonymous file with the prompt: no pipe that somebody has to fill, no name on the disk."""
    descriptor = os.memfd_create("prompt", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(descriptor, 0)
    os.close(descriptor)
