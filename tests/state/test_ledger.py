"""The ledger: an attempt is never lost, a damaged file is kept and replaced, a newer one is left alone."""

import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from gtrun.counters import EVERYBODY, Mark, Pause, Tally
from gtrun.errors import StateError
from gtrun.names import IssueKey, RunId, Token, UnitName
from gtrun.state.claim import Claim
from gtrun.state.ledger import Attempt, Ledger

ATTEMPT = Attempt(
    token=Token("a" * 32), at=1.0, by="alice", dispatcher="boot:1:2", issue=IssueKey("7"), agent="me", account="alice",
    unit=UnitName("task-7.service"), verdicts=(("board", "open", "the board is down"),),
)  # fmt: skip


@pytest.fixture
def state(tmp_path):
    return str(tmp_path / "gtrun")


def aside(state):
    return sorted(path for path in Path(state).iterdir() if ".corrupt-" in path.name and path.name[-4:-3] != "-")


def filled(state, attempts=200):
    """A ledger of several pages, closed."""
    with Ledger(state) as ledger:
        for number in range(attempts):
            ledger.begin(replace(ATTEMPT, token=Token(f"{number:032x}"), reason="x" * 200, verdicts=()), [])
    return Path(state, "ledger.db")


def test_an_attempt_and_its_outcome_come_back(state):
    with Ledger(state) as ledger:
        ledger.begin(ATTEMPT, list(ATTEMPT.verdicts))
        assert ledger.undecided() == [ATTEMPT]
        ledger.decide(ATTEMPT.token, "started", code=0, run=RunId("b" * 32))
    with Ledger(state) as ledger:
        assert ledger.attempts(IssueKey("7")) == [replace(ATTEMPT, outcome="started", code=0, run=RunId("b" * 32))]
        assert ledger.attempts(IssueKey("8")) == []
        assert ledger.undecided() == []
        assert ledger.moved_aside is None


def test_a_ledger_of_the_first_version_is_extended_in_place(state):
    """Under a dispatcher of that version, which goes on to write what it knows."""
    with Ledger(state) as ledger:
        ledger.begin(replace(ATTEMPT, token=Token("0" * 32), board="f" * 32), [])
    old = sqlite3.connect(Path(state, "ledger.db"), isolation_level=None)
    old.execute("DROP TABLE pause")
    old.execute("DROP TABLE slot")
    for index in ("agent", "rig", "of_agent", "on_rig", "going", "ended", "stopped", "succeeded"):
        old.execute(f"DROP INDEX attempt_{index}")
    for column in ("board", "rig", "sweep", "result", "ended_at"):
        old.execute(f"ALTER TABLE attempt DROP COLUMN {column}")
    with Ledger(state) as ledger:
        assert ledger.attempt(Token("0" * 32)).board == ""
        insert = "INSERT INTO attempt (token, at, by, dispatcher, issue, agent, account, unit)"
        old.execute(f"{insert} VALUES (?, 1, 'a', 'b:1:2', '7', 'me', 'a', 'task-7.service')", ("1" * 32,))
        assert ledger.attempt(Token("1" * 32)).board == ""
        ledger.begin(replace(ATTEMPT, board="f" * 32), [])
        assert ledger.attempt(ATTEMPT.token).board == "f" * 32
        assert ledger.attempt(Token("2" * 32)) is None
        assert ledger.book(["me"], ["box"], "f" * 32, 0.0).agents["me"].dispatched == 0
        assert ledger.pause("me", Pause(by="ops", at=1.0))
        assert ledger.learn_slots({"me": "x"}) == {"me"}
    old.close()


def test_an_attempt_is_one_run(state):
    with Ledger(state) as ledger:
        ledger.begin(ATTEMPT, [])
        asked = [ledger.is_run(ATTEMPT.token, RunId(run * 32)) for run in "bcb"]
        assert asked == [True, False, True]
        assert ledger.attempt(ATTEMPT.token).run == "b" * 32
        assert not ledger.is_run(Token("d" * 32), RunId("b" * 32))


