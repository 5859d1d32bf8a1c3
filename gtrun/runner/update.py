"""A run's first step, and what becomes of its close-out: which release executes them.

The unit's command lines name the release that dispatched. The runner may go on in a newer one, once: that it does is a
fact in the run record, tied to the unit's invocation, before the newer one is executed. The close-out then is given to
that release too, so that no run is the work of two.
"""

import contextlib
import os
import sys
from pathlib import Path
from typing import NoReturn

from gtrun.account import own
from gtrun.errors import GtrunError, StateError
from gtrun.files import describe
from gtrun.names import RunId
from gtrun.release import installation
from gtrun.state import record as records
from gtrun.state.facts import Begun, HandedOver, Noted, Updated
from gtrun.state.record import Record, append_with_lock
from gtrun.systemd import entry
from gtrun.systemd.kinds import Kind


def this_release() -> str:
    """The folder of the release that this process executes, as the run record has it; empty for none."""
    folder = installation.this_folder()
    return str(folder) if folder else ""


def is_going_on(record: Record, run_id: RunId) -> bool:
    """Whether this process was executed by the run's own first step: then it has not begun twice.

    What comes after the step leaves a fact: whoever executes the runner again later is somebody else.
    """
    run, mine = record.run, this_release()
    is_over = run.owed or run.ending or record.gave_up or record.disposed
    return bool(mine) and run.release == mine and run.run == run_id == record.updated_in and not is_over


def update(path: Path, encoded_path: str, begun: Begun) -> None:
    """The first step: go on in the newest release; returns if that is this one, or if it is not to be had.

    Then the started marker says why. The record is not locked meanwhile, as a remote may take its time.
    """
    mine = begun.release
    if not mine:
        _note(path, begun, "this gtrun is not installed from a git checkout", "not-a-checkout")
        return
    from gtrun.release.update import NotUpdated, newest  # noqa: PLC0415 - what few need

    try:
        release = newest(installation.read(Path(mine)), environment=os.environ, in_use=_in_use)
    except NotUpdated as error:
        _note(path, begun, error.said, error.reason, error.behind)
        return
    except StateError as error:
        _note(path, begun, error.message, "failed")
        return
    if str(release.folder) == mine:
        return
    append_with_lock(path, Updated(begun.run, str(release.folder)))
    try:
        _execute(release.folder, "run", encoded_path)
    except OSError as error:
        append_with_lock(path, Updated(begun.run, mine))
        _note(path, begun, describe(error), "failed")


def go_on_inside(release: str) -> None:
    """Inside a sandbox: become the release that the runner ended up in; returns if this is it, or it is not visible."""
    if release not in {"", this_release()}:
        with contextlib.suppress(OSError, StateError):
            if installation.is_release(Path(release)):
                _execute(Path(release), "enter")


def hand_over(record: Record, encoded_path: str) -> None:
    """Have the run closed out by the release that it ended up in, if that is another one and still there.

    Only once: if that one fails, the unit's second close-out is this release's.
    """
    wanted, run_id = record.run.release, record.run.run
    is_done = record.run.ending is not None or record.handed_over_in == run_id
    if run_id is None or run_id != os.environ["INVOCATION_ID"] or wanted in {"", this_release()} or is_done:
        return
    why = "it is gone"
    try:
        if installation.is_release(Path(wanted)):
            record.append(HandedOver(run_id))
            _execute(Path(wanted), "closeout", encoded_path)
    except OSError as error:
        why = describe(error)
    except StateError as error:
        why = error.message
    print(f"gtrun: closed out by another release than {wanted}, which this run was: {why}", file=sys.stderr)


def _execute(release: Path, *arguments: str) -> NoReturn:
    """Become that release's runner or close-out. Raises OSError."""
    sys.stdout.flush()
    sys.stderr.flush()
    program = str(installation.program_of(release))
    os.execve(program, [program, *arguments], os.environ)  # noqa: S606 - no shell is the point


def _note(path: Path, begun: Begun, why: str, reason: str, behind: int | None = None) -> None:
    """Say in the journal and on the issue that the run goes on with the code that it has."""
    text = f"not updated: {why}"
    run = append_with_lock(path, Noted(text))
    entry.write(
        Kind.NOT_UPDATED, text, GTRUN_UPDATE=reason, GTRUN_BEHIND="" if behind is None else str(behind),
        GTRUN_RUN=begun.run, GTRUN_ISSUE=run.resolved.issue.key, GTRUN_AGENT=run.resolved.agent,
    )  # fmt: skip


def _in_use() -> set[str] | None:
    """The releases that this account's unsettled runs need; None if one of them cannot be told."""
    found = set()
    try:
        for path in records.open_records(own(os.environ).state):
            run = records.read(path)
            found |= {run.begun_in, run.release}
    except (GtrunError, FileNotFoundError):
        return None
    return found - {""}
