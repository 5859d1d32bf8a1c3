"""Dispatch one issue to one agent: the protocol.

1.  Board guard (13): is the issue work? A board that does not answer lets the run proceed.
2.  Quota guard (9): its place is between the two.
3.  Duplicate guard (11): is a unit of this issue live on this agent?
4.  The attempt is durable in the ledger, with what the guards said.
5.  The run record is durable in the agent's account: all that runner and close-out need, and room for the truth.
6.  The fleet claim (14): its lock is to be held from before a probe of every agent until step 7 is done.
7.  StartTransientUnit of `task-<issue>.service`. The name is the mutex: if it is taken, a live unit is a refusal
    (11), and anything else gets a short while to go away, then is named as what it is (1).
8.  The start job's result, by signal: what could not be executed is a failed launch (1); the rest is a run.
9.  The outcome is in the ledger.
"""

import os
import time
from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from gtrun import alive
from gtrun.account import Account, lingers, named
from gtrun.board.local import LocalBoard
from gtrun.config import Agent, Fleet
from gtrun.errors import BoardUnavailable, ConfigError, GtrunError, LaunchFailed, ManagerSilent, Refused, StateError
from gtrun.exits import Exit
from gtrun.guards import ORDER, Open, Question, Refuse, duplicate
from gtrun.guards.verdict import BoardView
from gtrun.model import Issue, ResolvedRun
from gtrun.names import IssueKey, Token, UnitName, duplicate_number, identifier, unit_name, unit_names
from gtrun.reach import Worker
from gtrun.reach import operations as at_agent
from gtrun.reach.operations import Launched, Prepared
from gtrun.state.ledger import Attempt, Ledger
from gtrun.systemd.units import UnitState, is_live

_BOARD_WAIT = 3.0
_NAME_WAIT = 2.0
_JOB_WAIT = 90.0

Say = Callable[[str], None]
"""Where warnings go: one line each."""


class Request(msgspec.Struct, frozen=True):
    """Who wants which issue run by which agent. `environment` holds the hatches (DISPATCH_…, GTRUN_BACKEND)."""

    target: str
    issue: IssueKey
    caller: Account
    environment: Mapping[str, str]


class Started(msgspec.Struct, frozen=True):
    """A run that the manager has started. `launched.ending` is set if it has ended already."""

    run: ResolvedRun
    launched: Launched


def dispatch(fleet: Fleet, request: Request, worker: Worker, say: Say) -> Started:
    """Carry the protocol out, with a worker that is nobody yet.

    Raises Refused (9, 11, 13, 14), LaunchFailed (1), NoManager (69), ConfigError (78), StateError (1): in each nothing
    of ours is left running. ManagerSilent (69) says that it may have been started.
    """
    agent, account = dispatchable(fleet, request)
    worker.act_as(account)
    question, issue = _question(fleet, request, worker)
    attempt = Attempt(
        token=Token(os.urandom(16).hex()), at=time.time(), by=request.caller.name, dispatcher=alive.this_process(),
        issue=request.issue, agent=agent.name, account=account.name, unit=unit_name(request.issue),
    )  # fmt: skip
    with Ledger(request.caller.state) as ledger:
        if ledger.moved_aside:
            say(f"the ledger was damaged: its bytes are kept in {ledger.moved_aside}, and a new one was begun")
        verdicts, refusal = _ask_guards(question, say)
        attempt = replace(attempt, verdicts=tuple(verdicts))
        if refusal is not None:
            ledger.begin(replace(attempt, outcome="refused", code=refusal.code, reason=refusal.reason))
            raise _refused(refusal)
        _warn_of_linger(account, say)
        run = resolved(fleet, agent, request, attempt.token, issue(), _free_name(question))
        ledger.begin(replace(attempt, unit=run.unit))
        try:
            started = _start(fleet, agent, question, worker, run)
        except ManagerSilent:
            raise  # it may have been started: the attempt stays without an outcome until somebody has looked
        except KeyboardInterrupt:
            raise GtrunError(
                f"interrupted: {run.unit} may have been started on {agent.name}",
                hint=f"ask: gtrun live {run.issue.key}",
                code=Exit.INTERRUPTED,
            ) from None
        except GtrunError as error:
            what = "refused" if isinstance(error, Refused) else "failed"
            ledger.decide(run.token, what, code=error.code, reason=error.message)
            raise
        try:
            ledger.decide(run.token, "started", code=Exit.DONE, run=started.launched.run)
        except StateError as error:
            say(f"warning: it was started, but {error.message}")
    for key in started.launched.not_in_force:
        say(f"warning: limits.{key} is not in force: its controller is not delegated to the manager of {account.name}")
    return started


