"""Looking: units, runs, records, and whether a run could start here at all."""

import contextlib
import grp
import os

import msgspec

from gtrun.account import Account, lingers
from gtrun.board.reference import open_board
from gtrun.errors import BoardUnavailable, GtrunError, LaunchFailed, NoManager, StateError
from gtrun.model import BoardRef, ResolvedRun, Run
from gtrun.names import IssueKey, Token, UnitName, is_plain_argument, is_run_unit
from gtrun.reach.operations import confinement
from gtrun.reach.operations.session import Nothing, Session, by_token
from gtrun.reach.operations.starting import ToPrepare, prepare
from gtrun.reach.route import this_installation
from gtrun.state import record as records
from gtrun.systemd import effects, transient, units
from gtrun.systemd.bus import MANAGER, OBJECT, SLICE, BusError
from gtrun.systemd.units import Observed, UnitState

_BOARD_WAIT = 5.0


class Patterns(msgspec.Struct, frozen=True):
    """Which units: glob patterns."""

    globs: list[str]


def list_units(session: Session, arguments: Patterns) -> list[UnitState]:
    """Every loaded unit whose name matches; none where the user's manager surely does not run: they went with it.

    Raises NoManager if there is no manager to be found and that is not sure.
    """
    try:
        bus = session.bus
    except NoManager:
        with contextlib.suppress(BusError):
            if units.user_manager_is_down(session.account.uid):
                return []
        raise
    return units.list_units(bus, arguments.globs)


class LiveRun(msgspec.Struct, frozen=True, kw_only=True):
    """A live unit with what its record tells; `record` is None for a unit that gtrun did not start here.

    `not_in_force` are the keys of limits and sandbox that the kernel does not hold, `drop_ins` what somebody laid over
    the unit.
    """

    unit: Observed
    record: Run | None
    not_in_force: list[str] = []
    drop_ins: list[str] = []


def live_runs(session: Session, arguments: Patterns) -> list[LiveRun]:
    """Every live unit whose name matches, with its record."""
    found = []
    for state in units.list_units(session.bus, arguments.globs):
        if not units.is_live(state) or not is_run_unit(state.name):
            continue
        try:
            seen = units.observe(session.bus, state)
        except BusError:
            continue  # collected since it was listed: not live any more
        record = _record_of(session, seen)
        if record is None and seen.run is None and units.occupant(session.bus, UnitName(seen.state.name)) is None:
            continue  # the same: systemd gives a unit that is gone the properties of one that never was
        ignored = confinement.not_in_force(session, record.resolved, seen.state.path) if record else []
        laid_over = confinement.drop_ins(session.bus, seen.state.path)
        found.append(LiveRun(unit=seen, record=record, not_in_force=ignored, drop_ins=laid_over))
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


class ByToken(msgspec.Struct, frozen=True):
    """One run record."""

    token: Token


def run_of(session: Session, arguments: ByToken) -> Run | None:
    """The run of one record."""
    return by_token(session, arguments.token)


class OfIssue(msgspec.Struct, frozen=True):
    """One issue, or all."""

    issue: IssueKey | None


class Runs(msgspec.Struct, frozen=True):
    """Runs, oldest first, and the records that are damaged."""

    runs: list[Run]
    damaged: list[str]


def _without_texts(run: Run) -> Run:
    """The run without what is long and nobody asks a history for: thousands of them are sent at once."""
    issue = msgspec.structs.replace(run.resolved.issue, body="")
    return msgspec.structs.replace(run, resolved=msgspec.structs.replace(run.resolved, issue=issue, prompt=""))


def runs_of(session: Session, arguments: OfIssue) -> Runs:
    """Every run of an issue that this account has a record of."""
    runs: list[Run] = []
    damaged = []
    for path, run in records.runs(session.account.state, arguments.issue):
        if isinstance(run, Run):
            runs.append(_without_texts(run))
        else:
            damaged.append(str(path))
    return Runs(runs, damaged)


def does_linger(session: Session, arguments: Nothing) -> bool:  # noqa: ARG001 - the signature of every operation
    """Whether the account's manager, which is there, outlives its last logout. Raises NoManager."""
    session.bus  # noqa: B018 - connects
    return lingers(session.account)


class Tokens(msgspec.Struct, frozen=True):
    """Some run records."""

    tokens: list[Token]


def runs_by_token(session: Session, arguments: Tokens) -> Runs:
    """The runs of those records that there are; `damaged` has the tokens of those that cannot be read."""
    runs: list[Run] = []
    damaged: list[str] = []
    for token in arguments.tokens:
        try:
            run = by_token(session, token)
        except StateError:
            damaged.append(token)
        else:
            runs += [] if run is None else [_without_texts(run)]
    return Runs(runs, damaged)


class ToExamine(msgspec.Struct, frozen=True):
    """The board, None if nobody has to ask it; and a run that the agent could be given, if it has a command."""

    board: BoardRef | None
    run: ResolvedRun | None
    prompt_path: str | None


class Found(msgspec.Struct, frozen=True):
    """One thing that was looked at in the account, and how to mend it where that is needed."""

    what: str
    is_fine: bool
    mend: str = ""


