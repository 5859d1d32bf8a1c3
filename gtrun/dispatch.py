"""Dispatch one issue, or one plugin, to one agent: the protocol.

1.  Board guard (13): is the issue work? A board that does not answer lets the run proceed.
2.  Quota guard (9): is the agent's entitlement used up?
3.  Duplicate guard (11): is a unit of this issue live on this agent?
4.  The attempt is durable in the ledger, with what the guards said.
5.  The run record is durable in the agent's account: all that runner and close-out need, and room for the truth.
6.  The claim lock, and under it the fleet claim (14): is a unit of this issue live on any agent? For an automatic pick
    also the capacity guard (10): is the agent paused, backing off or full? And (13): was the issue started since?
7.  Still under the lock, StartTransientUnit of `task-<issue>.service`. The name is the mutex of this one agent: if it
    is taken, a live unit is a refusal (11), and anything else gets a short while to go away, then is named (1).
8.  The start job's result, by signal: what could not be executed is a failed launch (1); the rest is a run.
9.  The outcome is in the ledger.

A plugin is on no board and uses no entitlement: in place of 1 and 2 its cooldown (10) is asked, and once more in 6. Its
unit is `plugin-<name>.service`, its bytes become durable beside the record in 5, and the rest is the same.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gtrun import alive, announce
from gtrun.asked import Asked, Say, ask, refused
from gtrun.config import Agent, Fleet
from gtrun.errors import GtrunError, ManagerSilent, Refused, StateError
from gtrun.exits import Exit
from gtrun.guards import CLAIM, Question, before_lock, duplicate, under_lock
from gtrun.model import ResolvedRun
from gtrun.names import Token, UnitName, duplicate_number, unit_name
from gtrun.reach import Worker
from gtrun.reach import operations as at_agent
from gtrun.reach.operations import Launched, Prepared, StartReply
from gtrun.request import Request, dispatchable
from gtrun.start import await_start, start, warnings
from gtrun.state import claim as claim_lock
from gtrun.state.claim import Claim
from gtrun.state.ledger import Attempt, Ledger, Verdicts
from gtrun.survey import Lookouts, enlisted
from gtrun.systemd.units import UnitState, is_live


class Started(msgspec.Struct, frozen=True):
    """A run that the manager has started. `launched.ending` is set if it has ended already."""

    run: ResolvedRun
    launched: Launched


def dispatch(fleet: Fleet, request: Request, worker: Worker, say: Say, lookouts: Lookouts | None = None) -> Started:
    """Carry the protocol out, with a worker that is nobody yet, and the lookouts of the pass that it belongs to.

    Raises Refused (9, 10, 11, 13, 14), LaunchFailed (1), NoManager (69), ConfigError (78), StateError (1): in each
    nothing of ours is left running. ManagerSilent (69) says that it may have been started.
    """
    agent = dispatchable(fleet, request)
    with (
        enlisted(fleet, request.caller, agent, worker, lookouts) as team,
        Ledger(request.caller.state) as ledger,
    ):
        if ledger.moved_aside:
            say(f"the ledger was damaged: its bytes are kept in {ledger.moved_aside}, and a new one was begun")
        asked = Asked(fleet, request, team, ledger)
        attempt = Attempt(
            token=Token(os.urandom(16).hex()), at=time.time(), by=request.by, dispatcher=alive.this_process(),
            issue=request.issue, agent=agent.name, account=team.route.name, unit=unit_name(request.issue),
            rig=agent.rig, sweep=request.sweep, digest=_digest(request),
        )  # fmt: skip
        verdicts, refusal = ask(before_lock(asked.question), asked.question, say)
        if refusal is not None:
            attempt = replace(attempt, outcome="refused", code=refusal.code, reason=refusal.reason)
            _record(partial(ledger.begin, attempt, verdicts), say)
            announce.attempted(attempt)
            announce.guards(attempt, verdicts)
            announce.failed(attempt, "refused", refusal.code, refusal.reason)
            raise refused(refusal)
        if not team.target.call(at_agent.does_linger, at_agent.Nothing()):
            say(f"warning: {team.route.name} does not linger, so its last logout ends the run")
            say(f"hint: loginctl enable-linger {team.route.name}")
        run = asked.run(agent, attempt.token, may_write=True)
        attempt = replace(attempt, unit=run.unit, board=run.board_identity)
        ledger.begin(attempt, verdicts)
        announce.attempted(attempt)
        announce.guards(attempt, verdicts)
        claim, verdicts = Claim(), []
        try:
            run, reply = _claim_and_start(fleet, agent, run, asked, claim, verdicts, say)
            launched = await_start(asked, run, reply)
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
            if what == "refused" and not any(verdict == "refuse" for _, verdict, _ in verdicts):
                verdicts.append(("duplicate", "refuse", error.message))  # it was the manager that met the live unit
            outcome = partial(ledger.decide, run.token, what, code=error.code, reason=error.message)
            _record(partial(outcome, claim=claim, verdicts=verdicts), say)
            announce.failed(attempt, what, error.code, error.message)
            raise
        finally:
            announce.guards(attempt, verdicts)
        outcome = partial(ledger.decide, run.token, "started", code=Exit.DONE, run=launched.run, unit=run.unit)
        _record(partial(outcome, claim=claim, verdicts=verdicts), say)
        announce.succeeded(replace(attempt, unit=run.unit), launched.run)
    for line in warnings(launched, run.unit, agent.name):
        say(f"warning: {line}")
    return Started(run, launched)


def _claim_and_start(
    fleet: Fleet, agent: Agent, run: ResolvedRun, asked: Asked, claim: Claim, verdicts: Verdicts, say: Say
) -> tuple[ResolvedRun, StartReply]:
    """Steps 5 to 7. Raises with nothing left behind; `claim` and `verdicts` tell what happened, also then."""
    worker = asked.team.target

    def prepared(run: ResolvedRun) -> ResolvedRun:
        return asked.prepared(agent, run, keep=True).run

    told: list[str] = []  # said once the lock is free: whoever reads it may be slow
    may_have_started = False
    try:
        run = prepared(replace(run, unit=_free_name(asked.question, asked.units())))
        with claim_lock.taken(Path(fleet.claim.lock), wait=fleet.claim.wait, claim=claim) as lock:
            asked.problem = claim.problem
            said, refusal = ask(under_lock(asked.question), asked.question, told.append)
            verdicts += said
            if refusal is not None:
                raise refused(refusal)
            free = _free_name(asked.question, asked.units())
            if free != run.unit:  # only with the hatch: somebody took the number meanwhile
                worker.call(at_agent.discard, at_agent.Nothing())
                run = prepared(replace(run, unit=free))
            may_have_started = True
            return run, start(fleet, agent, asked, run.unit, lock)
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


def _free_name(question: Question, units: Iterable[UnitState]) -> UnitName:
    """The issue's one name; with the hatch, and something live, the first free number behind it."""
    if not duplicate.allowed(question):
        return unit_name(question.issue)
    taken = {duplicate_number(unit.name) for unit in units if is_live(unit)}
    return unit_name(question.issue, duplicate=next(n for n in range(len(taken) + 1) if n not in taken))