def _ask_guards(question: Question, say: Say) -> tuple[list[tuple[str, str, str]], Refuse | None]:
    """Each guard in its order: what they said other than pass, as (guard, verdict, reason), and the first refusal."""
    verdicts: list[tuple[str, str, str]] = []
    for name, check in ORDER:
        match check(question):
            case Refuse() as refusal:
                return [*verdicts, (name, "refuse", refusal.reason)], refusal
            case Open(reason):
                verdicts.append((name, "open", reason))
                say(f"{name} guard failed open: {reason}")
    return verdicts, None


def _warn_of_linger(account: Account, say: Say) -> None:
    if not lingers(account):
        say(f"warning: {account.name} does not linger, so its last logout ends the run")
        say(f"hint: loginctl enable-linger {account.name}")


def rehearse(fleet: Fleet, request: Request, worker: Worker, say: Say) -> Prepared:
    """What `dispatch` would start, with every guard and check, and nothing written. Raises as `dispatch` does."""
    agent, account = dispatchable(fleet, request)
    worker.act_as(account)
    question, issue = _question(fleet, request, worker)
    _, refusal = _ask_guards(question, say)
    if refusal is not None:
        raise _refused(refusal)
    run = resolved(fleet, agent, request, Token("0" * 32), issue(), _free_name(question))
    return worker.call(at_agent.prepare, at_agent.ToPrepare(run, agent.run.prompt, keep=False))


def dispatchable(fleet: Fleet, request: Request) -> tuple[Agent, Account]:
    """The agent that was named, if it can be given work, and its account. Raises UsageError, ConfigError."""
    agent = fleet.agent(request.target)
    where = fleet.source or "fleet.toml"
    if fleet.rigs[agent.rig].host is not None:
        raise ConfigError(
            f"agent {agent.name} is on rig {agent.rig}, another box, and this version reaches only this box",
            hint=f"dispatch it there, or remove `host` from [rigs.{agent.rig}] in {where}",
        )
    if not agent.run.command:
        raise ConfigError(
            f"agent {agent.name} has no command to run",
            hint=f"set [run] command in {where} (write one with: gtrun init)",
        )
    return agent, account_of(agent, request.caller)


def account_of(agent: Agent, caller: Account) -> Account:
    """The account that an agent is. Raises ConfigError if there is none of that name."""
    return caller if agent.account in {None, caller.name} else named(str(agent.account))


def _question(fleet: Fleet, request: Request, worker: Worker) -> tuple[Question, Callable[[], Issue]]:
    """What the guards ask, answered once however many ask; and the issue as far as the board tells it."""
    views: list[BoardView] = []
    listed: list[list[UnitState]] = []

    def board() -> BoardView:
        if not views:
            views.append(_view(fleet, request.issue))
        return views[0]

    def units() -> list[UnitState]:
        if not listed:
            listed.append(worker.call(at_agent.list_units, at_agent.Patterns(unit_names(request.issue))))
        return listed[0]

    question = Question(
        request.issue, request.target, request.environment, fleet.board.terminal_labels, fleet.board.terminal_glyphs,
        board, units,
    )  # fmt: skip
    return question, lambda: board().issue or Issue(key=request.issue, title="(the board did not answer)")


def _view(fleet: Fleet, key: IssueKey) -> BoardView:
    try:
        with LocalBoard.open(fleet.board.path, wait=_BOARD_WAIT) as board:
            issue = board.issue(key)
            return BoardView(issue, tuple(board.comments(key)) if issue else ())
    except BoardUnavailable as error:
        return BoardView(problem=error.message)


