"""Ending: stop a run, wait for its end, close out what nobody has, post what is owed."""

import contextlib
import os
import time

import msgspec

from gtrun.account import Account
from gtrun.board import Board, reference
from gtrun.errors import BoardUnavailable, GtrunError, NoManager, StateError
from gtrun.model import BoardRef, Run
from gtrun.names import RunId, Token, UnitName
from gtrun.reach.operations.lost import end_lost
from gtrun.reach.operations.session import OfRun, Session, by_token
from gtrun.state import outbox
from gtrun.state import record as records
from gtrun.state.darkening import note_quota
from gtrun.state.facts import FoundIdle, StopAsked
from gtrun.state.record import Record
from gtrun.systemd import units
from gtrun.systemd.bus import BusError
from gtrun.systemd.units import Observed

_BOARD_WAIT = 5.0
_RECORD_WAIT = 2.0  # seconds: a runner that works on something slow has the record meanwhile, and is to be stopped


def await_end(session: Session, arguments: OfRun) -> None:
    """Wait until nothing of the run occupies the unit's name, however long that takes."""
    units.wait_until_gone(session.bus, arguments.unit, run=arguments.run, deadline=None)


class ToStop(msgspec.Struct, frozen=True):
    """One unit, by its run so that no other is hit, who asks, and how long to wait in seconds."""

    unit: UnitName
    run: RunId | None
    token: Token
    by: str
    seconds: float


def stop(session: Session, arguments: ToStop) -> Run | None:
    """Note who asked, stop the unit's whole cgroup, and wait for its close-out; returns the run as it is then.

    Raises GtrunError if it is still there after that time.
    """
    path = records.open_folder(session.account.state) / f"{arguments.token}.jsonl"
    try:
        records.append_with_lock(path, StopAsked(arguments.by), seconds=_RECORD_WAIT)
    except FileNotFoundError:
        return by_token(session, arguments.token)  # it has ended meanwhile
    except StateError:
        pass  # who asked is then not known; the manager still knows that somebody did
    bus = session.bus
    if units.occupant_of_run(bus, arguments.unit, arguments.run) is not None:
        bus.call("StopUnit", "ss", arguments.unit, "replace")
        deadline = time.monotonic() + arguments.seconds
        if not units.wait_until_gone(bus, arguments.unit, run=arguments.run, deadline=deadline):
            raise GtrunError(
                f"{arguments.unit} of {session.account.name} is still stopping after {arguments.seconds:g} s",
                hint=f"look at it with: systemctl --user status {arguments.unit}",
            )
    return by_token(session, arguments.token)


class ToEndIdle(msgspec.Struct, frozen=True):
    """One unit, by its run so that no other is hit, that has done nothing for so many seconds."""

    unit: UnitName
    run: RunId | None
    token: Token
    seconds: float


def end_idle(session: Session, arguments: ToEndIdle) -> bool:
    """Note that the run is idle and ask for the stop of its unit; False if there is no such run to end any more.

    Nothing is stopped that somebody else is stopping, or that is in its close-out. That would have to wait for the
    record, so the name cannot be a successor's by the time the manager hears of it.
    """
    path = records.open_folder(session.account.state) / f"{arguments.token}.jsonl"
    try:
        with Record(path) as record:
            state = units.occupant_of_run(session.bus, arguments.unit, arguments.run)
            if record.run.ending is not None or record.run.stop_asked_by or state is None or state.active != "active":
                return False
            record.append(FoundIdle(arguments.seconds))
            session.bus.call("StopUnit", "ss", arguments.unit, "replace")
    except FileNotFoundError:
        return False
    return True


class Watch(msgspec.Struct, frozen=True):
    """A unit whose close-out is running."""

    unit: UnitName


def observe_ending(session: Session, arguments: Watch) -> Observed | None:
    """What the manager knows about a unit in its close-out, also while the manager shuts down. Raises NoManager."""
    session.use_private_bus()
    state = units.occupant(session.bus, arguments.unit)
    return None if state is None else units.observe(session.bus, state)


class ToReconcile(msgspec.Struct, frozen=True):
    """How long it may take, in seconds."""

    seconds: float


class Reconciled(msgspec.Struct, frozen=True):
    """The runs that turned out to be lost, what is in the way, how many markers were posted and are still owed.

    `unavailable` are those problems that are a board which cannot be opened from here.
    """

    lost: list[Run]
    problems: list[str]
    posted: int
    owing: int
    unavailable: list[str] = []


