"""What runs now, and what has happened: for `ps`, `live`, `show`, `logs` and `stop`."""

import contextlib
import select
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gtrun.account import Account
from gtrun.board.reference import open_own, reference_of
from gtrun.board.standing import standing
from gtrun.clones.stashes import Stash
from gtrun.config import Agent, Fleet
from gtrun.counters import FAILURES, STOPPED_BY_HAND, Book, ledger_result
from gtrun.errors import BoardUnavailable, GtrunError
from gtrun.model import Issue, PullRequest, Result, Run, Standing
from gtrun.names import UNIT_GLOBS, IssueKey, plugin_name, unit_name, unit_names
from gtrun.planner import Backlog, Readiness, Work, readiness
from gtrun.reach import Worker
from gtrun.reach import operations as at_agent
from gtrun.reach import worker as workers
from gtrun.reach.operations import LiveRun
from gtrun.reach.route import Route
from gtrun.state.ledger import Attempt, Ledger
from gtrun.survey import agents_of, survey
from gtrun.systemd import journal

_SLACK = 10.0
_STABLE = 0.1  # seconds between two readings of the journal that must agree
_READ = 60.0
_AT_ONCE = 32  # runs that are being stopped; a process looks after each

Reading = Callable[[at_agent.Session, at_agent.ToRead], at_agent.Printed]


@dataclass(frozen=True, slots=True)
class Live:
    """One live unit, on which agent, in which account."""

    agent: Agent
    account: Route
    run: LiveRun


@dataclass(frozen=True, slots=True)
class Unreachable:
    """An agent that could not be asked, and why."""

    agent: Agent
    problem: str
    hint: str


def live(
    fleet: Fleet, caller: Account, *, issue: IssueKey | None = None, agent: str | None = None
) -> tuple[list[Live], list[Unreachable]]:
    """Every live unit of the fleet, of one issue or of one agent, and who did not answer."""
    patterns = at_agent.Patterns([*UNIT_GLOBS] if issue is None else unit_names(issue))
    found, silent = [], []
    for answer in survey(agents_of(fleet, agent), fleet, caller, at_agent.live_runs, patterns):
        if answer.value is None or answer.route is None:
            silent.append(Unreachable(answer.agent, answer.problem, answer.hint))
        else:
            found += [Live(answer.agent, answer.route, run) for run in answer.value]
    return found, silent


@dataclass(frozen=True, slots=True)
class Past:
    """One run of an issue, by which agent, in which account."""

    agent: Agent
    account: Route
    run: Run


@dataclass(frozen=True, slots=True)
class Aside:
    """Work of a clone that was set aside, by which agent, in which account."""

    agent: Agent
    account: Route
    stash: Stash


@dataclass(frozen=True, slots=True)
class History:
    """All that is known about an issue. `issue` is None if the board has none or did not answer (`board_problem`).

    `readiness` is whether it would be handed out by itself; None for an issue that is not open.
    """

    issue: Issue | None
    standing: Standing | None
    readiness: Readiness | None
    pulls: list[PullRequest]
    board_problem: str
    attempts: list[Attempt]
    runs: list[Past]
    stashes: list[Aside]
    damaged: list[str]
    unreachable: list[Unreachable]


def runs_of(
    fleet: Fleet, caller: Account, issue: IssueKey, *, agent: str | None = None
) -> tuple[list[Past], list[str], list[Unreachable]]:
    """The runs of an issue, oldest first; damaged records; agents that did not answer."""
    past: list[Past] = []
    damaged: list[str] = []
    silent = []
    board = "" if plugin_name(issue) is not None else fleet.board.path
    identity = reference_of(fleet.board).identity if board else ""
    for answer in survey(agents_of(fleet, agent), fleet, caller, at_agent.runs_of, at_agent.OfIssue(issue)):
        if answer.value is None or answer.route is None:
            silent.append(Unreachable(answer.agent, answer.problem, answer.hint))
            continue
        # an account may have run the same number of another board
        here = [
            run
            for run in answer.value.runs
            if run.resolved.board == board and _is_same(run.resolved.board_identity, identity)
        ]
        past += [Past(answer.agent, answer.route, run) for run in here]
        damaged += answer.value.damaged
    past.sort(key=lambda one: one.run.resolved.dispatched_at)
    return past, damaged, silent


def _is_same(identity: str, other: str) -> bool:
    """Whether two identities may be of one board, as far as they are known."""
    return not identity or not other or identity == other