def _refused(refusal: Refuse) -> Refused:
    return Refused(f"refused: {refusal.reason}", hint=refusal.hint, code=refusal.code)


def _free_name(question: Question) -> UnitName:
    """The issue's one name; with the hatch, and something live, the first free number behind it."""
    if not duplicate.allowed(question):
        return unit_name(question.issue)
    taken = {duplicate_number(unit.name) for unit in question.units() if is_live(unit)}
    return unit_name(question.issue, duplicate=next(n for n in range(len(taken) + 1) if n not in taken))


def resolved(fleet: Fleet, agent: Agent, request: Request, token: Token, issue: Issue, unit: UnitName) -> ResolvedRun:
    """The run, but for what only the agent's account can tell: its home and its prompt template."""
    profile = agent.run
    return ResolvedRun(
        token=token,
        agent=agent.name,
        rig=agent.rig,
        issue=issue,
        unit=unit,
        identifier=identifier(unit, token),
        board=fleet.board.path,
        terminal_labels=fleet.board.terminal_labels,
        terminal_glyphs=fleet.board.terminal_glyphs,
        backend=profile.backend or os.path.basename(profile.command[0]),  # noqa: PTH119
        command=profile.command,
        prompt="",
        workdir=profile.workdir or "~",
        environment=profile.environment,
        path=profile.path,
        time_limit=profile.time_limit,
        stop_timeout=profile.stop_timeout,
        limits=profile.limits,
        keep=profile.keep,
        dispatched_at=time.time(),
        dispatched_by=request.caller.name,
    )


def _start(fleet: Fleet, agent: Agent, question: Question, worker: Worker, run: ResolvedRun) -> Started:
    """Steps 5 to 8. Raises with nothing left behind."""
    run = worker.call(at_agent.prepare, at_agent.ToPrepare(run, agent.run.prompt, keep=True)).run
    override = fleet.rigs[agent.rig].gtrun
    wanted = at_agent.ToStart([override] if override else [])
    try:
        reply = worker.call(at_agent.start, wanted)
        if reply.is_taken:
            _refuse_live(question, reply.occupant)
            left = worker.call(at_agent.wait_until_free, at_agent.Name(run.unit, _NAME_WAIT))
            if left is None:
                reply = worker.call(at_agent.start, wanted)
            if reply.is_taken:
                _refuse_live(question, left or reply.occupant)
                raise _occupied(agent, run.unit, left or reply.occupant)
    except ManagerSilent:
        raise
    except GtrunError:
        worker.call(at_agent.discard, at_agent.Nothing())
        raise
    waited = at_agent.Job(run, reply.job, reply.path, _JOB_WAIT)
    try:
        return Started(run, worker.call(at_agent.await_start, waited, seconds=_JOB_WAIT + 5))
    except LaunchFailed:
        raise
    except GtrunError as error:  # the manager has the unit: whatever kept us from hearing of it undoes nothing
        raise ManagerSilent(
            f"{run.unit} was asked for on {agent.name}, and what came of it is not known: {error.message}",
            hint="look with `gtrun live`, then settle it with `gtrun reconcile`",
        ) from error


def _refuse_live(question: Question, occupant: UnitState | None) -> None:
    """The name is taken: by a live unit, then another dispatcher was first. Raises Refused."""
    if occupant is not None and is_live(occupant):
        raise _refused(duplicate.refusal(question.agent, question.issue, occupant))


def _occupied(agent: Agent, unit: UnitName, occupant: UnitState | None) -> LaunchFailed:
    what = occupant.said if occupant else "nothing that the manager lists"
    return LaunchFailed(
        f"the name {unit} is occupied on {agent.name} by something that is not live: {what}",
        hint=_how_to_free(unit, occupant),
    )


def _how_to_free(unit: UnitName, occupant: UnitState | None) -> str:
    if occupant is not None and occupant.load == "masked":
        return f"free it with: systemctl --user unmask {unit}"
    if occupant is not None and occupant.active == "failed":
        return f"free it with: systemctl --user reset-failed {unit}"
    return f"look at it with: systemctl --user status {unit}; move its file away, then: systemctl --user daemon-reload"
