"""What is owed is posted in order, once, on a real board, and stays owed where that fails."""

import time
from pathlib import Path

import pytest

from gtrun.board.local import LocalBoard
from gtrun.board.reference import open_board
from gtrun.errors import BoardUnavailable, StateError
from gtrun.markers import Kind
from gtrun.model import Ending, Issue, Notice, PullRequest, PullState, Result
from gtrun.names import RunId
from gtrun.state import outbox
from gtrun.state import record as records
from gtrun.state.facts import Begun, Ended, Noticed, Owed, Posted
from gtrun.state.record import Record
from tests.state.test_record import resolved

ENDING = Ending(result=Result.SUCCESS, exit_code=0)


class Boards:
    """Opens real boards; those named in `down` do not answer."""

    def __init__(self):
        self.down = set()
        self.opened = []

    def __call__(self, ref):
        self.opened.append(ref.path)
        if ref.path in self.down:
            raise BoardUnavailable(f"the board {ref.path} is away")
        return open_board(ref, wait=10.0)


@pytest.fixture
def boards():
    return Boards()


@pytest.fixture
def state(tmp_path):
    return str(tmp_path / "state")


@pytest.fixture
def board(tmp_path):
    path = str(tmp_path / "board.db")
    with LocalBoard.open(path, create=True) as made:
        made.add("Mend the roof")
    return path


def owing(state, board, number=0, *facts, of=""):
    """A record of issue 1 on the board (of that identity), with a start that is owed and more."""
    issue = Issue(key="1", title="Mend the roof")
    run = resolved(token=f"{number:032x}", board=board, board_identity=of, issue=issue)
    with records.create(state, run) as record:
        record.append(Begun(RunId(f"{number:032x}"), 1.0), Owed(Kind.STARTED), *facts, Noticed(Notice.RUN_ENDED))
    return record.path


def comments(board):
    with LocalBoard.open(board) as opened:
        return [comment.body for comment in opened.comments("1")]


def kinds(board):
    return [body.split("**")[1] for body in comments(board)]


def flush(state, boards, **more):
    return outbox.flush(state, boards, **{"deadline": time.monotonic() + 10, **more})


def test_in_order_and_once(state, board, boards):
    path = owing(state, board, 0, Ended(ENDING, 2.0))
    assert flush(state, boards) == []
    assert kinds(board) == ["started", "finished"]
    assert not path.exists()
    assert flush(state, boards) == []
    assert kinds(board) == ["started", "finished"]
    assert boards.opened == [board]


def test_posted_but_not_noted_is_not_posted_twice(state, board, boards):
    path = owing(state, board, 0, Ended(ENDING, 2.0))
    before = path.read_bytes()
    flush(state, boards)
    path.write_bytes(before)  # as if the process had died between the posts and their facts
    assert flush(state, boards) == []
    assert kinds(board) == ["started", "finished"]
    assert not path.exists()


def test_two_runs_of_one_issue_have_two_pairs(state, board, boards):
    owing(state, board, 1, Ended(ENDING, 2.0))
    owing(state, board, 2, Ended(ENDING, 2.0))
    flush(state, boards)
    assert sorted(kinds(board)) == ["finished", "finished", "started", "started"]


def test_live_run_gets_its_start_and_stays_open(state, board, boards):
    path = owing(state, board)
    assert flush(state, boards) == []
    assert kinds(board) == ["started"]
    assert records.read(path).posted == ("started",)


def test_only_what_is_missing(state, board, boards):
    owing(state, board, 0, Posted(Kind.STARTED), Ended(ENDING, 2.0))
    flush(state, boards)
    assert kinds(board) == ["finished"]


def test_board_that_is_down_is_asked_once_and_others_are_served(state, board, boards, tmp_path):
    away = str(tmp_path / "away.db")
    boards.down.add(away)
    stay = [owing(state, away, number, Ended(ENDING, 2.0)) for number in (1, 2)]
    goes = owing(state, board, 3, Ended(ENDING, 2.0))
    assert flush(state, boards) == [f"the board {away} is away"]
    assert boards.opened.count(away) == 1
    assert all(path.exists() for path in stay)
    assert not goes.exists()
    assert kinds(board) == ["started", "finished"]


def test_failure_between_the_two_leaves_the_second_owed(state, board, boards, monkeypatch):
    path = owing(state, board, 0, Ended(ENDING, 2.0))
    real = LocalBoard.post

    def only_started(self, key, *, marker=None, **more):
        if "finished" in (marker or ""):
            raise BoardUnavailable("away")
        return real(self, key, marker=marker, **more)

    monkeypatch.setattr(LocalBoard, "post", only_started)
    assert flush(state, boards) == ["away"]
    assert records.read(path).posted == ("started",)
    monkeypatch.undo()
    assert flush(state, boards) == []
    assert kinds(board) == ["started", "finished"]


def test_deadline_and_skip(state, board, boards):
    path = owing(state, board, 0, Ended(ENDING, 2.0))
    assert flush(state, boards, skip=path) == []
    assert flush(state, boards, deadline=time.monotonic() - 1) == []
    assert kinds(board) == []
    assert boards.opened == []


