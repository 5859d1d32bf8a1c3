"""The board guard: what is work, what is not, and what cannot be told."""

import pytest

from gtrun.exits import Exit
from gtrun.guards import Open, Pass, Refuse, board
from gtrun.guards.verdict import BoardView
from gtrun.model import Comment, Issue

MARKS = {"terminal_labels": ("done",), "terminal_glyphs": ("✅",)}


def view(*bodies, **fields):
    comments = tuple(Comment(author="somebody", at=1.0, body=body) for body in bodies)
    return BoardView(Issue(key="1", title="Mend the roof", **fields), comments)


@pytest.mark.parametrize("told", [view(), view("a remark"), view(labels=("go",)), view(" is it ✅?")])
def test_work_passes(told, asked):
    assert board.check(asked(board=lambda: told, **MARKS)) == Pass()


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (view(is_open=False), "not work: closed"),
        (view(labels=("done",)), "done"),
        (view("✅ merged"), "✅"),
        (BoardView(), "issue 1 does not exist on the board"),
    ],
)
def test_what_is_no_work_is_refused(told, why, asked):
    verdict = board.check(asked(board=lambda: told, **MARKS))
    assert isinstance(verdict, Refuse)
    assert verdict.code is Exit.NOT_WORK
    assert why in verdict.reason
    assert verdict.hint


def test_a_board_that_does_not_answer_leaves_it_open(asked):
    assert board.check(asked(board=lambda: BoardView(problem="it is down"))) == Open("it is down")


def test_inside_a_run_it_does_not_even_ask(asked):
    def never():
        raise AssertionError

    assert board.check(asked(environment={"GTRUN_BACKEND": "claude"}, board=never)) == Pass()
    closed = asked(environment={"GTRUN_BACKEND": ""}, board=lambda: view(is_open=False))
    assert isinstance(board.check(closed), Refuse)
