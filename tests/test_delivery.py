"""What an agent says of its runs is believed as far as the ledger knows them; what it owes is handed over in pages."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gtrun import delivery
from gtrun.account import Account
from gtrun.board.local import LocalBoard
from gtrun.config import Agent, Fleet
from gtrun.config.parse import parse
from gtrun.delivery import Delivery
from gtrun.markers import Kind
from gtrun.model import Ending, Issue, Notice, PullRequest, PullState, ResolvedRun, Result, Run
from gtrun.names import IssueKey, RunId, Token, UnitName
from gtrun.reach import operations as at_agent
from gtrun.reach.operations import Delivered, Session
from gtrun.state import record as records
from gtrun.state.facts import Begun, Ended, Fact, Noticed, Owed, Posted, PullsSeen
from gtrun.state.ledger import Attempt, Ledger
from gtrun.state.record import Record
from tests.state.test_record import resolved

RUN, OTHER = RunId("b" * 32), RunId("c" * 32)
TOKEN = Token("a" * 32)
ENDING = Ending(result=Result.SUCCESS, exit_code=0)
ATTEMPT = Attempt(
    token=TOKEN, at=1.0, by="ops", dispatcher="boot:1:2", issue=IssueKey("7"), agent="bob", account="bob",
    unit=UnitName("task-7.service"), outcome="started", run=RUN,
)  # fmt: skip


@pytest.fixture
def board(tmp_path: Path) -> Iterator[LocalBoard]:
    with LocalBoard.open(str(tmp_path / "board.db"), create=True) as board:
        yield board


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(str(tmp_path / "ops")) as ledger:
        yield ledger


@pytest.fixture
def fleet(board: LocalBoard) -> Fleet:
    toml = f'[board]\npath = "{board.path}"\n[run]\ncommand = ["x"]\n[rigs.box2]\nhost = "box2"\n'
    toml += 'gtrun = "/opt/gtrun/bin/gtrun"\n[agents.bob]\nrig = "box2"\naccount = "bob"\n'
    return parse(toml.encode(), "F", caller="ops", home="/home/ops", board="/b", lock="/l")


def told(board: LocalBoard, /, **changes: object) -> Run:
    """What bob says of his run of issue 7."""
    run: ResolvedRun = resolved(
        token=TOKEN, agent="bob", rig="box2", board=str(board.path), board_identity=board.identity
    )
    run = replace(run, **changes)
    return Run(resolved=run, run=RUN, begun_at=2.0, owed=("started",))


def believed(run: Run, ledger: Ledger, board: LocalBoard, fleet: Fleet) -> tuple[list[Run], list[str]]:
    outcome = Delivery()
    bob: Agent = fleet.agent("bob")
    return list(delivery._believed([run], bob, fleet, board, ledger, outcome)), outcome.problems


def test_the_ledgers_words_take_the_place_of_the_agents(board: LocalBoard, ledger: Ledger, fleet: Fleet) -> None:
    ledger.begin(replace(ATTEMPT, board=board.identity), [])
    lie = told(board, agent="alice", rig="box1\n\n**done**", unit=UnitName("task-1.service` x"))
    ((run,), problems) = believed(lie, ledger, board, fleet)
    assert (run.resolved.agent, run.resolved.rig, run.resolved.unit) == ("bob", "box2", "task-7.service")
    assert (run.resolved.issue, problems) == (Issue(key=IssueKey("7"), title=""), [])


def test_the_second_unit_of_an_issue_keeps_its_name(board: LocalBoard, ledger: Ledger, fleet: Fleet) -> None:
    ledger.begin(ATTEMPT, [])
    ((run,), _) = believed(told(board, unit=UnitName("task-7-dup2.service")), ledger, board, fleet)
    assert run.resolved.unit == "task-7-dup2.service"


@pytest.mark.parametrize(
    ("attempt", "why"),
    [
        ({"token": Token("0" * 32)}, "the ledger has no such attempt"),
        ({"issue": IssueKey("8")}, "the attempt was at issue 8 on bob"),
        ({"agent": "alice"}, "the attempt was at issue 7 on alice"),
        ({"outcome": "refused", "run": None}, "the attempt was refused"),
        ({"run": OTHER}, "the attempt came to another run"),
        ({"board": "f" * 32}, "it is of another board than "),
    ],
)
def test_what_the_ledger_does_not_know_is_told_and_not_posted(
    attempt: dict[str, object], why: str, board: LocalBoard, ledger: Ledger, fleet: Fleet
) -> None:
    ledger.begin(replace(ATTEMPT, **attempt), [])
    runs, (problem,) = believed(told(board), ledger, board, fleet)
    assert runs == []
    assert problem.startswith(f"what it owes to issue 7 is not posted: {why}")
    assert problem.endswith(f"(attempt {TOKEN})")


@pytest.mark.parametrize("run", [None, RunId(""), RunId("B" * 32), RunId(f"{RUN}\n")])
def test_what_names_no_run_is_not_posted(run: RunId | None, board: LocalBoard, ledger: Ledger, fleet: Fleet) -> None:
    ledger.begin(replace(ATTEMPT, run=None), [])
    runs, (problem,) = believed(replace(told(board), run=run), ledger, board, fleet)
    assert runs == []
    assert "it names no run" in problem
    assert ledger.attempt(TOKEN) == replace(ATTEMPT, run=None)


def test_an_attempt_whose_run_was_not_known_is_that_one_from_now_on(
    board: LocalBoard, ledger: Ledger, fleet: Fleet
) -> None:
    ledger.begin(replace(ATTEMPT, outcome=None, run=None), [])
    assert believed(told(board), ledger, board, fleet)[1] == []
    runs, (problem,) = believed(replace(told(board), run=OTHER), ledger, board, fleet)
    assert runs == []
    assert "the attempt came to another run" in problem


def test_a_run_from_before_there_were_identities_counts_by_its_path(
    board: LocalBoard, ledger: Ledger, fleet: Fleet
) -> None:
    ledger.begin(ATTEMPT, [])
    assert believed(told(board, board_identity=""), ledger, board, fleet)[1] == []
    runs, (problem,) = believed(told(board, board_identity="", board="/other.db"), ledger, board, fleet)
    assert runs == []
    assert f"it is of another board than {board.path}" in problem


# --- as the agent's account


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(Account("bob", 1000, 1000, str(tmp_path), str(tmp_path / "state"), str(tmp_path)))


def owing(session: Session, number: int, *facts: Fact, command: str = "x") -> Path:
    run = resolved(token=f"{number:032x}", prompt="p" * 99, command=(command,))
    with records.create(session.account.state, run) as record:
        record.append(Begun(RunId(f"{number:032x}"), 1.0), Owed(Kind.STARTED), *facts, Noticed(Notice.RUN_ENDED))
    return record.path


def test_pages_have_every_run_once_and_nothing_that_no_marker_tells(session: Session) -> None:
    count = 2 * at_agent.PAGE + 3
    for number in range(count):
        owing(session, number, command="x" * 50_000)
    owing(session, count, Posted(Kind.STARTED))
    pages = [at_agent.undelivered(session, at_agent.ToDeliver(""))]
    while pages[-1].more:
        pages.append(at_agent.undelivered(session, at_agent.ToDeliver(pages[-1].runs[-1].resolved.token)))
    assert [len(page.runs) for page in pages] == [at_agent.PAGE, at_agent.PAGE, 3]
    assert [int(run.resolved.token, 16) for page in pages for run in page.runs] == list(range(count))
    first = pages[0].runs[0].resolved
    assert (first.command, first.prompt, first.environment, first.issue.title) == ((), "", {}, "")


def test_what_is_delivered_is_noted_and_closes_what_has_ended(session: Session) -> None:
    live, ended = owing(session, 1), owing(session, 2, Ended(ENDING, 2.0))
    pull = PullRequest(url="https://git.example/7", state=PullState.OPEN)
    seen, later = PullsSeen((pull,)), PullsSeen(())
    tokens = [Token(path.stem) for path in (live, ended)]
    for facts, posted in ((seen, ()), (later, ()), (None, (Kind.STARTED, Kind.FINISHED))):
        runs = [Delivered(token=token, pulls=facts, posted=posted) for token in tokens]
        noted = at_agent.note_delivered(session, at_agent.ToNote(runs))
        assert (noted.noted, noted.problems) == (tokens, [])
    assert (noted.posted, noted.settled) == (3, 3)
    assert records.read(live).posted == ("started",)
    assert records.read(live).pulls is None
    closed = records.read(records.closed_folder(session.account.state) / ended.name)
    assert (closed.posted, closed.pulls) == (("started", "finished"), (pull,))


def test_a_marker_that_nobody_will_read_is_dropped(session: Session, board: LocalBoard) -> None:
    path = owing(session, 1, Ended(ENDING, 2.0))
    outcome = Delivery()
    told = delivery._post_those_of(records.read(path), board, outcome)
    gone = f"there is no issue 7 on the board {board.path}"
    assert told == Delivered(token=Token(path.stem), dropped=((Kind.STARTED, gone), (Kind.FINISHED, gone)))
    run = f"{1:032x}"
    assert outcome.problems == [
        f"the {kind} marker of run {run} is dropped: {gone}" for kind in ("started", "finished")
    ]
    noted = at_agent.note_delivered(session, at_agent.ToNote([told]))
    assert (noted.posted, noted.settled, noted.problems) == (0, 2, [])
    assert not path.exists()


def test_a_record_in_use_is_left_alone(session: Session) -> None:
    path = owing(session, 1)
    with Record(path):
        told = [Delivered(token=Token(path.stem), posted=(Kind.STARTED,)), Delivered(token=Token("f" * 32))]
        noted = at_agent.note_delivered(session, at_agent.ToNote(told))
    assert (noted.noted, noted.posted, noted.problems) == ([], 0, [])
    assert records.read(path).posted == ()