def reconcile(session: Session, arguments: ToReconcile) -> Reconciled:
    """Close out runs whose unit is gone without a close-out, forget those that never began, then post what is owed.

    A run is lost only if the manager answers and nothing of that run occupies its unit's name: while the manager does
    not answer, nothing is decided. Without a manager at all there is no unit either; but its bus may be gone and the
    manager not, so its own socket is asked as well, and that nobody is found here (in a container, or with another
    $XDG_RUNTIME_DIR) is no proof, so the machine's manager is. A record in use is that of somebody who lives, and is
    not waited for. Raises ManagerSilent.
    """
    deadline = time.monotonic() + arguments.seconds
    lost, problems = [], []
    try:
        session.use_private_bus()
    except NoManager as error:
        problems = _still_up(session.account, error)
    for path in records.open_records(session.account.state) if not problems else ():
        try:
            with Record(path, wait=False) as record:
                run = record.run
                if run.ending is not None or _has_unit(session, run):
                    continue
                if run.run is None:
                    record.discard()  # whoever prepared it died before the start, so there never was such a run
                    continue
                end_lost(session, record)
                lost.append(record.run)
        except (FileNotFoundError, records.CorruptRecord, records.RecordInUse):
            continue  # closed meanwhile, or left to `flush`, which sets it aside, or to whoever has it
        except StateError as error:
            problems.append(error.message)
    problems += _quotas_noted(session.account.state)
    problems += _noticed(session.account, deadline)
    before = _owed(session.account.state)
    unavailable: list[str] = []

    def opened(ref: BoardRef) -> Board:
        try:
            return open_board(ref)
        except BoardUnavailable as error:
            unavailable.append(error.message)
            raise

    problems += outbox.flush(session.account.state, opened, deadline=deadline)
    problems = list(dict.fromkeys(problems))  # what cannot be opened was met twice
    owing = _owed(session.account.state)
    _prune_worktrees(session.account, deadline)
    return Reconciled(lost, problems, max(0, before - owing), owing, unavailable)


def _quotas_noted(state: str) -> list[str]:
    """Note what runs told of their quota whose close-outs were killed in between; returns what went wrong."""
    problems = []
    for path in records.open_records(state):
        try:
            with Record(path, wait=False) as record:
                note_quota(record)
        except (FileNotFoundError, records.CorruptRecord, records.RecordInUse):
            continue  # `flush` sets the damaged aside; who else has it notes it
        except StateError as error:
            problems.append(error.message)
    return problems


def _noticed(account: Account, deadline: float) -> list[str]:
    """Give the notices of runs that have ended whose close-outs did not get to it; returns what went wrong."""
    from gtrun.state.noticing import give_owed  # noqa: PLC0415 - what no dispatch needs

    problems = []
    for path in records.open_records(account.state):
        try:
            with Record(path, wait=False) as record:
                give_owed(record, account, until=deadline)
        except (FileNotFoundError, records.CorruptRecord, records.RecordInUse):
            continue  # as for the quotas
        except StateError as error:
            problems.append(error.message)
    return problems


def _prune_worktrees(account: Account, deadline: float) -> None:
    from gtrun.clones import worktrees  # noqa: PLC0415 - what no dispatch needs
    from gtrun.git import git_of  # noqa: PLC0415

    worktrees.prune(account.state, git_of(account, os.environ, until=deadline))


def _still_up(account: Account, silence: NoManager) -> list[str]:
    """Why nothing can be decided about the runs of a manager that was not found; nothing if it is really down."""
    try:
        if units.user_manager_is_down(account.uid):
            return []
        why = f"user@{account.uid}.service is up all the same"
    except BusError as error:
        why = f"whether user@{account.uid}.service is up could not be asked ({error.message})"
    return [f"{silence.message}, and {why}: its open runs were left alone"]


def _owed(state: str) -> int:
    """How many markers the open records owe."""
    count = 0
    for path in records.open_records(state):
        with contextlib.suppress(StateError, FileNotFoundError):
            run = records.read(path)
            count += len(outbox.missing(run))
    return count


def _has_unit(session: Session, run: Run) -> bool:
    try:
        return units.occupant_of_run(session.bus, run.resolved.unit, run.run) is not None
    except NoManager:
        return False


def open_board(ref: BoardRef) -> Board:
    """The board of a run, with a wait that a close-out can afford. Raises BoardUnavailable."""
    return reference.open_board(ref, wait=_BOARD_WAIT)
