"""What a worker does as the agent's account: each operation takes one struct and returns a value that JSON carries."""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gtrun.account import Account
from gtrun.board.local import LocalBoard
from gtrun.errors import BoardUnavailable, GtrunError, LaunchFailed, ManagerSilent, NoManager, StateError
from gtrun.model import Ending, ResolvedRun, Result, Run
from gtrun.names import IssueKey, RunId, Token, UnitName, encode_path, is_plain_argument, is_task_unit
from gtrun.program import DEFAULT_PROMPT, expand_home, read_prompt, resolve
from gtrun.quota import Quota, QuotaFile
from gtrun.state import outbox, quota_file
from gtrun.state import record as records
from gtrun.state.record import Ended, Record, StopAsked
from gtrun.systemd import exitstatus, transient, units
from gtrun.systemd.bus import MANAGER, SLICE, Bus, BusError
from gtrun.systemd.units import Observed, UnitState

_NO_RUN = RunId("0" * 32)
_BOARD_WAIT = 5.0
_MANAGER = "/org/freedesktop/systemd1"


class Session:
    """The account that this process is, and its connection to the manager, opened when first used."""

    def __init__(self, account: Account) -> None:
        """Nothing is opened yet."""
        self.account = account
        self.prepared: Record | None = None
        self._bus: Bus | None = None

    @property
    def bus(self) -> Bus:
        """The account's user bus. Raises NoManager."""
        if self._bus is None:
            self._bus = Bus.of(self.account)
        return self._bus

    def use_private_bus(self) -> None:
        """Talk to the manager itself, whose bus may be gone, as while it shuts down. Raises NoManager."""
        if self._bus is None:
            self._bus = Bus.still_there(self.account)


class Patterns(msgspec.Struct, frozen=True):
    """Which units: glob patterns."""

    globs: list[str]


def list_units(session: Session, arguments: Patterns) -> list[UnitState]:
    """Every loaded unit whose name matches."""
    return units.list_units(session.bus, arguments.globs)


class LiveRun(msgspec.Struct, frozen=True, kw_only=True):
    """A live unit with what its record tells; `record` is None for a unit that gtrun did not start here."""

    unit: Observed
    record: Run | None


def live_runs(session: Session, arguments: Patterns) -> list[LiveRun]:
    """Every live unit whose name matches, with its record."""
    found = []
    for state in units.list_units(session.bus, arguments.globs):
        if not units.is_live(state) or not is_task_unit(state.name):
            continue
        try:
            seen = units.observe(session.bus, state)
        except BusError:
            continue  # collected since it was listed: not live any more
        found.append(LiveRun(unit=seen, record=_record_of(session, seen)))
    return found


def _record_of(session: Session, seen: Observed) -> Run | None:
    """The run that a unit is: by its invocation ID, or by its name while its runner has not written that yet.

    The newest first: it is open, or was closed a moment ago by the close-out that is still there.
    """
    for path in records.newest_first(session.account.state):
        try:
            run = records.read(path)
        except (StateError, FileNotFoundError):
            continue
        if run.resolved.unit == seen.state.name and run.run in {None, seen.run}:
            return run
    return None


class ToPrepare(msgspec.Struct, frozen=True):
    """A run whose paths are still as fleet.toml has them, and its prompt template's path if it has one.

    Without `keep` it is checked and nothing is written.
    """

    run: ResolvedRun
    prompt_path: str | None
    keep: bool


class Prepared(msgspec.Struct, frozen=True):
    """The run as it will happen: the argument list as of now, the standard input and the folder."""

    run: ResolvedRun
    program: str
    argv: list[str]
    stdin: str | None


def prepare(session: Session, arguments: ToPrepare) -> Prepared:
    """Resolve everything that the account's home and folders decide, check that it can be executed, write the record.

    The record stays locked until `start` or `discard`. Raises LaunchFailed with what is missing and where it was
    looked for, StateError if the record cannot be written.
    """
    home = session.account.home
    template = DEFAULT_PROMPT
    if arguments.prompt_path is not None:
        template = read_prompt(expand_home(arguments.prompt_path, home))
    run = msgspec.structs.replace(
        arguments.run,
        prompt=template,
        workdir=expand_home(arguments.run.workdir, home),
        path=tuple(expand_home(folder, home) for folder in arguments.run.path),
        environment={key: expand_home(value, home) for key, value in arguments.run.environment.items()},
    )
    prompt_file = records.prompt_file(records.open_folder(session.account.state) / f"{run.token}.jsonl")
    # what the unit inherits, which is not what the dispatcher has
    inherited = dict(entry.split("=", 1) for entry in session.bus.get(_MANAGER, MANAGER, "Environment", "as"))
    program = resolve(run, _NO_RUN, str(prompt_file), inherited)
    if arguments.keep:
        session.prepared = records.create(session.account.state, run)
    return Prepared(run, program.path, program.argv, program.stdin)