def test_what_happened_under_the_lock_comes_back(state):
    opened, refused = ("claim", "open", "no lock"), ("claim", "refuse", "it is live on bob")
    other = replace(ATTEMPT, token=Token("c" * 32), verdicts=())
    with Ledger(state) as ledger:
        for attempt in (ATTEMPT, other):
            ledger.begin(attempt, list(attempt.verdicts))
        ledger.note(ATTEMPT.token, claim=Claim(waited=20.0), verdicts=[opened])
        ledger.decide(other.token, "refused", code=14, claim=Claim(waited=0.5, held=0.25), verdicts=[refused])
        first, second = ledger.attempts(IssueKey("7"))
        assert ledger.undecided() == [first]
    assert first == replace(ATTEMPT, lock_waited=20.0, lock_held=0.0, verdicts=(*ATTEMPT.verdicts, opened))
    assert (second.lock_waited, second.lock_held, second.verdicts) == (0.5, 0.25, (refused,))


def test_its_files_are_private(state):
    os.umask(0)
    try:
        with Ledger(state) as ledger:
            ledger.begin(ATTEMPT, list(ATTEMPT.verdicts))
            modes = {path.name: path.stat().st_mode & 0o777 for path in Path(state).iterdir()}
    finally:
        os.umask(0o022)
    assert Path(state).stat().st_mode & 0o777 == 0o700
    assert set(modes.values()) == {0o600}, modes


@pytest.mark.parametrize(
    "data", [os.urandom(5000), b"SQLite format 3\0" + b"\xff" * 4000, b"{}"], ids=["random", "header", "json"]
)
def test_what_is_no_ledger_is_kept_and_replaced(state, data):
    Path(state).mkdir(0o700)
    Path(state, "ledger.db").write_bytes(data)
    with Ledger(state) as ledger:
        assert ledger.moved_aside is not None
        assert ledger.moved_aside.read_bytes() == data
        ledger.begin(ATTEMPT, list(ATTEMPT.verdicts))
    with Ledger(state) as ledger:
        assert ledger.moved_aside is None
        assert [one.token for one in ledger.attempts(IssueKey("7"))] == [ATTEMPT.token]


def test_a_truncated_ledger_is_kept_and_replaced(state):
    file = filled(state)
    data = file.read_bytes()[:8192]
    file.write_bytes(data)
    with Ledger(state) as ledger:
        assert ledger.moved_aside is not None
        assert ledger.moved_aside.read_bytes() == data


def test_an_empty_file_becomes_a_ledger(state):
    Path(state).mkdir(0o700)
    Path(state, "ledger.db").touch()
    with Ledger(state) as ledger:
        ledger.begin(ATTEMPT, list(ATTEMPT.verdicts))
        assert ledger.moved_aside is None


def test_a_folder_in_its_place_is_kept_and_replaced(state):
    Path(state, "ledger.db").mkdir(parents=True)
    Path(state, "ledger.db", "precious").write_text("x")
    with Ledger(state) as ledger:
        assert ledger.moved_aside is not None
        assert (ledger.moved_aside / "precious").read_text() == "x"
        ledger.begin(ATTEMPT, list(ATTEMPT.verdicts))


