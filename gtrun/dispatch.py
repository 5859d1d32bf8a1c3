"""Dispatch one issue to one agent: the protocol.

1.  Board guard (13): is the issue work? A board that does not answer lets the run proceed.
2.  Quota guard (9): is the agent's entitlement used up?
3.  Duplicate guard (11): is a unit of this issue live on this agent?
4.  The attempt is durable in the ledger, with what the guards said.
5.  The run record is durable in the agent's account: all that runner and close-out need, and room for the truth.
6.  The claim lock, and under it the fleet claim (14): is a unit of this issue live on any agent?
7.  Still under the lock, StartTransientUnit of `task-<issue>.service`. The name is the mutex of this one agent: if it
    is taken, a live unit is a refusal (11), and anything else gets a short while to go away, then is named (1).
8.  The start job's result, by signal: what could not be executed is a failed launch (1); the rest is a run.
9.  The outcome is in the ledger.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gtrun import alive
from gtrun.account import Account
from gtrun.board.local import LocalBoard
from gtrun.config import Agent, Fleet
from gtrun.errors import BoardUnavailable, ConfigError, GtrunError, LaunchFailed, ManagerSilent, Refused, StateError
from gtrun.exits import Exit
from gtrun.guards import CLAIM, ORDER, Guard, Open, Question, Refuse, duplicate
from gtrun.guards.verdict import BoardView, FleetView
from gtrun.model import Issue, ResolvedRun
from gtrun.names import IssueKey, Token, UnitName, duplicate_number, identifier, unit_name, unit_names
from gtrun.quota import QuotaFile
from gtrun.reach import Worker
from gtrun.reach import operations as at_agent
from gtrun.reach.operations import Launched, Prepared, StartReply
from gtrun.state import claim as claim_lock
from gtrun.state.claim import Claim
from gtrun.state.ledger import Attempt, Ledger, Verdicts
from gtrun.survey import Team, enlisted
from gtrun.systemd import entry
from gtrun.systemd.units import UnitState, is_live

_BOARD_WAIT = 3.0
_PROBE_WAIT = 5.0
_NAME_WAIT = 2.0
_JOB_WAIT = 90.0

Say = Callable[[str], None]
"""Where warnings go: one line each."""


class Request(msgspec.Struct, frozen=True):
    """Who wants which issue run by which agent. `environment` holds the hatches (DISPATCH_…, GTRUN_BACKEND).

    `caller` is the account that dispatches, `by` who asked it to, as the ledger and the run record keep it.
    """

    target: str
    issue: IssueKey
    caller: Account
    environment: Mapping[str, str]
    by: str


class Started(msgspec.Struct, frozen=True):
    """A run that the manager has started. `launched.ending` is set if it has ended already."""

    run: ResolvedRun
    launched: Launched


def dispatch(fleet: Fleet, request: Request, worker: Worker, say: Say) -> Started:
    """Carry the protocol out, with a worker that is nobody yet.

    Raises Refused (9, 11, 13, 14), LaunchFailed (1), NoManager (69), ConfigError (78), StateError (1): in each nothing
    of ours is left running. ManagerSilent (69) says that it may have been started.
    """
    agent = dispatchable(fleet, request)
    with enlisted(fleet, request.caller, agent, worker) as team, Ledger(request.caller.state) as ledger:
        if ledger.moved_aside:
            say(f"the ledger was damaged: its bytes are kept in {ledger.moved_aside}, and a new one was begun")
        asked = Asked(fleet, request, team)
        attempt = Attempt(
            token=Token(os.urandom(16).hex()), at=time.time(), by=request.by, dispatcher=alive.this_process(),
            issue=request.issue, agent=agent.name, account=team.route.name, unit=unit_name(request.issue),
        )  # fmt: skip
        verdicts, refusal = ask(ORDER, asked.question, say)
        _log(attempt, verdicts)
        if refusal is not None:
            attempt = replace(attempt, outcome="refused", code=refusal.code, reason=refusal.reason)
            _record(partial(ledger.begin, attempt, verdicts), say)
            raise _refused(refusal)
        if not team.target.call(at_agent.does_linger, at_agent.Nothing()):
            say(f"warning: {team.route.name} does not linger, so its last logout ends the run")
            say(f"hint: loginctl enable-linger {team.route.name}")
        run = resolved(fleet, agent, attempt.token, asked.issue(), by=request.by)
        ledger.begin(replace(attempt, unit=run.unit), verdicts)
        claim, verdicts = Claim(), []
        try:
            run, reply = _claim_and_start(fleet, agent, run, asked, claim, verdicts, say)
            launched = _await_start(asked, run, reply)
        except (ManagerSilent, KeyboardInterrupt) as error:
            # it may have been started: the attempt stays without an outcome until somebody has looked
            with contextlib.suppress(StateError):
                ledger.note(run.token, claim=claim, verdicts=verdicts)
            if isinstance(error, ManagerSilent):
                raise
            raise GtrunError(
                f"interrupted: {run.unit} may have been started on {agent.name}",
                hint=f"ask: gtrun live {run.issue.key}",
                code=Exit.INTERRUPTED,
            ) from None
        except GtrunError as error:
            what = "refused" if isinstance(error, Refused) else "failed"
            outcome = partial(ledger.decide, run.token, what, code=error.code, reason=error.message)
            _record(partial(outcome, claim=claim, verdicts=verdicts), say)
            raise
        finally:
            _log(attempt, verdicts)
        outcome = partial(ledger.decide, run.token, "started", code=Exit.DONE, run=launched.run, unit=run.unit)
        _record(partial(outcome, claim=claim, verdicts=verdicts), say)
    for key in launched.not_in_force:
        say(f"warning: limits.{key} is not in force: its controller is not delegated to the manager of {agent.name}")
    return Started(run, launched)


def _record(write: Callable[[], None], say: Say) -> None:
    """Tell the ledger what came of it. What came of it stays the same if the ledger cannot be told."""
    try:
        write()
    except StateError as error:
        say(f"warning: {error.message}")


def rehearse(fleet: Fleet, request: Request, worker: Worker, say: Say) -> Prepared:
    """What `dispatch` would start, with every guard and check, and nothing written. Raises as `dispatch` does."""
    agent = dispatchable(fleet, request)
    with enlisted(fleet, request.caller, agent, worker) as team:
        asked = Asked(fleet, request, team)
        _, refusal = ask((*ORDER, CLAIM), asked.question, say)
        if refusal is not None:
            raise _refused(refusal)
        run = resolved(fleet, agent, Token("0" * 32), asked.issue(), by=request.by)
        run = replace(run, unit=_free_name(asked.question, asked.units()))
        return team.target.call(at_agent.prepare, at_agent.ToPrepare(run, agent.run.prompt, keep=False))


def ask(guards: Iterable[Guard], question: Question, say: Say) -> tuple[Verdicts, Refuse | None]:
    """Each guard in its order: what they said other than pass, as (guard, verdict, reason), and the first refusal."""
    verdicts: Verdicts = []
    for name, check in guards:
        match check(question):
            case Refuse() as refusal:
                return [*verdicts, (name, "refuse", refusal.reason)], refusal
            case Open(reason):
                verdicts.append((name, "open", reason))
                say(f"{name} guard failed open: {reason}")
    return verdicts, None


def _log(attempt: Attempt, verdicts: Verdicts) -> None:
    """What guards said other than pass, in the journal."""
    for guard, verdict, reason in verdicts:
        entry.write(
            f"{guard} guard {'failed open' if verdict == 'open' else 'refused'}: {reason}",
            GTRUN_GUARD=guard, GTRUN_VERDICT=verdict, GTRUN_ISSUE=attempt.issue, GTRUN_AGENT=attempt.agent,
            GTRUN_ATTEMPT=attempt.token,
        )  # fmt: skip


def dispatchable(fleet: Fleet, request: Request) -> Agent:
    """The agent that was named, if it can be given work. Raises UsageError, ConfigError."""
    agent = fleet.agent(request.target)
    if not agent.run.command:
        where = fleet.source or "fleet.toml"
        raise ConfigError(
            f"agent {agent.name} has no command to run",
            hint=f"set [run] command in {where} (write one with: gtrun init)",
        )
    return agent


class Asked:
    """The answers that the guards ask for, each fetched when it is first needed."""

    def __init__(self, fleet: Fleet, request: Request, team: Team) -> None:
        """Nothing is asked yet."""
        self._fleet = fleet
        self._request = request
        self.team = team
        self._board: BoardView | None = None
        self._probe: FleetView | None = None
        self.problem = ""  # why what a probe shows may change before the start
        self.question = Question(
            issue=request.issue,
            agent=request.target,
            environment=request.environment,
            terminal_labels=fleet.board.terminal_labels,
            terminal_glyphs=fleet.board.terminal_glyphs,
            now=time.time(),
            board=self.board,
            quota=self._quota,
            units=self.units,
            fleet=self.probe,
        )

    def board(self) -> BoardView:
        """One reading of the board for all who ask."""
        if self._board is None:
            self._board = _view(self._fleet, self._request.issue)
        return self._board

    def issue(self) -> Issue:
        """The issue as far as the board tells it."""
        return self.board().issue or Issue(key=self._request.issue, title="(the board did not answer)")

    def _quota(self) -> QuotaFile:
        return self.team.target.call(at_agent.read_quota, at_agent.Nothing())

    def units(self) -> list[UnitState]:
        """The issue's units on the agent itself, as of the last probe. Raises NoManager: without one nothing starts."""
        if self._probe is None:
            self.probe()
        return list(self._probe.units[self._request.target]) if self._probe else []

    def probe(self) -> FleetView:
        """Ask every agent that answers for the issue's units, at once. Raises NoManager."""
        patterns = at_agent.Patterns(unit_names(self._request.issue))
        units = self.team.ask_all(at_agent.list_units, patterns, seconds=_PROBE_WAIT)
        self._probe = FleetView(units, self.team.silent, self.problem)
        return self._probe