class ToStart(msgspec.Struct, frozen=True):
    """The command that starts gtrun in the unit; empty: this very installation."""

    gtrun: list[str]


class StartReply(msgspec.Struct, frozen=True):
    """The queued job and the unit's path, or what occupies the unit's name."""

    job: str = ""
    path: str = ""
    occupant: UnitState | None = None
    is_taken: bool = False


def this_installation() -> list[str]:
    """The command that runs this very gtrun: isolated, so that no variable and no folder of the agent changes it."""
    return [sys.executable, "-I", "-m", "gtrun"]


def start(session: Session, arguments: ToStart) -> StartReply:
    """Ask the manager for the unit of the prepared run.

    A name that is taken is an answer, not an error; the run stays prepared then. Raises LaunchFailed with the
    manager's reason.
    """
    record = session.prepared
    if record is None:
        raise StateError("no run was prepared")
    run = record.run.resolved
    command = arguments.gtrun or this_installation()
    if not os.access(command[0], os.X_OK):
        raise LaunchFailed(
            f"{session.account.name} cannot execute {command[0]}, by which its unit would run gtrun",
            hint="install gtrun where every agent account can read it, such as /opt/gtrun, "
            "or name such a path as `gtrun` of the rig",
        )
    bus = session.bus
    wanted = transient.properties(run, command, encode_path(str(record.path)))
    try:
        job = transient.start(bus, run.unit, wanted)
    except BusError as error:
        if transient.is_name_taken(error):
            return StartReply(occupant=units.occupant(bus, run.unit), is_taken=True)
        if error.is_silence:  # it may have been carried out, and then that run needs its record
            record.close()
            session.prepared = None
            raise ManagerSilent(
                f"the manager of {session.account.name} went away while it was asked for {run.unit}: {error.message}",
                hint="it may have been started: look with `gtrun live`, then settle it with `gtrun reconcile`",
            ) from error
        raise LaunchFailed(f"the manager of {session.account.name} refused {run.unit}: {error.message}") from error
    record.close()
    session.prepared = None
    return StartReply(job=job, path=str(bus.call("GetUnit", "s", run.unit)))


class Nothing(msgspec.Struct, frozen=True):
    """No arguments."""


def discard(session: Session, arguments: Nothing) -> None:  # noqa: ARG001 - the signature of every operation
    """Take back what `prepare` wrote."""
    if session.prepared is not None:
        session.prepared.discard()
        session.prepared = None


class Name(msgspec.Struct, frozen=True):
    """One unit, and how long to wait for it, in seconds."""

    unit: UnitName
    seconds: float


def wait_until_free(session: Session, arguments: Name) -> UnitState | None:
    """Wait until nothing occupies the name; returns what still does, with its file."""
    if units.wait_until_gone(session.bus, arguments.unit, deadline=time.monotonic() + arguments.seconds):
        return None
    left = units.occupant(session.bus, arguments.unit)
    return left and msgspec.structs.replace(left, file=units.file_of(session.bus, left))


class Job(msgspec.Struct, frozen=True):
    """A queued start: its job, its unit's path, how long to wait for it in seconds."""

    run: ResolvedRun
    job: str
    path: str
    seconds: float


class Launched(msgspec.Struct, frozen=True):
    """A run that was started; `ending` if it has ended by now. `not_in_force` are the limits the kernel ignores."""

    run: RunId | None
    ending: Ending | None = None
    not_in_force: tuple[str, ...] = ()