def test_damage_that_shows_only_later_is_kept_and_the_next_one_begins_anew(state):
    file = filled(state)
    data = bytearray(file.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    file.write_bytes(data)
    with Ledger(state) as ledger, pytest.raises(StateError, match="is damaged") as caught:
        ledger.begin(ATTEMPT, list(ATTEMPT.verdicts))
    (kept,) = aside(state)
    assert str(kept) in caught.value.message
    assert kept.read_bytes() == data
    with Ledger(state) as ledger:
        ledger.begin(ATTEMPT, list(ATTEMPT.verdicts))
        assert ledger.undecided() == [ATTEMPT]


def test_two_damaged_ledgers_are_both_kept(state):
    Path(state).mkdir(0o700)
    for data in (b"one" * 100, b"two" * 100):
        Path(state, "ledger.db").write_bytes(data)
        with Ledger(state):
            pass
        for log in Path(state).glob("ledger.db-*"):
            log.unlink()
    assert sorted(path.read_bytes()[:3] for path in aside(state)) == [b"one", b"two"]


def test_of_many_that_meet_the_damage_one_moves_it(state):
    """Each of eight processes begins an attempt at once: one damaged file is kept, and no attempt is lost with it."""
    Path(state).mkdir(0o700)
    Path(state, "ledger.db").write_bytes(b"damaged" * 1000)
    script = (
        "import sys; from tests.state.test_ledger import *\n"
        "sys.stdin.read()\n"
        "with Ledger(sys.argv[1]) as ledger: ledger.begin(replace(ATTEMPT, token=Token(sys.argv[2])), [])"
    )
    root = str(Path(__file__).parents[2])
    barrier, gate = os.pipe()
    processes = [
        subprocess.Popen([sys.executable, "-c", script, state, f"{number:032x}"], cwd=root, stdin=barrier, stderr=-1)
        for number in range(8)
    ]
    os.close(barrier)
    os.close(gate)
    for process in processes:
        _, told = process.communicate(timeout=60)
        assert process.returncode == 0, told.decode()
    assert len(aside(state)) == 1
    with Ledger(state) as ledger:
        assert len(ledger.undecided()) == 8


def test_a_newer_schema_is_refused_and_left_alone(state):
    file = filled(state, 1)
    database = sqlite3.connect(file)
    database.execute("PRAGMA user_version = 99")
    database.close()
    before = file.read_bytes()
    with pytest.raises(StateError, match="newer gtrun"):
        Ledger(state)
    assert file.read_bytes() == before
    assert aside(state) == []


def test_a_link_in_place_of_its_folder_is_refused(state, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    Path(state).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match="is not a folder of this account"):
        Ledger(state)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def attempt(number, **more):
    """One attempt of many, which differ in their tokens."""
    return replace(ATTEMPT, **{"token": Token(f"{number:032x}"), "verdicts": (), "rig": "box", **more})


def tried(ledger, number, outcome="started", *, code=0, result=None, ended_at=2.0, **more):
    """An attempt with what came of it, and how its run ended."""
    one = attempt(number, **more)
    ledger.begin(one, [])
    ledger.decide(one.token, outcome, code=code)
    if result:
        ledger.end(one.token, result, ended_at)
    return one


def book(ledger, agents=("me",), rigs=("box",), board="", since=0.0):
    return ledger.book(agents, rigs, board, since)


def test_counters_are_of_attempts_and_of_the_runs_they_came_to(state):
    with Ledger(state) as ledger:
        assert book(ledger).agents == {"me": Tally()}
        tried(ledger, 1, result="success", sweep="a")
        tried(ledger, 2, result="failed", ended_at=3.0, sweep="b")
        tried(ledger, 3, result="quota", ended_at=4.0, sweep="b")
        tried(ledger, 4, "refused", code=11, sweep="c")
        tried(ledger, 5, result="timeout", ended_at=5.0, sweep="c")
        tried(ledger, 6, sweep="c")
        mine = book(ledger).agents["me"]
        assert (mine.dispatched, mine.successes, mine.failures, mine.last_failure_at) == (5, 1, 2, 5.0)
        assert (mine.last_sweep, mine.last_dispatch_count) == ("c", 2)
        assert abs(mine.last_dispatch_at - time.time()) < 60
        rig = book(ledger).rigs["box"]
        assert (rig.dispatched, rig.failures) == (5, 0)  # that runs failed is no reason to spare the box
        tried(ledger, 7, result="success", ended_at=6.0)
        assert book(ledger).agents["me"].failures == 0


def test_a_launch_that_failed_counts_for_its_agent_and_several_agents_for_their_rig(state):
    with Ledger(state) as ledger:
        tried(ledger, 1, "failed", code=1)
        tried(ledger, 2, "failed", code=130)  # somebody typed ^C
        assert book(ledger).agents["me"].failures == 1
        assert book(ledger).rigs["box"].failures == 0
        tried(ledger, 3, "failed", code=69, agent="other")
        assert book(ledger).rigs["box"].failures == 2
        tried(ledger, 4)
        assert book(ledger).rigs["box"].failures == 0
        assert book(ledger).agents["me"].failures == 1  # it was started, and nobody knows yet what comes of it
        assert book(ledger).failed == {}  # an allocation that failed costs the issue nothing


def test_a_plugin_counts_for_what_its_agent_was_given_and_not_for_its_failures(state):
    key = IssueKey("plugin:disk")
    with Ledger(state) as ledger:
        tried(ledger, 1, result="failed")
        tried(ledger, 2, result="success", ended_at=3.0, issue=key, digest="a")
        tried(ledger, 3, result="failed", ended_at=4.0, issue=key, digest="b")
        found = book(ledger).agents["me"]
        assert (found.dispatched, found.failures) == (3, 1)
        assert [one.digest for one in ledger.attempts(key)] == ["a", "b"]
        assert ledger.last_success(key) == 3.0
        assert ledger.last_success(IssueKey("plugin:other")) is None


def test_failures_stay_in_sight_behind_any_number_of_plugins(state):
    with Ledger(state) as ledger:
        for number in range(3):
            tried(ledger, number, result="failed", ended_at=2.0 + number)
        for number in range(10, 130):
            tried(ledger, number, result="success", ended_at=float(number), issue=IssueKey("plugin:disk"), sweep="a")
        found = book(ledger)
        assert found.agents["me"].failures == 3
        assert (found.agents["me"].last_sweep, found.agents["me"].last_dispatch_count) == ("a", 100)


def test_no_run_ends_before_its_attempt(state):
    with Ledger(state) as ledger:
        one = tried(ledger, 1, at=100.0, result="failed", ended_at=7.0)  # its box has a slow clock
        assert ledger.attempt(one.token).ended_at == 100.0


def test_the_ends_that_are_not_known_are_of_what_may_have_run(state):
    key = IssueKey("plugin:disk")
    with Ledger(state) as ledger:
        assert ledger.last_started(key) == ""
        tried(ledger, 1, result="success", issue=key)
        tried(ledger, 2, outcome="refused", code=10, issue=key)
        tried(ledger, 3, outcome="failed", code=1, issue=key)
        tried(ledger, 4, issue=key)
        ledger.begin(attempt(5, issue=key), [])
        assert [one.token for one in ledger.open_ends(key)] == [attempt(4).token, attempt(5).token]
        assert ledger.last_started(key) == attempt(4).token


def test_what_was_started_since_a_moment_is_known_also_if_it_was_begun_before(state):
    key = ATTEMPT.issue
    with Ledger(state) as ledger:
        assert not ledger.has_started(key, "", ledger.mark())
        tried(ledger, 1, result="success")
        ledger.begin(attempt(2), [])
        mark = ledger.mark()
        assert (mark.last, mark.undecided) == (2, {attempt(2).token})
        tried(ledger, 3, "refused", code=11)
        tried(ledger, 4, issue=IssueKey("8"))
        tried(ledger, 5, board="c" * 32)
        assert not ledger.has_started(key, "b" * 32, mark)
        ledger.decide(attempt(2).token, "started", code=0)
        assert ledger.has_started(key, "b" * 32, mark)
        mark = ledger.mark()
        assert not ledger.has_started(key, "b" * 32, mark)
        tried(ledger, 6, result="success")
        assert ledger.has_started(key, "b" * 32, mark)


def test_failures_of_one_pass_are_one(state):
    with Ledger(state) as ledger:
        for number in range(4):
            tried(ledger, number, result="failed", ended_at=2.0 + number, sweep="one")
        assert book(ledger).agents["me"].failures == 1
        tried(ledger, 5, result="failed", ended_at=9.0, sweep="two")
        assert book(ledger).agents["me"].failures == 2


def test_what_failed_of_an_issue_is_of_its_board_and_not_older_than_asked(state):
    with Ledger(state) as ledger:
        for number, (result, at, board) in enumerate(
            [("failed", 10.0, "b" * 32), ("lost", 20.0, "b" * 32), ("oom-kill", 30.0, ""), ("failed", 40.0, "c" * 32),
             ("quota", 50.0, "b" * 32), ("stopped", 60.0, "b" * 32), ("disposed", 70.0, "b" * 32)]
        ):  # fmt: skip
            tried(ledger, number, result=result, ended_at=at, board=board)
        assert book(ledger, board="b" * 32).failed == {"7": [10.0, 20.0, 30.0]}
        assert book(ledger, board="b" * 32).succeeded == {}
        for number, at in ((20, 90.0), (21, 80.0)):
            tried(ledger, number, result="success", ended_at=at, board="b" * 32, issue=IssueKey("8"))
        assert book(ledger, board="b" * 32).succeeded == {"8": 90.0}
        assert book(ledger, board="b" * 32, since=99.0).succeeded == {"8": 90.0}  # which is not forgotten with time
        assert book(ledger, board="c" * 32).succeeded == {}
        assert ledger.last_success(IssueKey("8"), "b" * 32) == 90.0
        assert ledger.last_success(IssueKey("8"), "c" * 32) is None
        assert book(ledger, board="b" * 32, since=10.0).failed == {"7": [20.0, 30.0]}


def test_what_goes_on_is_known_until_its_end_is(state):
    with Ledger(state) as ledger:
        started, under_way = tried(ledger, 1), attempt(2, issue=IssueKey("8"))
        ledger.begin(under_way, [])
        tried(ledger, 3, "failed", code=1, issue=IssueKey("9"))
        assert [one.token for one in ledger.going(["me"])] == [started.token]
        assert ledger.going(["other"]) == []
        assert book(ledger).running == {"7": "me", "8": "me"}
        ledger.end(started.token, "success", 5.0)
        ledger.end(started.token, "failed", 6.0)  # a second look changes nothing
        assert ledger.going(["me"]) == []
        (told,) = ledger.attempts(IssueKey("7"))
        assert (told.result, told.ended_at) == ("success", 5.0)


def test_what_was_stopped_by_hand_is_until_it_is_started_again(state):
    with Ledger(state) as ledger:
        tried(ledger, 1, result="stopped-by-hand", ended_at=5.0)
        tried(ledger, 2, result="stopped", ended_at=6.0, issue=IssueKey("8"))
        tried(ledger, 3, "refused", code=11)
        assert book(ledger, since=100.0).stopped == {"7": 5.0}
        assert book(ledger).agents["me"].failures == 0
        tried(ledger, 4)
        assert book(ledger).stopped == {}


def test_a_pause_stays_until_it_is_taken_back_whatever_is_recorded(state):
    with Ledger(state) as ledger:
        assert ledger.pause("me", Pause(by="ops", at=1.0))
        assert not ledger.pause("me", Pause(by="carol", at=2.0))
        assert ledger.pause(EVERYBODY, Pause(by="ops", at=3.0))
        tried(ledger, 1, result="success")
        tried(ledger, 2, "failed", code=1)
        tried(ledger, 3, "refused", code=10)
        assert ledger.pauses() == {EVERYBODY: Pause(by="ops", at=3.0), "me": Pause(by="ops", at=1.0)}
    with Ledger(state) as ledger:
        assert book(ledger).pauses == ledger.pauses()
        assert ledger.resume("me")
        assert not ledger.resume("me")
        assert list(ledger.pauses()) == [EVERYBODY]


def test_the_queries_of_a_pass_use_their_indexes(state):
    """A ledger is never pruned: what is asked under the claim lock must not grow with it.

    What is asked outside of it may: the last success of each issue.
    """
    with Ledger(state) as ledger:
        asked = []
        ledger._db.set_trace_callback(asked.append)
        book(ledger)
        ledger.going(["me"])
        ledger.has_started(ATTEMPT.issue, "", Mark())
        ledger.last_success(ATTEMPT.issue)
        ledger._db.set_trace_callback(None)
        queries = [one for one in asked if "FROM attempt" in one]
        assert len(queries) == 13
        (outside,) = [one for one in queries if "max (ended_at)" in one and "GROUP BY" in one]
        queries.remove(outside)
        (plan,) = [row[3] for row in ledger._db.execute(f"EXPLAIN QUERY PLAN {outside}")]
        assert plan == "SCAN attempt USING COVERING INDEX attempt_succeeded"
        for query in queries:
            plans = [row[3] for row in ledger._db.execute(f"EXPLAIN QUERY PLAN {query}")]
            assert all("USING" in one or "TEMP B-TREE" not in one for one in plans), (query, plans)
            assert not any(one.startswith("SCAN") for one in plans), (query, plans)


def test_who_keeps_nothing_changes_nothing(state):
    """Not a byte, also where there is no ledger, where it is older, and where it is damaged."""
    with Ledger(state, keep=False) as ledger, ledger.together():
        ledger.begin(ATTEMPT, [])
        assert ledger.undecided() == [replace(ATTEMPT, verdicts=())]
    assert not Path(state).exists()

    path = filled(state, 3)
    before = path.read_bytes()
    with Ledger(state, keep=False) as ledger:
        with ledger.together():
            ledger.end(Token(f"{1:032x}"), "success", 5.0)
            with ledger.together():
                ledger.end(Token(f"{2:032x}"), "failed", 5.0)
            book = ledger.book(["me"], [], "", 0.0)
            assert (book.failed, book.succeeded) == ({IssueKey("7"): [5.0]}, {IssueKey("7"): 5.0})
        assert [one.result for one in ledger.attempts(IssueKey("7"))] == [None, None, None]
    assert path.read_bytes() == before

    older = sqlite3.connect(path, isolation_level=None)
    older.execute("DROP INDEX attempt_succeeded")
    older.execute("ALTER TABLE attempt DROP COLUMN board")
    older.close()
    before = path.read_bytes()
    with Ledger(state, keep=False) as ledger:
        assert len(ledger.attempts(IssueKey("7"))) == 3
    assert path.read_bytes() == before

    path.write_bytes(b"no ledger")
    with pytest.raises(StateError, match="cannot be used"):
        Ledger(state, keep=False)
    assert [file.name for file in Path(state).iterdir()] == ["ledger.db"]


def test_what_is_written_together_is_kept(state):
    filled(state, 2)
    with Ledger(state) as ledger, ledger.together():
        ledger.end(Token(f"{1:032x}"), "success", 5.0)
    with Ledger(state) as ledger:
        assert [one.result for one in ledger.attempts(IssueKey("7"))] == [None, "success"]


def test_what_was_last_told_of_slots_is_news_once(state):
    with Ledger(state) as ledger:
        assert ledger.learn_slots({"a": "SLOT_OPEN free 0", "b": ""}) == {"a"}
        assert ledger.learn_slots({"a": "SLOT_OPEN free 0", "b": ""}) == set()
        assert ledger.learn_slots({"b": "SLOT_BLOCKED dark 1"}) == {"b"}
    with Ledger(state) as ledger:
        assert ledger.learn_slots({"a": "", "b": "SLOT_BLOCKED dark 1"}) == {"a"}
        assert ledger.learn_slots({"a": "SLOT_OPEN free 0"}) == {"a"}


def test_an_outcome_is_news_once(state):
    with Ledger(state) as ledger:
        one = attempt(1)
        ledger.begin(one, [])
        assert ledger.decide(one.token, "failed", code=1)
        assert not ledger.decide(one.token, "failed", code=1)
        assert not ledger.decide(attempt(2).token, "failed", code=1)
