"""What a run has printed, as its account reads it in the journal."""

import msgspec

from gtrun.model import Run
from gtrun.reach.operations.session import Session
from gtrun.systemd import journal


class ToRead(msgspec.Struct, frozen=True, kw_only=True):
    """A run's lines: only the `last` few, or those after a cursor of the journal's."""

    run: Run
    last: int | None = None
    cursor: str = ""


class Printed(msgspec.Struct, frozen=True, kw_only=True):
    """Lines, escaped; the cursor behind them; how many the journal dropped."""

    lines: list[str]
    cursor: str = ""
    suppressed: int = 0


def printed(session: Session, arguments: ToRead) -> Printed:
    """What the run has printed by now."""
    uid = session.account.uid
    lines, cursor = journal.since(arguments.run, uid, arguments.cursor, last=arguments.last)
    return Printed(lines=lines, cursor=cursor, suppressed=journal.suppressed(arguments.run, uid))


def printed_since(session: Session, arguments: ToRead) -> Printed:
    """What the run has printed after the cursor."""
    lines, cursor = journal.since(arguments.run, session.account.uid, arguments.cursor)
    return Printed(lines=lines, cursor=cursor)


def await_print(session: Session, arguments: ToRead) -> Printed:
    """Wait until the run prints something after the cursor, however long that takes."""
    journal.await_line(arguments.run, session.account.uid, arguments.cursor)
    return printed_since(session, arguments)
