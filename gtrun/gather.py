"""Looking at the whole fleet, the board and the ledger at once: what a pass of the scheduler is planned from."""

import time
from collections.abc import Iterable

import msgspec

from gtrun.account import Account
from gtrun.board.reference import open_own
from gtrun.config import Fleet
from gtrun.counters import Book, Mark
from gtrun.names import plain_unit_name
from gtrun.planner import Backlog, Seen, Work, World
from gtrun.reach import operations as at_agent
from gtrun.reach.operations import Glance
from gtrun.state.ledger import Ledger
from gtrun.survey import Answer, survey
from gtrun.systemd.units import is_live, live_count

_WAIT = 10.0
_BOARD_WAIT = 120.0  # seconds: the first look at a large repository reads all of it
_UNKNOWN = "unknown"
"""The result of a run of which there is no record any more: it counts for nobody."""


def look(fleet: Fleet, caller: Account, ledger: Ledger, agents: Iterable[str]) -> dict[str, Answer[Glance]]:
    """Look at these agents: their units, quotas, and the runs of which the ledger knows no end. Raises StateError."""
    asked = {name: at_agent.ToGlance([]) for name in agents}
    for attempt in ledger.going(asked):
        asked[attempt.agent].tokens.append(attempt.token)
    those = map(fleet.agents.__getitem__, asked)
    answers = survey(those, fleet, caller, at_agent.glance, lambda agent: asked[agent.name], seconds=_WAIT)
    return {answer.agent.name: answer for answer in answers}


def note(ledger: Ledger, answers: Iterable[Answer[Glance]]) -> None:
    """Write down how runs have ended that were looked at. Raises StateError."""
    now = time.time()
    with ledger.together():
        for answer in answers:
            for ended in answer.value.ended if answer.value else ():
                # an account writes its own records: it can tell no future
                ledger.end(ended.token, ended.result or _UNKNOWN, min(ended.at, now))


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan is made from. It knows of all runs that were started before `mark`, and maybe of later ones."""

    world: World
    backlog: Backlog
    mark: Mark


class Pile(msgspec.Struct, frozen=True, kw_only=True):
    """The open issues of a board, which has that identity."""

    board: str
    works: list[Work]


def read_board(fleet: Fleet) -> Pile:
    """What is on the board. Raises BoardUnavailable."""
    with open_own(fleet.board, wait=_BOARD_WAIT) as board:
        works = board.open_work(fleet.board.terminal_labels, fleet.board.terminal_glyphs)
        return Pile(board=board.identity, works=[Work(issue, stands) for issue, stands in works])


def gather(fleet: Fleet, caller: Account, ledger: Ledger, *, sweep: str, pile: Pile | None = None) -> Scene:
    """Everything that a pass of that name is planned from, with what is on the board if that was read already.

    Raises BoardUnavailable, StateError.
    """
    mark = ledger.mark()  # before anybody is looked at: what begins and ends from here on may not be seen
    pile = pile or read_board(fleet)
    world, live = _world(fleet, caller, ledger, pile.board, sweep)
    silent = frozenset(name for name, seen in world.seen.items() if seen.problem)
    return Scene(world=world, backlog=Backlog(works=pile.works, live=live, silent=silent), mark=mark)


def world_of(fleet: Fleet, caller: Account, ledger: Ledger) -> World:
    """The fleet without its issues, for the table. Raises StateError."""
    return _world(fleet, caller, ledger, "", "")[0]


def _world(fleet: Fleet, caller: Account, ledger: Ledger, identity: str, sweep: str) -> tuple[World, dict[str, str]]:
    answers = look(fleet, caller, ledger, fleet.agents)
    now = time.time()
    with ledger.together():
        note(ledger, answers.values())
        book = ledger.book(fleet.agents, fleet.rigs, identity, now - fleet.schedule.attempts_decay)
    seen = {name: _seen(name, answer, book) for name, answer in answers.items()}
    live = {
        plain_unit_name(unit.name): name
        for name, answer in answers.items()
        for unit in (answer.value.units if answer.value else ())
        if is_live(unit)
    }
    return World(fleet=fleet, seen=seen, book=book, now=now, sweep=sweep), live


def _seen(name: str, answer: Answer[Glance], book: Book) -> Seen:
    if answer.value is None:
        return Seen(runs=thought_to_run(name, book), problem=answer.problem)
    return Seen(runs=live_count(answer.value.units), quota=answer.value.quota)


def thought_to_run(agent: str, book: Book) -> int:
    """How many runs an agent that does not answer is thought to have: those of which nobody has learned the end."""
    return sum(each == agent for each in book.running.values())
