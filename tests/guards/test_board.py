"""The board guard: what is work, what is not, and what cannot be told."""

import pytest

from gtrun.exits import Exit
from gtrun.guards import Open, Pass, Refuse, board
from gtrun.guards.verdict import BoardView
from gtrun.markers import Kind, machine_line
from gtrun.model import Comment, Issue, Result
from gtrun.names import RunId

DONE, FAILED = (machine_line(Kind.FINISHED, RunId("a" * 32), result) for result in (Result.SUCCESS, Result.FAILED))
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


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (view(labels=("other",)), "issue 1 is not ready any more: it has no label 'ready'"),
        (view(DONE, labels=("Ready",)), "issue 1 is not ready any more: a run of it has succeeded"),
        (view(DONE, labels=("Ready",), turned_at=2.0), None),
        (view(FAILED, labels=("Ready",)), None),
        (view(labels=("Ready",), is_by_stranger=True), None),  # whoever labels it vouches for it
    ],
)
def test_what_was_picked_has_to_be_ready_still(told, why, asked):
    picked = asked(board=lambda: told, availability=lambda: None, ready_label="ready", **MARKS)
    verdict = board.check(picked)
    assert (verdict.reason if isinstance(verdict, Refuse) else None) == why
    assert board.check(asked(board=lambda: told, ready_label="ready", **MARKS)) == Pass()


def test_what_a_stranger_opened_is_not_picked_without_a_label(asked):
    told = view(is_by_stranger=True)
    verdict = board.check(asked(board=lambda: told, availability=lambda: None, **MARKS))
    assert isinstance(verdict, Refuse)
    assert verdict.reason == "issue 1 is not ready any more: it was opened by a stranger"
    assert board.check(asked(board=lambda: told, **MARKS)) == Pass()


def test_what_has_succeeded_may_be_picked_by_rule(asked):
    told = view(DONE, labels=("Ready",))
    picked = {"board": lambda: told, "availability": lambda: None, "ready_label": "ready", **MARKS}
    assert board.check(asked(tries_again=True, **picked)) == Pass()
    assert isinstance(board.check(asked(**picked)), Refuse)