def examine(session: Session, arguments: ToExamine) -> list[Found]:
    """Whether a run could start here: manager, interpreter, program, prompt, folder, board, limits, drop-ins."""
    name, found = session.account.name, []
    if lingers(session.account):
        found.append(Found(f"{name} lingers: its runs outlive its logins", is_fine=True))
    else:
        what = f"{name} does not linger: its last logout ends its runs"
        found.append(Found(what, is_fine=False, mend=f"sudo loginctl enable-linger {name}"))
    try:
        version = str(session.bus.get(OBJECT, MANAGER, "Version", "s"))
        cgroup = str(session.bus.get(_ROOT_SLICE, SLICE, "ControlGroup", "s"))
        controllers = transient.delegated_controllers(cgroup)
    except NoManager as error:
        return [*found, Found(error.message, is_fine=False, mend=error.hint)]
    found.append(Found(f"its user manager answers (systemd {version})", is_fine=True))
    command = this_installation()
    if os.access(command[0], os.X_OK) and all(map(is_plain_argument, command)):
        found.append(Found(f"it can execute {command[0]}", is_fine=True))
    else:
        mend = "install gtrun under a plain path that every agent account can read, such as /opt/gtrun"
        found.append(Found(f"its units cannot execute {command[0]}", is_fine=False, mend=mend))
    if arguments.board is not None:
        found.append(_board(arguments.board))
    if arguments.run is not None:
        found.append(_program(session, arguments.run, arguments.prompt_path))
    found += _groups(session.account, cgroup)
    found += _delegation(controllers)
    if arguments.run is not None:
        found += _confinement(session, arguments.run)
    found += [
        Found(f"a drop-in changes its runs: {path}", is_fine=False, mend=f"remove it, or know what it does: {path}")
        for path in confinement.laid_over_runs(session)
    ]
    return found


def _board(ref: BoardRef) -> Found:
    """Whoever dispatches has this board."""
    try:
        with open_board(ref, wait=_BOARD_WAIT) as board:
            board.issue(IssueKey("1"))
            writable = os.access(ref.path, os.W_OK)
    except BoardUnavailable as error:
        what = f"{error.message}: what its runs have to say waits for `gtrun reconcile`"
        mend = f"on the board's box let the account reach and write {ref.path}; on another, reconcile by a timer"
        mend = error.hint if ref.github is not None else mend
        return Found(what, is_fine=False, mend=mend)
    if ref.github is not None:
        return Found("its token opens the board; whether it may comment is seen at the first marker", is_fine=True)
    mend = "" if writable else f"put the account into the group of {ref.path}, then restart its manager"
    return Found(f"it can {'write' if writable else 'only read'} the board", writable, mend)


def _program(session: Session, run: ResolvedRun, prompt_path: str | None) -> Found:
    """What `dispatch` checks before it starts anything."""
    try:
        program = prepare(session, ToPrepare(run, prompt_path, keep=False)).program
    except LaunchFailed as error:
        return Found(error.message, is_fine=False, mend=error.hint)
    return Found(f"its program is {program}", is_fine=True)


def _groups(account: Account, cgroup: str) -> list[Found]:
    """Groups that the account has joined since its manager was started: its units do not have them."""
    held = transient.groups_of_manager(cgroup)
    if held is None:
        return []
    joined = {*os.getgrouplist(account.name, account.gid)} - held - {account.gid}
    names = ", ".join(sorted(grp.getgrgid(gid).gr_name for gid in joined))
    mend = f"sudo systemctl restart user@{account.uid}.service, which ends what it runs"
    what = f"its user manager was started before {account.name} joined {names}: its units are not in that group"
    return [Found(what, is_fine=False, mend=mend)] if joined else []


def _delegation(controllers: list[str]) -> list[Found]:
    """Limits are in force only where the machine's manager delegates their controller to the user's."""
    missing = [name for name in ("memory", "pids", "cpu") if name not in controllers]
    return (
        [Found(f"a limit of {', '.join(missing)} would not be in force here (not delegated)", is_fine=True)]
        if missing
        else []
    )


_DELEGATE = (
    "[Service] Delegate=cpu io memory pids in /etc/systemd/system/user@.service.d/delegate.conf (systemd.unit(5)),"
    " then systemctl daemon-reload, and restart user@UID.service"
)


def _confinement(session: Session, wanted: ResolvedRun) -> list[Found]:
    """Whether limits, slice and sandbox of the profile are in force, by a unit that has them and does nothing."""
    try:
        sandbox = confinement.settled(wanted.sandbox, session.account.home)
        run = msgspec.structs.replace(wanted, sandbox=sandbox)
        if not transient.confinement(run.limits, run.slice, run.sandbox):
            return []
        ignored = confinement.tried_out(session, run)
    except GtrunError as error:
        return [Found(error.message, is_fine=False, mend=error.hint or "take it out of limits, slice and sandbox")]
    if not ignored:
        return [Found("the limits and the sandbox that it has are in force", is_fine=True)]
    by_reason: dict[str, list[str]] = {}
    for key in ignored:
        by_reason.setdefault(effects.why(key), []).append(key)
    return [_ignored(keys, reason) for reason, keys in by_reason.items()]


def _ignored(keys: list[str], reason: str) -> Found:
    named = ", ".join(keys)
    mend = _DELEGATE if reason == effects.NOT_DELEGATED else f"take {named} out; docs/sandbox.md says what holds where"
    return Found(f"not in force here: {named}: {reason}", is_fine=False, mend=mend)


_ROOT_SLICE = "/org/freedesktop/systemd1/unit/_2d_2eslice"
