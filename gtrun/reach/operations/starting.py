"""Starting a run: check and record it, ask for its unit, hear what came of it."""

import contextlib
import os
import time

import msgspec

from gtrun import credentials
from gtrun.errors import LaunchFailed, ManagerSilent, StateError
from gtrun.model import Ending, Notice, Notify, ResolvedRun, Result
from gtrun.names import RunId, Token, encode_path
from gtrun.plugins import folder as plugin_folder
from gtrun.program import DEFAULT_PROMPT, expand_home, expand_program, read_prompt, resolve
from gtrun.reach.operations import confinement
from gtrun.reach.operations.session import Name, Nothing, Session, by_token
from gtrun.reach.route import this_installation
from gtrun.release.installation import pinned
from gtrun.state import record as records
from gtrun.state.facts import Begun, Ended, Noticed
from gtrun.state.record import Record, RecordInUse
from gtrun.systemd import exitstatus, idle, transient, units
from gtrun.systemd.bus import MANAGER, OBJECT, BusError, BusTimeout
from gtrun.systemd.units import UnitState, version_number

_NO_RUN = RunId("0" * 32)
_PREPARING = 10.0
_CREDENTIALS_HINT = (
    "its manager could not load or decrypt a credential: was it encrypted on this box and for this account, and is the"
    " manager in the group that may read it (a running one does not learn of a new group)?"
)


class ToPrepare(msgspec.Struct, frozen=True):
    """A run whose paths are still as fleet.toml has them, and its prompt template's path if it has one.

    Without `keep` it is checked and nothing is written. `payload` has the bytes of a plugin.
    """

    run: ResolvedRun
    prompt_path: str | None
    keep: bool
    payload: bytes = b""


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
    template = ""
    if arguments.run.plugin is None:
        path = arguments.prompt_path
        template = DEFAULT_PROMPT if path is None else read_prompt(expand_home(path, home))
    run = msgspec.structs.replace(
        arguments.run,
        prompt=template,
        command=expand_program(arguments.run.command, home),
        workdir=expand_home(arguments.run.workdir, home),
        path=tuple(expand_home(folder, home) for folder in arguments.run.path),
        clones=tuple(expand_home(clone, home) for clone in arguments.run.clones),
        environment={key: expand_home(value, home) for key, value in arguments.run.environment.items()},
        credentials=credentials.expanded(arguments.run.credentials, home),
        sandbox=confinement.settled(arguments.run.sandbox, home),
        notify=Notify(command=expand_program(arguments.run.notify.command, home), timeout=arguments.run.notify.timeout),
    )
    if run.plugin is not None:
        from gtrun.plugins import program as plugins  # noqa: PLC0415 - what no issue needs

        run = plugins.settled(run, session.account, arguments.payload)
    if arguments.keep and run.clones:
        sandbox = confinement.with_worktrees(run.sandbox, session.account.state)
        run = msgspec.structs.replace(run, sandbox=sandbox)
    prompt_file = records.prompt_file(records.open_folder(session.account.state) / f"{run.token}.jsonl")
    # what the unit inherits, which is not what the dispatcher has
    inherited = dict(entry.split("=", 1) for entry in session.bus.get(OBJECT, MANAGER, "Environment", "as"))
    stack = int(session.bus.get(OBJECT, MANAGER, "DefaultLimitSTACKSoft", "t"))
    systemd = version_number(str(session.bus.get(OBJECT, MANAGER, "Version", "s"))) if run.credentials else 0
    secrets = credentials.check(run, systemd=systemd)
    if run.plugin is None:
        program = resolve(run, _NO_RUN, str(prompt_file), inherited=inherited, secrets=secrets, stack=stack)
    else:
        program = plugins.resolve(run, _NO_RUN, inherited=inherited, stack=stack)
    for what, path in (("the program", program.path), ("the workdir", program.workdir)):
        confinement.refuse_hidden(run.sandbox, what, path)
    if arguments.keep:
        session.bus.listen("JobRemoved")  # not in `start`, which happens under the claim lock
        session.prepared = records.create(session.account.state, run)
        if run.plugin is not None:
            records.keep_payload(session.prepared, arguments.payload)
    return Prepared(run, program.path, program.argv, program.stdin)


def discard(session: Session, arguments: Nothing) -> None:  # noqa: ARG001 - the signature of every operation
    """Take back what `prepare` wrote."""
    if session.prepared is not None:
        session.prepared.discard()
        session.prepared = None


class ToStart(msgspec.Struct, frozen=True):
    """The command that starts gtrun in the unit; empty: this very installation."""

    gtrun: list[str]


class StartReply(msgspec.Struct, frozen=True):
    """The queued job and the unit's path, or what occupies the unit's name."""

    job: str = ""
    path: str = ""
    occupant: UnitState | None = None
    is_taken: bool = False


def runtime_folders(run: ResolvedRun) -> list[str]:
    """The folders that a unit has below the account's runtime folder."""
    folders = (credentials.folder(run), idle.folder(run), plugin_folder(run))
    return [folder for folder in folders if folder is not None]


