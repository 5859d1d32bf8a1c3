"""Where an issue stands: only what nobody has finished, or what somebody has turned back, is ready by itself."""

import pytest

from gtrun.board.standing import standing
from gtrun.markers import Kind, machine_line
from gtrun.model import Comment, Issue, PullRequest, PullState, Result, Standing
from gtrun.names import IssueKey, RunId

LABELS, GLYPHS = ("done",), ("✅",)


def issue(turned_at=None, **more):
    return Issue(key=IssueKey("1"), title="t", turned_at=turned_at, **more)


def marker(at, result=Result.SUCCESS, kind=Kind.FINISHED):
    body = f"gtrun: **{kind}**\n\n{machine_line(kind, RunId('a' * 32), result)}"
    return Comment(author="me", body=body, at=at)


def pull(state, merged_at=None):
    return PullRequest(url="u", state=state, merged_at=merged_at)


@pytest.mark.parametrize(
    ("what", "comments", "pulls", "stands"),
    [
        (issue(), [], [], Standing.READY),
        (issue(), [marker(5, None, Kind.STARTED)], [], Standing.READY),
        (issue(), [marker(5)], [], Standing.AWAITING),
        (issue(), [marker(5, None)], [], Standing.AWAITING),  # of a version that did not tell its result
        *((issue(), [marker(5, result)], [], Standing.READY) for result in set(Result) - {Result.SUCCESS}),
        (issue(), [marker(5), marker(9, Result.FAILED)], [], Standing.AWAITING),
        *((issue(), [marker(5)], [pull(state)], Standing.AWAITING) for state in set(PullState) - {PullState.MERGED}),
        (issue(), [], [pull(PullState.OPEN)], Standing.READY),
        (issue(), [marker(5)], [pull(PullState.CLOSED), pull(PullState.MERGED, 7)], Standing.SHIPPED),
        (issue(), [], [pull(PullState.MERGED)], Standing.SHIPPED),
        # somebody reopened it, or changed its labels
        (issue(turned_at=6), [marker(5)], [], Standing.READY),
        (issue(turned_at=6), [marker(5), marker(7)], [], Standing.AWAITING),
        (issue(turned_at=8), [marker(5)], [pull(PullState.MERGED, 7)], Standing.READY),
        (issue(turned_at=6), [marker(5)], [pull(PullState.MERGED, 7)], Standing.SHIPPED),
        # not work, whatever else
        (issue(is_open=False), [], [], Standing.NOT_WORK),
        (issue(labels=("Done",)), [marker(5)], [], Standing.NOT_WORK),
        (issue(), [Comment(author="x", body="✅", at=1)], [pull(PullState.MERGED)], Standing.NOT_WORK),
    ],
)
def test_table(what, comments, pulls, stands):
    assert standing(what, comments, pulls, LABELS, GLYPHS) is stands


def test_a_marker_that_is_quoted_is_none():
    quoted = Comment(author="x", body=f"{marker(1).body}\n\nis what it said", at=5)
    assert standing(issue(), [quoted], [], LABELS, GLYPHS) is Standing.READY
