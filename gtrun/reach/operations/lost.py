"""Runs that nobody closed out: what can still be told of them, and what of theirs lies about."""

import time
from pathlib import Path

from gtrun import credentials
from gtrun.errors import GtrunError
from gtrun.model import Ending, Result, Run
from gtrun.plugins import folder as plugin_folder
from gtrun.reach.operations.session import Session
from gtrun.state.facts import Ended
from gtrun.state.record import Record
from gtrun.systemd import idle, journal
from gtrun.systemd.bus import MANAGER, OBJECT
from gtrun.systemd.journal import Remains


def end_lost(session: Session, record: Record) -> None:
    """Write down that the run is lost, with what the journal still knows. Raises StateError."""
    run = record.run
    left = journal.remains(run, session.account.uid)
    reason = [f"{_cause(session, run, left)}, and no close-out was run"]
    if left.last_line_at is not None:
        reason.append(f"its last line came at {_utc(left.last_line_at)}")
    if left.exited_at is not None:
        reason.append(f"its program had ended at {_utc(left.exited_at)}")
    ending = Ending(result=Result.LOST, reason="; ".join(reason), exit_code=left.exit_code, signal=left.signal)
    record.append(Ended(ending, time.time()))
    import shutil  # noqa: PLC0415 - with it come bz2 and lzma, which no dispatch needs

    for name in (credentials.folder(run.resolved), idle.folder(run.resolved), plugin_folder(run.resolved)):
        if name is not None:  # a manager that was killed has not removed it
            shutil.rmtree(Path(session.account.runtime, name), ignore_errors=True)


def _cause(session: Session, run: Run, left: Remains) -> str:
    """What took the unit away, as far as can be told. Never the text of a line: what it says is for its reader."""
    if left.is_of_another_boot:
        return "the machine went down"
    try:
        began = int(session.bus.get(OBJECT, MANAGER, "UserspaceTimestamp", "t")) / 1_000_000
    except GtrunError:
        return "its user manager is down"
    if began > (run.begun_at or run.resolved.dispatched_at):
        return "its user manager was killed"
    return "its unit is gone"


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
