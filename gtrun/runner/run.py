"""`gtrun run`: what the unit executes. It makes sure that this is still work, says that it starts, becomes the agent.

The order is the promise: bring gtrun itself up to date, sync the clones, resolve, ask the board whether this is still
work, make the started intent durable, post the marker, execve(2). Nothing of gtrun is left in the unit while the agent
program works. The exit codes for what ends here are those of a shell: 127 not found, 126 not executable.

With a sandbox the unit has two steps. `gtrun run` is ExecStartPre, outside: it does all but the last thing, for which
`gtrun enter`, inside, is executed. That one ends with the exit code of the first where there is nothing to execute.
"""

import os
import sys
import time
from pathlib import Path

import msgspec

from gtrun import credentials
from gtrun.account import own
from gtrun.board import Board, disposal
from gtrun.board.reference import open_board
from gtrun.errors import BoardUnavailable, GtrunError, LaunchFailed, StateError, UsageError
from gtrun.markers import Kind
from gtrun.model import BoardRef, ResolvedRun
from gtrun.names import RunId, decode_path
from gtrun.program import Program
from gtrun.runner import handover
from gtrun.runner import update as update_step
from gtrun.runner.become import NOT_EXECUTABLE, NOT_FOUND, armed, become, complained, resolved_here, why_not
from gtrun.runner.handover import Handover
from gtrun.runner.update import this_release
from gtrun.state import outbox
from gtrun.state import record as records
from gtrun.state.facts import Begun, Disposed, Fact, GaveUp, Noted, Owed, WorksIn
from gtrun.state.record import Record
from gtrun.text import plain

_BOARD_WAIT = 6.0


class _Ready(msgspec.Struct, frozen=True):
    """How far the runner has come: the program to become, or the exit code with which the run ends instead."""

    run: ResolvedRun
    run_id: RunId
    program: Program | None = None
    secrets: dict[str, str] = {}
    payload: bytes = b""
    code: int = 0


def run(encoded_path: str) -> int:
    """Run the record's run. Returns only if nothing is executed: 0 if it is not work any more, else 126 or 127.

    With a sandbox it returns 0 once the rest is handed over.
    """
    path = Path(decode_path(encoded_path))
    prompt_file = records.prompt_file(path)
    ready = _prepare(path, encoded_path, prompt_file)
    is_sandboxed = ready.run.sandbox.is_asked_for
    if ready.program is not None:
        try:
            if ready.program.wants_prompt_file:
                _write_prompt(ready.program, prompt_file)
            if not is_sandboxed:
                with open(path, "r+b") as record_file:
                    become(armed(ready.program, ready.run, ready.payload, record_file.fileno()))
        except (OSError, LaunchFailed) as error:
            failure = error if isinstance(error, LaunchFailed) else LaunchFailed(why_not(ready.program, error))
            with Record(path) as record:
                code = _give_up(record, failure, NOT_EXECUTABLE)
            ready = msgspec.structs.replace(ready, program=None, code=code)
    if not is_sandboxed:
        return ready.code
    code_instead = ready.code if ready.program is None else None
    # opened anew: a lock on this one is nobody's who goes on holding it
    with open(path, "r+b") as record_file:
        handed = Handover(
            ready.run, ready.run_id, this_release(), str(prompt_file), ready.secrets, code_instead, ready.payload
        )
        handover.give(handed, record_file.fileno(), os.environ)
    return 0


def _prepare(path: Path, encoded_path: str, prompt_file: Path) -> _Ready:
    """All that comes before what is executed."""
    run_id = _invocation()
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
    if resolved.plugin is not None:
        return _prepare_plugin(path, resolved, run_id)
    return _prepare_program(path, resolved, run_id, prompt_file)


def _prepare_program(path: Path, resolved: ResolvedRun, run_id: RunId, prompt_file: Path) -> _Ready:
    """What comes before an agent program: its clones, whether its issue is still work, the started marker."""
    try:
        resolved = _sync_clones(path, resolved, run_id) if resolved.clones else resolved
    except LaunchFailed as error:
        with _reopened(path) as record:
            return _Ready(resolved, run_id, code=_give_up(record, error, NOT_EXECUTABLE))
    try:
        secrets = credentials.gather(resolved, os.environ)  # also by commands, which may take long: see _sync_clones
        program = resolved_here(resolved, run_id, str(prompt_file), os.environ, secrets)
    except LaunchFailed as error:
        with _reopened(path) as record:
            return _Ready(resolved, run_id, code=_give_up(record, error, NOT_FOUND))
    with _reopened(path) as record:
        gone = _disposed(record, resolved)
        if gone:
            record.append(Disposed(gone))
            print(f"gtrun: issue {resolved.issue.key} is not work any more ({gone}): nothing was started")
            return _Ready(resolved, run_id)
        record.append(Owed(Kind.STARTED))
        try:
            for problem in outbox.post_owed(record, _open_board):
                print(f"gtrun: {problem}", file=sys.stderr)
        except GtrunError as error:
            print(f"gtrun: the started marker is owed: {error.message}", file=sys.stderr)
        return _Ready(resolved, run_id, program, secrets)


def _prepare_plugin(path: Path, run: ResolvedRun, run_id: RunId) -> _Ready:
    """What comes before a plugin: no board has to be asked about it, and none is told."""
    try:
        payload = records.read_payload(path)
        return _Ready(run, run_id, resolved_here(run, run_id, "", os.environ, {}), payload=payload)
    except (LaunchFailed, StateError) as error:
        with _reopened(path) as record:
            return _Ready(run, run_id, code=_give_up(record, error, NOT_EXECUTABLE))


def _invocation() -> RunId:
    try:
        return RunId(os.environ["INVOCATION_ID"])
    except KeyError:
        raise UsageError(
            "`gtrun run` is what a unit of systemd's executes: there is no $INVOCATION_ID",
            hint="start a run with: gtrun dispatch AGENT ISSUE",
        ) from None


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


def _open_board(ref: BoardRef) -> Board:
    return open_board(ref, wait=_BOARD_WAIT)


def _give_up(record: Record, error: GtrunError, code: int) -> int:
    record.append(GaveUp(error.message))
    return complained(error, code)


def _disposed(record: Record, run: ResolvedRun) -> str | None:
    """Ask the board both questions, last of all: is the issue open, does it carry a terminal mark?

    A board that does not answer lets the run proceed, and the started marker says so.
    """
    try:
        with _open_board(run.board_ref) as board:
            issue = board.issue(run.issue.key)
            if issue is None:
                return "it does not exist"
            labels, glyphs = run.terminal_labels, run.terminal_glyphs
            # what is over by its state or a label is that also if its comments cannot be had
            return disposal(issue, (), labels, glyphs) or disposal(issue, board.comments(run.issue.key), labels, glyphs)
    except BoardUnavailable as error:
        note = f"whether this is still work could not be asked: {error.message}"
        record.append(Noted(note))
        print(f"gtrun: {note}", file=sys.stderr)
        return None


def _write_prompt(program: Program, prompt_file: Path) -> None:
    descriptor = os.open(prompt_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(program.prompt.encode())