def start(session: Session, arguments: ToStart) -> StartReply:
    """Ask the manager for the unit of the prepared run.

    A name that is taken is an answer, not an error; the run stays prepared then. Raises LaunchFailed with the
    manager's reason.
    """
    record = session.prepared
    if record is None:
        raise StateError("no run was prepared")
    run = record.run.resolved
    # never by way of a link that an update turns while the run lives
    command = [pinned(arguments.gtrun[0]), *arguments.gtrun[1:]] if arguments.gtrun else this_installation()
    if not os.access(command[0], os.X_OK):
        raise LaunchFailed(
            f"{session.account.name} cannot execute {command[0]}, by which its unit would run gtrun",
            hint="install gtrun where every agent account can read it, such as /opt/gtrun, "
            "or name such a path as `gtrun` of the rig",
        )
    for place in (command[0], os.path.realpath(command[0])):
        confinement.refuse_hidden(run.sandbox, "gtrun itself", place)
    path = encode_path(str(record.path))
    bus = session.bus
    wanted = transient.properties(run, command, path, folders=runtime_folders(run))
    try:
        job = transient.start(bus, run.unit, wanted, idle.units(run, command, path))
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
    return StartReply(job=job, path=units.object_path(run.unit))


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
    """A run that was started; `ending` if it has ended by now.

    `not_in_force` are the keys of limits and sandbox that the kernel does not hold, `drop_ins` what somebody laid over
    the unit. With `is_preparing` the runner is still at work outside of the sandbox, which nobody has seen yet.
    """

    run: RunId | None
    ending: Ending | None = None
    not_in_force: tuple[str, ...] = ()
    drop_ins: tuple[str, ...] = ()
    is_preparing: bool = False


def await_start(session: Session, arguments: Job) -> Launched:
    """The start job's result, by signal.

    A job that failed is a failed launch only if the runner was never executed: a program that ran and failed at once
    is a run. Raises LaunchFailed with the manager's own reason, BusTimeout.
    """
    bus = session.bus
    result = _job_result(session, arguments)
    run_id = units.invocation(bus, arguments.path)
    run = by_token(session, arguments.run.token)
    if result is None:
        laid_over = confinement.drop_ins(bus, arguments.path)
        bus.call_unit(arguments.path, "Unref")
        return Launched(run_id, drop_ins=tuple(laid_over), is_preparing=True)
    if result == "done":
        if run_id is not None:
            _note_execution(session, arguments.run.token, run_id)
        ignored = confinement.not_in_force(session, arguments.run, arguments.path)
        laid_over = confinement.drop_ins(bus, arguments.path)
        bus.call_unit(arguments.path, "Unref")
        return Launched(run_id, run.ending if run else None, tuple(ignored), tuple(laid_over))
    if run is not None and run.begun_at is not None:
        return Launched(run_id, run.ending)
    service = b"org.freedesktop.systemd1.Service"
    status = int(bus.get(arguments.path, service, "ExecMainStatus", "i"))
    why = str(bus.get(arguments.path, service, "Result", "s"))
    detail = f"{why}, status {exitstatus.said(status)}" if status else why
    _end_unrun(session, arguments.run.token, detail)
    raise LaunchFailed(
        f"the manager of {session.account.name} could not execute {arguments.run.unit}: job {result}, {detail}",
        hint=_CREDENTIALS_HINT
        if status == exitstatus.CREDENTIALS
        else f"its own words: journalctl --user -n 20 -u {arguments.run.unit}",
    )


def _note_execution(session: Session, token: Token, run: RunId) -> None:
    """That the manager has executed the runner, which will say so itself once its interpreter is up.

    If both end before that, as with the manager, nothing else tells this run from one that was only prepared.
    """
    path = records.open_folder(session.account.state) / f"{token}.jsonl"
    with contextlib.suppress(FileNotFoundError, RecordInUse), Record(path, wait=False) as record:  # then it is up
        if record.run.run is None:
            record.append(Begun(run, None))


def _job_result(session: Session, arguments: Job) -> str | None:
    """How the start job ended; None while the runner is at work outside of the sandbox: nobody waits for a sync."""
    deadline = time.monotonic() + arguments.seconds
    if arguments.run.sandbox.is_asked_for:
        with contextlib.suppress(BusTimeout):
            return transient.job_result(session.bus, arguments.job, deadline=time.monotonic() + _PREPARING)
        run = by_token(session, arguments.run.token)
        if run is not None and run.begun_at is not None:
            return None
    return transient.job_result(session.bus, arguments.job, deadline=deadline)


def _end_unrun(session: Session, token: Token, detail: str) -> None:
    """The record of a unit that was never executed, and whose close-out may not have been either, is history."""
    path = records.open_folder(session.account.state) / f"{token}.jsonl"
    try:
        with Record(path) as record:
            if record.run.ending is None:
                ending = Ending(result=Result.FAILED, reason=f"not executed: {detail}")
                record.append(Ended(ending, time.time()), Noticed(Notice.RUN_ENDED))  # the dispatch itself tells it
            record.close_if_settled()
    except FileNotFoundError:
        return  # its close-out has closed it