def await_start(session: Session, arguments: Job) -> Launched:
    """The start job's result, by signal.

    A job that failed is a failed launch only if the runner was never executed: a program that ran and failed at once
    is a run. Raises LaunchFailed with the manager's own reason, BusTimeout.
    """
    bus = session.bus
    result = transient.job_result(bus, arguments.job, deadline=time.monotonic() + arguments.seconds)
    run_id = units.invocation(bus, arguments.path)
    run = _by_token(session, arguments.run.token)
    if result == "done":
        seen = bus.get(arguments.path, b"org.freedesktop.systemd1.Service", "ControlGroup", "s")
        ignored = transient.limits_not_in_force(arguments.run.limits, str(seen)) if seen else []
        bus.call_unit(arguments.path, "Unref")
        return Launched(run_id, run.ending if run else None, tuple(ignored))
    if run is not None and run.begun_at is not None:
        return Launched(run_id, run.ending)
    service = b"org.freedesktop.systemd1.Service"
    status = int(bus.get(arguments.path, service, "ExecMainStatus", "i"))
    why = str(bus.get(arguments.path, service, "Result", "s"))
    detail = f"{why}, status {exitstatus.said(status)}" if status else why
    _end_unrun(session, arguments.run.token, detail)
    raise LaunchFailed(
        f"the manager of {session.account.name} could not execute {arguments.run.unit}: job {result}, {detail}",
        hint=f"its own words: journalctl --user -n 20 -u {arguments.run.unit}",
    )


def _by_token(session: Session, token: Token) -> Run | None:
    state = session.account.state
    for folder in (records.open_folder(state), records.closed_folder(state)):
        try:
            return records.read(folder / f"{token}.jsonl")
        except FileNotFoundError:
            continue
    return None


def _end_unrun(session: Session, token: Token, detail: str) -> None:
    """The record of a unit that was never executed, and whose close-out may not have been either, is history."""
    path = records.open_folder(session.account.state) / f"{token}.jsonl"
    try:
        with Record(path) as record:
            if record.run.ending is None:
                record.append(Ended(Ending(result=Result.FAILED, reason=f"not executed: {detail}"), time.time()))
            record.close_if_settled()
    except FileNotFoundError:
        return  # its close-out has closed it


class OfRun(msgspec.Struct, frozen=True):
    """One run of a unit."""

    unit: UnitName
    run: RunId | None


def await_end(session: Session, arguments: OfRun) -> None:
    """Wait until nothing of the run occupies the unit's name, however long that takes."""
    units.wait_until_gone(session.bus, arguments.unit, run=arguments.run, deadline=None)


class ByToken(msgspec.Struct, frozen=True):
    """One run record."""

    token: Token


def run_of(session: Session, arguments: ByToken) -> Run | None:
    """The run of one record."""
    return _by_token(session, arguments.token)


class OfIssue(msgspec.Struct, frozen=True):
    """One issue, or all."""

    issue: IssueKey | None


class Runs(msgspec.Struct, frozen=True):
    """Runs, oldest first, and the records that are damaged."""

    runs: list[Run]
    damaged: list[str]


def runs_of(session: Session, arguments: OfIssue) -> Runs:
    """Every run of an issue that this account has a record of."""
    runs: list[Run] = []
    damaged = []
    for path, run in records.runs(session.account.state, arguments.issue):
        if isinstance(run, Run):
            runs.append(run)
        else:
            damaged.append(str(path))
    return Runs(runs, damaged)


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
        records.append_with_lock(path, StopAsked(arguments.by))
    except FileNotFoundError:
        return _by_token(session, arguments.token)  # it has ended meanwhile
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
    return _by_token(session, arguments.token)


class Watch(msgspec.Struct, frozen=True):
    """A unit whose close-out is running."""

    unit: UnitName


def observe_ending(session: Session, arguments: Watch) -> Observed | None:
    """What the manager knows about a unit in its close-out, also while the manager shuts down. Raises NoManager."""
    session.use_private_bus()
    state = units.occupant(session.bus, arguments.unit)
    return None if state is None else units.observe(session.bus, state)


def read_quota(session: Session, arguments: Nothing) -> QuotaFile:  # noqa: ARG001
    """The account's quota state. A file that is not there says nothing."""
    return quota_file.read(session.account.state)


class ToSetQuota(msgspec.Struct, frozen=True):
    """What to write; None removes the file."""

    quota: Quota | None


def set_quota(session: Session, arguments: ToSetQuota) -> None:
    """Write or remove the account's quota state. Raises StateError."""
    quota_file.write(session.account.state, arguments.quota)


class ToReconcile(msgspec.Struct, frozen=True):
    """How long it may take, in seconds."""

    seconds: float


class Reconciled(msgspec.Struct, frozen=True):
    """The runs that turned out to be lost, the markers that were posted, and what is still in the way."""

    lost: list[Run]
    problems: list[str]
    owing: int