def stashes(fleet: Fleet, caller: Account) -> tuple[list[Aside], list[str], list[Unreachable]]:
    """All work that is set aside, oldest first; damaged records; agents that did not answer."""
    found: list[Aside] = []
    damaged: list[str] = []
    silent = []
    for answer in survey(agents_of(fleet, None), fleet, caller, at_agent.stashes_of, at_agent.Nothing()):
        if answer.value is None or answer.route is None:
            silent.append(Unreachable(answer.agent, answer.problem, answer.hint))
            continue
        found += [Aside(answer.agent, answer.route, stash) for stash in answer.value.stashes]
        damaged += answer.value.damaged
    return sorted(found, key=lambda one: one.stash.at), damaged, silent


def history(fleet: Fleet, caller: Account, issue: IssueKey) -> History:
    """The history of an issue, from the ledger, the agents' records and the board. Raises StateError."""
    problem = identity = ""
    told: Issue | None = None
    stands: Standing | None = None
    pulls: list[PullRequest] = []
    works: list[Work] = []
    if plugin_name(issue) is not None:
        return _history_of_plugin(fleet, caller, issue)
    try:
        with open_own(fleet.board) as board:
            identity = board.identity
            told = board.issue(issue)
            pulls = board.pull_requests(issue)
            if told is not None:
                terminal = fleet.board.terminal_labels, fleet.board.terminal_glyphs
                stands = standing(told, board.comments(issue), pulls, *terminal)
                works = [Work(*one) for one in board.open_work(*terminal)]
    except BoardUnavailable as error:
        problem = error.message
    with Ledger(caller.state) as ledger:
        attempts = ledger.attempts(issue)
    attempts = [one for one in attempts if _is_same(one.board, identity)]
    past, damaged, silent = runs_of(fleet, caller, issue)
    aside, _, _ = stashes(fleet, caller)
    theirs = [
        one
        for one in aside
        if (one.stash.issue, one.stash.board) == (issue, fleet.board.path)
        and _is_same(one.stash.board_identity, identity)
    ]
    ready = _readiness(fleet, issue, works, past, attempts)
    return History(told, stands, ready, pulls, problem, attempts, past, theirs, damaged, silent)


def _history_of_plugin(fleet: Fleet, caller: Account, key: IssueKey) -> History:
    """No board knows of it, and it works in no clone."""
    with Ledger(caller.state) as ledger:
        attempts = ledger.attempts(key)
    past, damaged, silent = runs_of(fleet, caller, key)
    return History(None, None, None, [], "", attempts, past, [], damaged, silent)


def _readiness(
    fleet: Fleet, issue: IssueKey, works: list[Work], past: list[Past], attempts: list[Attempt]
) -> Readiness | None:
    """Whether it would be handed out by itself, by its runs as the agents tell them, and the ledger of older ones."""
    succeeded = [one.run.ended_at or 0.0 for one in past if ledger_result(one.run) == Result.SUCCESS]
    succeeded += [one.ended_at or 0.0 for one in attempts if one.result == Result.SUCCESS]
    book = Book(
        failed={issue: [one.run.ended_at or 0.0 for one in past if ledger_result(one.run) in FAILURES]},
        succeeded={issue: max(succeeded)} if succeeded else {},
        stopped={issue: past[-1].run.ended_at or 0.0}
        if past and ledger_result(past[-1].run) == STOPPED_BY_HAND
        else {},
    )
    live = {str(unit_name(issue)): one.agent.name for one in past if one.run.ending is None}
    found = readiness(Backlog(works=works, live=live), book, fleet.schedule, fleet.board.ready_label, time.time())
    return next((one for one in found if one.issue.key == issue), None)


def stop(found: Sequence[Live], caller: Account) -> Iterator[tuple[Live, Run | GtrunError | None]]:
    """Stop live runs at the same time: each one's whole cgroup, waiting for its close-out. Gives each as it is then.

    Or the reason why it is not stopped. A unit whose invocation ID is in no record is somebody else's, whatever its
    name.
    """
    for begin in range(0, len(found), _AT_ONCE):
        yield from _stop_at_once(found[begin : begin + _AT_ONCE], caller)