def _view(fleet: Fleet, key: IssueKey) -> BoardView:
    try:
        with LocalBoard.open(fleet.board.path, wait=_BOARD_WAIT) as board:
            issue = board.issue(key)
            return BoardView(issue, tuple(board.comments(key)) if issue else ())
    except BoardUnavailable as error:
        return BoardView(problem=error.message)


def _refused(refusal: Refuse) -> Refused:
    return Refused(refusal.reason, hint=refusal.hint, code=refusal.code)


def _free_name(question: Question, units: Iterable[UnitState]) -> UnitName:
    """The issue's one name; with the hatch, and something live, the first free number behind it."""
    if not duplicate.allowed(question):
        return unit_name(question.issue)
    taken = {duplicate_number(unit.name) for unit in units if is_live(unit)}
    return unit_name(question.issue, duplicate=next(n for n in range(len(taken) + 1) if n not in taken))


def resolved(fleet: Fleet, agent: Agent, token: Token, issue: Issue, *, by: str) -> ResolvedRun:
    """The run, but for what only the agent's account can tell: its home and its prompt template."""
    profile = agent.run
    unit = unit_name(issue.key)
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
        dispatched_by=by,
    )


def _claim_and_start(
    fleet: Fleet, agent: Agent, run: ResolvedRun, asked: Asked, claim: Claim, verdicts: Verdicts, say: Say
) -> tuple[ResolvedRun, StartReply]:
    """Steps 5 to 7. Raises with nothing left behind; `claim` and `verdicts` tell what happened, also then."""
    worker = asked.team.target

    def prepared(run: ResolvedRun) -> ResolvedRun:
        return worker.call(at_agent.prepare, at_agent.ToPrepare(run, agent.run.prompt, keep=True)).run

    told: list[str] = []  # said once the lock is free: whoever reads it may be slow
    may_have_started = False
    try:
        run = prepared(replace(run, unit=_free_name(asked.question, asked.units())))
        with claim_lock.taken(Path(fleet.claim.lock), wait=fleet.claim.wait, claim=claim):
            asked.problem = claim.problem
            said, refusal = ask([CLAIM], asked.question, told.append)
            verdicts += said
            if refusal is not None:
                raise _refused(refusal)
            free = _free_name(asked.question, asked.units())
            if free != run.unit:  # only with the hatch: somebody took the number meanwhile
                worker.call(at_agent.discard, at_agent.Nothing())
                run = prepared(replace(run, unit=free))
            may_have_started = True
            return run, _start(fleet, agent, asked, run.unit)
    except ManagerSilent:
        raise
    except KeyboardInterrupt:
        if may_have_started:
            raise
        raise GtrunError("interrupted: nothing was started", code=Exit.INTERRUPTED) from None
    except GtrunError:
        worker.call(at_agent.discard, at_agent.Nothing())
        raise
    finally:
        for line in told:
            say(line)


