"""What the guards ask, and asking them."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gtrun.account import Account
from gtrun.board import disposal
from gtrun.board.reference import open_own
from gtrun.config import Agent, Fleet
from gtrun.counters import Mark, ledger_result
from gtrun.errors import AgentTaken, BoardUnavailable, Refused
from gtrun.guards import Guard, Open, Question, Refuse
from gtrun.guards.verdict import BoardView, FleetView, Past
from gtrun.machine import machine_id
from gtrun.model import BoardRef, Issue, ResolvedRun
from gtrun.names import UNIT_GLOBS, IssueKey, Token, plain_unit_name, plugin_name, unit_name, unit_names
from gtrun.quota import QuotaFile
from gtrun.reach import operations as at_agent
from gtrun.reach.operations import Prepared
from gtrun.request import Request, resolved, resolved_plugin
from gtrun.state.ledger import Attempt, Ledger, Verdicts
from gtrun.survey import Team, survey
from gtrun.systemd.units import UnitState, live_count

if TYPE_CHECKING:
    from gtrun.planner import Availability

_BOARD_WAIT = 6.0  # seconds: two thousand comments are twenty pages of GitHub
_PROBE_WAIT = 5.0
_PREPARE_WAIT = 20.0
_SLOWEST = 1 << 18  # bytes a second in which a plugin travels, and is looked at


Say = Callable[[str], None]
"""Where warnings go: one line each."""


class Asked:
    """The answers that the guards ask for, each fetched when it is first needed."""

    def __init__(self, fleet: Fleet, request: Request, team: Team, ledger: Ledger | None = None) -> None:
        """Nothing is asked yet. With a ledger an automatic pick is also asked for what its agent can take."""
        self._fleet = fleet
        self._request = request
        self.team = team
        self._board: BoardView | None = None
        self._probe: FleetView | None = None
        self._runs: dict[str, int] = {}
        self._past: Past | None = None
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
            availability=partial(self._availability, ledger) if request.sweep and ledger is not None else None,
            ready_label=fleet.board.ready_label,
            is_overtaken=partial(self._is_overtaken, ledger, request.planned)
            if request.planned is not None and ledger is not None
            else None,
            tries_again=fleet.schedule.retry is not None,
            cooldown=self._cooldown(),
            past=partial(self._past_of_plugin, ledger) if ledger is not None else None,
        )

    def board(self) -> BoardView:
        """One reading of the board for all who ask."""
        if self._board is None:
            self._board = _view(self._fleet, self._request.issue)
        return self._board

    def issue(self) -> Issue:
        """The issue as far as the board tells it."""
        return self.board().issue or Issue(key=self._request.issue, title="(the board did not answer)")

    def run(self, agent: Agent, token: Token, *, may_write: bool) -> ResolvedRun:
        """The run that is asked for, but for what only the agent's account can tell. Raises LaunchFailed, ConfigError.

        `may_write` as for `board_ref`.
        """
        if self._request.is_plugin:
            return resolved_plugin(self._fleet, agent, token, self._request)
        board, comments = self.board_ref(may_write=may_write), self.board().comments
        return resolved(self._fleet, agent, token, self.issue(), comments, board=board, by=self._request.by)

    def prepared(self, agent: Agent, run: ResolvedRun, *, keep: bool) -> Prepared:
        """Have the agent's account check it, and with `keep` write its record. Raises what `prepare` raises."""
        wanted = at_agent.ToPrepare(run, agent.run.prompt, keep=keep, payload=self._request.payload)
        seconds = _PREPARE_WAIT + len(self._request.payload) / _SLOWEST
        return self.team.target.call(at_agent.prepare, wanted, seconds=seconds)

    def board_ref(self, *, may_write: bool) -> BoardRef:
        """Which board the run is of. A board of an older gtrun is given an identity for that, if it may be."""
        config, told = self._fleet.board, self.board()
        identity = told.identity
        if may_write and not identity and not told.problem:
            with contextlib.suppress(BoardUnavailable), open_own(config, wait=_BOARD_WAIT) as board:
                identity = board.identify()
        return BoardRef(config.path, identity, machine_id(), config.github)

    def _quota(self) -> QuotaFile:
        return self.team.target.call(at_agent.read_quota, at_agent.Nothing())

    def units(self) -> list[UnitState]:
        """The issue's units on the agent itself, as of the last probe. Raises NoManager: without one nothing starts."""
        if self._probe is None:
            self.probe()
        return list(self._probe.units[self._request.target]) if self._probe else []

    def probe(self) -> FleetView:
        """Ask every agent that answers for the issue's units, at once; for an automatic pick all, to count them.

        Raises NoManager.
        """
        globs = unit_names(self._request.issue) if self.question.availability is None else [*UNIT_GLOBS]
        units = self.team.ask_all(at_agent.list_units, at_agent.Patterns(globs), seconds=_PROBE_WAIT)
        if self.question.availability is not None:
            self._runs = {name: live_count(each) for name, each in units.items()}
            name = unit_name(self._request.issue)
            units = {agent: [u for u in each if plain_unit_name(u.name) == name] for agent, each in units.items()}
        self._probe = FleetView(units, self.team.silent, self.problem)
        return self._probe

    def _availability(self, ledger: Ledger) -> "Availability":
        """What the agent can take by itself, by the last probe and the ledger as it is now. Raises StateError."""
        from gtrun.planner import Seen, World, of_agent  # noqa: PLC0415 - only an automatic pick asks

        agent = self._fleet.agents[self._request.target]
        beside = [name for name, one in self._fleet.agents.items() if one.rig == agent.rig]
        now, book = time.time(), ledger.targets([agent.name], [agent.rig])
        silent = [name for name in beside if name not in self._runs]
        thought = Counter(one.agent for one in ledger.going(silent)) if silent else Counter[str]()
        seen = {name: Seen(runs=self._runs.get(name, thought[name])) for name in beside}
        request = self._request
        return of_agent(World(
            fleet=self._fleet, seen=seen, book=book, now=now, sweep=request.sweep, is_for_plugin=request.is_plugin,
        ), agent)  # fmt: skip

    def _is_overtaken(self, ledger: Ledger, planned: Mark) -> bool:
        """Whether a run of the issue was started since then, by the ledger as it is now. Raises StateError."""
        return ledger.has_started(self._request.issue, self.board().identity, planned)

    def _cooldown(self) -> float | None:
        name = plugin_name(self._request.issue)
        profile = self._fleet.plugins.get(name) if name is not None else None
        return profile.cooldown if profile is not None else None

    def _past_of_plugin(self, ledger: Ledger) -> Past:
        """What the ledger knows of the plugin's runs; the first time it learns first how they have ended.

        Raises StateError.
        """
        key = self._request.issue
        if self._past is not None:
            newest = ledger.last_started(key)
            return replace(self._past, newest=newest, is_overtaken=newest != self._past.newest)
        ends, problem = _ends_of(self._fleet, self.team.caller, ledger.open_ends(key))
        with ledger.together():
            for token, result, at in ends:
                ledger.end(token, result, at)
            self._past = Past(ledger.last_success(key), ledger.last_started(key), problem=problem)
        return self._past


