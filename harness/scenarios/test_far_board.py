"""A local board and an agent on another box: where the board is not, and where the same path leads to another one."""

from __future__ import annotations

from functools import partial

import pytest

from harness.control import Edit, Mutant, kill
from harness.pair import Pair, booted
from harness.scenarios.test_two_boxes import BOARD, comments, furnish
from harness.scene import Scene

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
    assert bad == [f"{ANOTHER}: what its runs have to say stays owed"]


def test_another_board_at_the_path(pair: Pair) -> None:
    another_board_at_the_path(pair)


MUTANTS = [
    Mutant(
        "identity not compared",
        [Edit("board/reference.py", "if ref.identity and board.identity != ref.identity:", "if False:")],
        another_board_at_the_path,
        r"results are \[\['disposed'\], \['stopped'\]\]",
        boot=booted,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