def test_damaged_record_does_not_hold_up_the_others(state, board, boards):
    damaged = records.open_folder(state) / "0.jsonl"
    goes = owing(state, board, 1, Ended(ENDING, 2.0))
    damaged.write_bytes(b"garbage")
    (problem,) = flush(state, boards)
    said, aside = problem.split("; its bytes are kept in ")
    assert said == f"the run record {damaged} is damaged"
    assert Path(aside).read_bytes() == b"garbage"
    assert not damaged.exists()
    assert not goes.exists()


def test_issue_that_is_gone_does_not_hold_up_the_others(state, board, boards):
    run = resolved(token="e" * 32, board=board, issue=Issue(key="99", title="gone"))
    with records.create(state, run) as record:
        record.append(Begun(RunId("e" * 32), 1.0), Owed(Kind.STARTED), Ended(ENDING, 2.0), Noticed(Notice.RUN_ENDED))
    goes = owing(state, board, 1, Ended(ENDING, 2.0))
    problems = flush(state, boards)
    assert problems == [
        f"the {kind} marker of run {'e' * 32} is dropped: there is no issue 99 on the board {board}"
        for kind in ("started", "finished")
    ]
    assert not goes.exists()
    gone = records.read(records.closed_folder(state) / f"{'e' * 32}.jsonl")
    assert (gone.owed, gone.posted) == ((), ())
    assert flush(state, boards) == []


def test_marker_without_its_facts_is_refused(state, board):
    path = owing(state, board)
    run = records.read(path)
    with pytest.raises(StateError, match="has no end"):
        outbox.marker_body(run, Kind.FINISHED)
    with Record(path) as record:
        assert outbox.marker_body(record.run, Kind.STARTED) == outbox.marker_body(run, Kind.STARTED)


def test_a_record_in_use_holds_up_nobody(state, board, boards):
    """As that of a dispatch which waits for the claim lock: what ends meanwhile need not wait with it."""
    path, other = owing(state, board), owing(state, board, 1)
    with Record(path):
        outbox.flush(state, boards, deadline=time.monotonic() + 60)
        assert records.read(other).posted == ("started",)
    assert records.read(path).posted == ()


def with_pull(board, state, **more):
    with LocalBoard.open(board) as opened:
        opened.record_pull_request("1", PullRequest(url="https://git.example/7", state=state, **more))


def test_the_finished_marker_tells_the_pull_requests_as_they_are_when_it_is_tried_first(
    state, board, boards, monkeypatch
):
    """A marker that is tried again has the text of the first time, whatever has become of them meanwhile."""
    path = owing(state, board, 0, Ended(ENDING, 2.0))
    with_pull(board, PullState.OPEN, auto_merge=True)
    with monkeypatch.context() as patch:
        patch.setattr(LocalBoard, "post", lambda *_, **__: (_ for _ in ()).throw(BoardUnavailable("away")))
        assert flush(state, boards) == ["away"]  # it was the started marker that failed: nothing was asked yet
        assert records.read(path).pulls is None
    real = LocalBoard.post

    def only_started(self, key, *, marker=None, **more):
        if "finished" in (marker or ""):
            raise BoardUnavailable("away")
        return real(self, key, marker=marker, **more)

    with monkeypatch.context() as patch:
        patch.setattr(LocalBoard, "post", only_started)
        assert flush(state, boards) == ["away"]
    first = outbox.marker_body(records.read(path), Kind.FINISHED)
    with_pull(board, PullState.MERGED)
    assert flush(state, boards) == []
    assert comments(board)[1] == first
    assert "is open with auto-merge armed, and not merged" in first


def test_pull_requests_that_cannot_be_asked_for_keep_no_marker_back(state, board, boards, monkeypatch):
    owing(state, board, 0, Ended(ENDING, 2.0))
    with monkeypatch.context() as patch:
        patch.setattr(LocalBoard, "pull_requests", lambda *_: (_ for _ in ()).throw(BoardUnavailable("x" * 5000)))
        assert flush(state, boards) == []
    assert kinds(board) == ["started", "finished"]
    assert "whether there is a pull request for this issue could not be asked (xxx" in comments(board)[1]
    assert len(comments(board)[1]) < 1000


def test_many_pull_requests_fit_into_the_reserve(state, board, boards):
    path = owing(state, board, 0, Ended(ENDING, 2.0))
    size = path.stat().st_size
    with LocalBoard.open(board) as opened:
        for number in range(40):
            long = PullRequest(url=f"https://git.example/{number:03}/{'x' * 470}", state=PullState.OPEN)
            opened.record_pull_request("1", long)
    assert flush(state, boards) == []
    assert comments(board)[1].count("is open, and not merged") == 10
    assert (records.closed_folder(state) / path.name).stat().st_size == size


def test_another_board_at_the_path_gets_nothing(state, board, boards):
    """What is owed to the one stays owed, and what is owed to the other does not wait for that."""
    with LocalBoard.open(board) as opened:
        here = opened.identity
    other, mine = owing(state, board, 0, of="f" * 32), owing(state, board, 1, of=here)
    (problem,) = flush(state, boards)
    assert problem == f"the board {board} here is another one than that from which the work was dispatched"
    assert records.read(other).posted == ()
    assert records.read(mine).posted == ("started",)
    assert kinds(board) == ["started"]