def _start(fleet: Fleet, agent: Agent, asked: Asked, unit: UnitName) -> StartReply:
    """Step 7: the name is given away once. Raises Refused (11) and LaunchFailed."""
    worker = asked.team.target
    override = fleet.rigs[agent.rig].gtrun
    wanted = at_agent.ToStart([override] if override else [])
    reply = worker.call(at_agent.start, wanted)
    if not reply.is_taken:
        return reply
    _refuse_live(asked.question, reply.occupant)
    left = worker.call(at_agent.wait_until_free, at_agent.Name(unit, _NAME_WAIT))
    if left is None:
        reply = worker.call(at_agent.start, wanted)
        if not reply.is_taken:
            return reply
    _refuse_live(asked.question, left or reply.occupant)
    raise _occupied(agent, unit, left or reply.occupant)


def _await_start(asked: Asked, run: ResolvedRun, reply: StartReply) -> Launched:
    """Step 8. Raises LaunchFailed, and ManagerSilent for whatever keeps us from hearing what came of it."""
    waited = at_agent.Job(run, reply.job, reply.path, _JOB_WAIT)
    try:
        return asked.team.target.call(at_agent.await_start, waited, seconds=_JOB_WAIT + 5)
    except LaunchFailed:
        raise
    except GtrunError as error:  # the manager has the unit: that is not undone
        raise ManagerSilent(
            f"{run.unit} was asked for on {run.agent}, and what came of it is not known: {error.message}",
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