def reconcile(session: Session, arguments: ToReconcile) -> Reconciled:
    """Close out runs whose unit is gone without a close-out, then post what is owed.

    A run is lost only if the manager answers and nothing of that run occupies its unit's name: while the manager does
    not answer, nothing is decided. Without a manager at all there is no unit either, but the bus may be gone and the
    manager not, so its own socket is asked as well. Raises ManagerSilent.
    """
    deadline = time.monotonic() + arguments.seconds
    with contextlib.suppress(NoManager):
        session.use_private_bus()
    lost, problems = [], []
    for path in records.open_records(session.account.state):
        try:
            with Record(path) as record:
                run = record.run
                if run.ending is not None or _has_unit(session, run):
                    continue
                reason = "its unit is gone and no close-out was run" if run.begun_at else "it was never executed"
                record.append(Ended(Ending(result=Result.LOST, reason=reason), time.time()))
                lost.append(record.run)
        except (FileNotFoundError, records.CorruptRecord):
            continue  # closed meanwhile, or left to `flush`, which sets it aside
        except StateError as error:
            problems.append(error.message)
    problems += outbox.flush(session.account.state, open_board, deadline=deadline)
    problems = list(dict.fromkeys(problems))  # what cannot be opened was met twice
    return Reconciled(lost, problems, sum(1 for path in records.open_records(session.account.state) if _owes(path)))


class ToExamine(msgspec.Struct, frozen=True):
    """The board's path."""

    board: str


class Found(msgspec.Struct, frozen=True):
    """One thing that was looked at in the account, and how to mend it where that is needed."""

    what: str
    is_fine: bool
    mend: str = ""


def examine(session: Session, arguments: ToExamine) -> list[Found]:
    """Whether a run could start here: the manager, gtrun's own interpreter, the board, limits, drop-ins."""
    found = []
    version = str(session.bus.get(_MANAGER, MANAGER, "Version", "s"))
    found.append(Found(f"its user manager answers (systemd {version})", is_fine=True))
    command = this_installation()
    if os.access(command[0], os.X_OK) and all(map(is_plain_argument, command)):
        found.append(Found(f"it can execute {command[0]}", is_fine=True))
    else:
        mend = "install gtrun under a plain path that every agent account can read, such as /opt/gtrun"
        found.append(Found(f"its units cannot execute {command[0]}", is_fine=False, mend=mend))
    try:
        with LocalBoard.open(arguments.board, wait=_BOARD_WAIT):
            writable = os.access(arguments.board, os.W_OK)
            mend = "" if writable else f"put the account into the group of {arguments.board}, then restart its manager"
            found.append(Found(f"it can {'write' if writable else 'only read'} the board", writable, mend))
    except BoardUnavailable as error:
        found.append(Found(error.message, is_fine=False, mend=error.hint))
    controllers = transient.delegated_controllers(str(session.bus.get(_ROOT_SLICE, SLICE, "ControlGroup", "s")))
    missing = [name for name in ("memory", "pids", "cpu") if name not in controllers]
    if missing:
        mend = "harmless without [run.limits]; see Delegate= in systemd.resource-control(5)"
        found.append(Found(f"limits of {', '.join(missing)} are not in force here", is_fine=True, mend=mend))
    found += [
        Found(f"a drop-in changes its runs: {path}", is_fine=False, mend=f"remove it, or know what it does: {path}")
        for path in _drop_ins(session.account)
    ]
    return found


_ROOT_SLICE = "/org/freedesktop/systemd1/unit/_2d_2eslice"


def _drop_ins(account: Account) -> list[str]:
    """What the account or the administrator laid over every `task-*.service` (systemd.unit(5), drop-ins)."""
    own = (f"{account.home}/.config/systemd/user", f"{account.runtime}/systemd/user")
    places = (*own, "/etc/systemd/user", "/run/systemd/user")
    patterns = ("task-*service.d/*.conf", "service.d/*.conf")
    return [str(path) for place in places for pattern in patterns for path in sorted(Path(place).glob(pattern))]


def _owes(path: Path) -> bool:
    try:
        run = records.read(path)
    except (StateError, FileNotFoundError):
        return False
    return not set(run.owed) <= set(run.posted)


def _has_unit(session: Session, run: Run) -> bool:
    try:
        return units.occupant_of_run(session.bus, run.resolved.unit, run.run) is not None
    except NoManager:
        return False


def open_board(path: str) -> LocalBoard:
    """The board of a run, with a wait that a close-out can afford."""
    return LocalBoard.open(path, wait=_BOARD_WAIT)


BY_NAME: dict[str, Callable[[Session, Any], Any]] = {
    operation.__name__: operation
    for operation in (
        await_end, await_start, discard, examine, list_units, live_runs, observe_ending, prepare, read_quota, reconcile,
        run_of, runs_of, set_quota, start, stop, wait_until_free,
    )
}  # fmt: skip