def _digest(request: Request) -> str:
    if not request.is_plugin:
        return ""
    from gtrun.plugins.payload import digest_of  # noqa: PLC0415 - what no issue needs

    return digest_of(request.payload)


def _record(write: Callable[[], object], say: Say) -> None:
    """Tell the ledger what came of it. What came of it stays the same if the ledger cannot be told."""
    try:
        write()
    except StateError as error:
        say(f"warning: {error.message}")


def rehearse(fleet: Fleet, request: Request, worker: Worker, say: Say) -> Prepared:
    """What `dispatch` would start, with every guard and check, and nothing written. Raises as `dispatch` does."""
    agent = dispatchable(fleet, request)
    with contextlib.ExitStack() as stack:
        team = stack.enter_context(enlisted(fleet, request.caller, agent, worker))
        ledger = stack.enter_context(Ledger(request.caller.state, keep=False)) if request.is_plugin else None
        asked = Asked(fleet, request, team, ledger)
        _, refusal = ask((*before_lock(asked.question), CLAIM), asked.question, say)
        if refusal is not None:
            raise refused(refusal)
        run = asked.run(agent, Token("0" * 32), may_write=False)
        run = replace(run, unit=_free_name(asked.question, asked.units()))
        return asked.prepared(agent, run, keep=False)