def _stop_at_once(found: Sequence[Live], caller: Account) -> Iterator[tuple[Live, Run | GtrunError | None]]:
    asked: list[tuple[Live, Worker, float]] = []
    operation = at_agent.stop  # imported before the fork, for all twins
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(Worker.start())
        for one in found:
            try:
                request = _to_stop(one, caller)
                worker = stack.enter_context(first.twin())
                worker.act_as(one.account)
                worker.ask(operation, request, seconds=request.seconds + _SLACK)
            except GtrunError as error:
                yield one, error
            else:
                asked.append((one, worker, time.monotonic() + request.seconds + _SLACK))
        try:
            for one, worker, until in asked:
                yield one, _answer(worker, until)
        finally:
            for _, worker, _ in asked:
                worker.hang_up()  # those that are stuck then take their moment to part at the same time


def _answer(worker: Worker, until: float) -> Run | GtrunError | None:
    try:
        return worker.answer(at_agent.stop, seconds=max(0.01, until + worker.patience - time.monotonic()))
    except GtrunError as error:
        return error


def _to_stop(one: Live, caller: Account) -> at_agent.ToStop:
    record = one.run.record
    name = one.run.unit.state.name
    if record is not None and record.run is None:
        raise GtrunError(f"{name} of {one.account.name} is only just starting: ask again in a moment")
    if record is None:
        raise GtrunError(
            f"{name} of {one.account.name} was not started by gtrun (there is no record of its run): left alone",
            hint=f"stop it as {one.account.name} with: systemctl --user stop {name}",
        )
    seconds = 2 * record.resolved.stop_timeout + _SLACK
    by = f"gtrun stop ({caller.name})"
    return at_agent.ToStop(record.resolved.unit, one.run.unit.run, record.resolved.token, by, seconds)


def printed(past: Past, last: int | None) -> at_agent.Printed:
    """What a run has printed; without `last` from the beginning.

    Once two readings agree: journald writes the last of a burst up to 0.3 s after the process is gone.
    """
    ask = at_agent.ToRead(run=past.run, last=last)
    with _reader(past) as read:
        found = read(at_agent.printed, ask)
        for _ in range(3 if just_ended(past.run) else 0):
            select.select([], [], [], _STABLE)
            before, found = found, read(at_agent.printed, ask)
            if before.lines == found.lines:
                break
    return found


@contextlib.contextmanager
def _reader(past: Past) -> Iterator[Callable[[Reading, at_agent.ToRead], at_agent.Printed]]:
    """Carries out what reads a run's lines: as ourselves, for root sees more than the account; else over there."""
    if isinstance(past.account, Account):
        session = at_agent.Session(past.account)
        yield lambda operation, arguments: operation(session, arguments)
        return
    with workers.as_account(past.account) as worker:
        yield lambda operation, arguments: worker.call(operation, arguments, seconds=_READ)


def follow(past: Past, last: int | None) -> Iterator[str]:
    """The lines of a run as they come, until its unit is gone and all is read."""
    this_run = at_agent.OfRun(past.run.resolved.unit, past.run.run)
    with workers.as_account(past.account) as ended:
        if isinstance(past.account, Account):
            ended.ask(at_agent.await_end, this_run, seconds=None)
            yield from journal.follow(past.run, past.account.uid, last=last, until=ended.fileno())
            return
        with workers.as_account(past.account) as reader:
            found = reader.call(at_agent.printed, at_agent.ToRead(run=past.run, last=last), seconds=_READ)
            yield from found.lines
            ended.call(at_agent.does_linger, at_agent.Nothing())  # connected: what it says next is the end
            ended.ask(at_agent.await_end, this_run, seconds=None)
            while True:
                ask = at_agent.ToRead(run=past.run, cursor=found.cursor)
                reader.ask(at_agent.await_print, ask, seconds=None)
                if reader not in select.select([ended, reader], [], [])[0]:
                    break
                found = reader.answer(at_agent.await_print, seconds=None)
                yield from found.lines
        ended.answer(at_agent.await_end, seconds=None)
        yield from _rest(ended, past.run, found.cursor)


def _rest(worker: Worker, run: Run, cursor: str) -> Iterator[str]:
    """What was still on its way to the journal."""
    for _ in range(3):
        select.select([], [], [], _STABLE)
        found = worker.call(at_agent.printed_since, at_agent.ToRead(run=run, cursor=cursor), seconds=_READ)
        yield from found.lines
        cursor = found.cursor


def just_ended(run: Run) -> bool:
    """Whether journald may still be writing its last lines."""
    return run.ended_at is None or time.time() - run.ended_at < 1.0
