"""A local board and an agent on another box: where the board is not, and where the same path leads to another one."""

from __future__ import annotations

import re
import signal
from functools import partial

import pytest

from harness.barrier import Barrier
from harness.control import Edit, Mutant, kill, prepare
from harness.pair import Pair, booted
from harness.scenarios.test_two_boxes import BOARD, NO_BOARD, comments, furnish, spawn
from harness.scene import Scene

BEFORE_TELLING = Barrier("before-telling", "delivery.py", "    _note(fleet, caller, posted, told)")

ANOTHER = f"the board {BOARD}/board.db here is another one than that from which the work was dispatched"


def has_come_to_its_marker(ops: Scene, issue: str) -> bool:
    """Whether the issue's run has asked the board, whatever came of it."""
    (run,) = ops.runs(issue)
    return bool(run["markers_owed"] or run["markers_posted"] or run["ending"])


def another_board_at_the_path(pair: Pair) -> None:
    """Box2 has a board of its own there, with the same numbers: its closed issue disposes of nothing, and it stays."""
    one, two = furnish(pair)
    pair.box2.run("install", "-d", "-m", "2770", "-g", "gtrun", BOARD)
    closed_there, open_there = one.issue(), one.issue()
    assert (two.issue(), two.issue()) == (closed_there, open_there)
    two.gtrun("board", "close", closed_there)
    for issue in (closed_there, open_there):
        assert one.gtrun("dispatch", "bob", issue).err == ""
        pair.box1.wait_for("the run's words", partial(has_come_to_its_marker, one, issue), timeout=20)
    one.gtrun("stop", "--all")
    results = [one.results(issue) for issue in (closed_there, open_there)]
    assert results == [["stopped"], ["stopped"]], f"results are {results}"
    assert two.asks("board", "show", closed_there)["comments"] == []
    assert comments(two, open_there) == [], f"written to the other board by {comments(two, open_there)}"
    for issue in (closed_there, open_there):
        (run,) = one.runs(issue)
        assert (run["markers_owed"], run["markers_posted"]) == (["started", "finished"], [])
        assert f"gtrun: whether this is still work could not be asked: {ANOTHER}" in one.asks("logs", issue)["lines"]
    bad = [each["what"] for each in one.asks("doctor", check=1)["findings"] if not each["is_fine"]]
    assert bad == [f"{ANOTHER}: what its runs have to say waits for `gtrun reconcile`"]

    told = one.asks("reconcile")
    assert (told["posted"], told["owing"], told["problems"]) == (4, 0, [])
    for issue in (closed_there, open_there):
        assert one.kinds(issue) == ["started", "finished"]
        assert two.asks("board", "show", issue)["comments"] == []


def test_another_board_at_the_path(pair: Pair) -> None:
    another_board_at_the_path(pair)


def starts_and_stops(one: Scene, issue: str) -> None:
    """A run of the issue by bob, who has something to say of it then."""
    assert one.gtrun("dispatch", "bob", issue).err == ""
    one.box.wait_for("the run's words", partial(has_come_to_its_marker, one, issue), timeout=20)
    one.gtrun("stop", issue)


def test_the_claim_host_posts_for_a_box_without_the_board(pair: Pair) -> None:
    """At each reconcile, also while the run lives; and once, if it is killed before bob has heard of it."""
    prepare(pair, [BEFORE_TELLING.edit])
    one, _ = furnish(pair)
    issue = one.issue()
    assert one.gtrun("dispatch", "bob", issue).err == ""
    pair.box1.wait_for("the run's words", partial(has_come_to_its_marker, one, issue), timeout=20)
    told = one.asks("reconcile")
    assert (told["posted"], told["owing"], told["problems"]) == (1, 0, [])
    assert one.kinds(issue) == ["started"]

    one.gtrun("stop", issue)
    BEFORE_TELLING.close(one)
    typed = spawn(one, "reconcile")
    BEFORE_TELLING.wait_for(one)
    pair.box1.signal(typed, signal.SIGKILL)
    typed.communicate(timeout=20)
    BEFORE_TELLING.open(one)
    (run,) = one.runs(issue)
    assert (run["markers_owed"], run["markers_posted"]) == (["finished"], ["started"])
    assert one.kinds(issue) == ["started", "finished"]
    shown = one.gtrun("show", issue)
    assert shown.err == "gtrun: what is owed is posted by: gtrun reconcile\n"

    assert one.gtrun("reconcile").out == "posted: 1 marker\nnothing is owed any more\n"
    (run,) = one.runs(issue)
    assert (run["markers_owed"], run["markers_posted"]) == ([], ["started", "finished"])
    assert one.kinds(issue) == ["started", "finished"]
    assert comments(one, issue) == ["bob", "bob"]
    _, finished = one.asks("board", "show", issue)["comments"]
    assert "on rig `box2`: stopped" in finished["body"]
    assert f"task-{issue}.service" in finished["body"]
    assert Scene(pair.box2, "bob").open_records() == []
    assert one.gtrun("reconcile").out == "nothing is owed any more\n"


def an_agent_that_lies(pair: Pair) -> None:
    """Bob's records say other things than the ledger: not one of them is posted, and his true one is then."""
    one, _ = furnish(pair)
    bob = Scene(pair.box2, "bob")
    victim, issue = one.issue(), one.issue()
    starts_and_stops(one, issue)
    (name,) = bob.open_records()
    record = pair.box2.path(f"{bob.state}/runs/open/{name}")
    true = record.read_bytes()
    (run,) = one.runs(issue)
    token = name.removesuffix(".jsonl")
    lies = [
        (f'"issue":{{"key":"{issue}"', f'"issue":{{"key":"{victim}"', f"the attempt was at issue {issue} on bob"),
        (token, "f" * 32, "the ledger has no such attempt"),
        (run["run"], "f" * 32, "the attempt came to another run"),
        ('"agent":"bob"', '"agent":"alice"', None),  # whose records these are is known, and is what is posted
    ]
    for what, lie, why in lies:
        assert what.encode() in true
        record.write_bytes(true.replace(what.encode(), lie.encode()))
        told = one.asks("reconcile", check=None)
        assert comments(one, victim) == [], f"bob has written on issue {victim}"
        if why is None:
            continue
        assert comments(one, issue) == []
        assert told["owing"] == 2
        first, second = told["problems"]
        assert first == f"bob: {NO_BOARD}"
        assert re.match(rf"bob: what it owes to issue \d is not posted: {re.escape(why)}", second), second
    assert told["problems"] == []
    assert comments(one, issue) == ["bob", "bob"]
    assert one.kinds(issue) == ["started", "finished"]


def test_an_agent_that_lies(pair: Pair) -> None:
    an_agent_that_lies(pair)


MUTANTS = [
    Mutant(
        "identity not compared",
        [Edit("board/reference.py", "if ref.identity and board.identity != ref.identity:", "if False:")],
        another_board_at_the_path,
        r"results are \[\['disposed'\], \['stopped'\]\]",
        boot=booted,
    ),
    Mutant(
        "ledger not checked",
        [
            Edit("delivery.py", "why = _why_not(run, agent, fleet, board, attempt)", 'why = ""'),
            Edit("delivery.py", 'issue_told = Issue(key=attempt.issue, title="")', "issue_told = run.resolved.issue"),
        ],
        an_agent_that_lies,
        r"bob has written on issue 1",
        boot=booted,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