def _ends_of(fleet: Fleet, caller: Account, attempts: Iterable[Attempt]) -> tuple[list[tuple[Token, str, float]], str]:
    """How these have ended by now, as (token, result, when), and why that of one is not known, or nothing."""
    tokens: dict[str, list[Token]] = {}
    for attempt in attempts:
        tokens.setdefault(attempt.agent, []).append(attempt.token)
    asked = [agent for agent in fleet.agents.values() if agent.name in tokens]
    ends: list[tuple[Token, str, float]] = []
    problem = ""
    for answer in survey(asked, fleet, caller, at_agent.runs_by_token, lambda one: at_agent.Tokens(tokens[one.name])):
        if answer.value is None:
            problem = f"how its run on {answer.agent.name} ended is not known: {answer.problem}"
            continue
        now = time.time()
        ends += [
            (run.resolved.token, result, min(run.ended_at or 0.0, now))  # it writes its own records: it tells no future
            for run in answer.value.runs
            if run.resolved.token in tokens[answer.agent.name] and (result := ledger_result(run))
        ]
    return ends, problem


def _view(fleet: Fleet, key: IssueKey) -> BoardView:
    try:
        config = fleet.board
        with open_own(config, wait=_BOARD_WAIT) as board:
            issue = board.issue(key)
            # what is over by its state or a label is that also if its comments cannot be had
            may_be_work = (
                issue is not None and disposal(issue, (), config.terminal_labels, config.terminal_glyphs) is None
            )
            comments = tuple(board.comments(key)) if may_be_work else ()
            return BoardView(issue, comments, identity=board.identity)
    except BoardUnavailable as error:
        return BoardView(problem=error.message, hint=error.hint)


def ask(guards: Iterable[Guard], question: Question, say: Say) -> tuple[Verdicts, Refuse | None]:
    """Each guard in its order: what they said other than pass, as (guard, verdict, reason), and the first refusal."""
    verdicts: Verdicts = []
    for name, check in guards:
        match check(question):
            case Refuse() as refusal:
                return [*verdicts, (name, "refuse", refusal.reason)], refusal
            case Open() as told:
                verdicts.append((name, "open", told.reason))
                say(f"{name} guard failed open: {told.reason}")
                if told.hint:
                    say(f"hint: {told.hint}")
    return verdicts, None


def refused(refusal: Refuse) -> Refused:
    """A refusal as the error that ends the dispatch."""
    kind = AgentTaken if refusal.is_of_agent else Refused
    return kind(refusal.reason, hint=refusal.hint, code=refusal.code)
