"""What the markers on an issue tell the next run of those before it."""

from gtrun import markers
from gtrun.model import Comment, Ending, Result
from gtrun.names import RunId
from gtrun.previous import Previous, previous
from tests.test_markers import RESOLVED

FIRST, SECOND = RunId("1" * 32), RunId("2" * 32)


def started(run, at=0.0):
    return Comment(author="a", body=markers.started(RESOLVED, run), at=at)


def finished(run, at=0.0, **more):
    ending = Ending(**{"result": Result.FAILED, "exit_code": 3, "reason": "disk full", **more})
    return Comment(author="a", body=markers.finished(RESOLVED, run, ending, []), at=at)


def test_the_first_attempt_has_nothing_before_it():
    talk = Comment(author="a", body="gtrun: **finished** and so on", at=1)
    assert previous([]) == previous([talk]) == Previous(1, "")


def test_the_last_one_that_ended_is_told():
    told = previous([started(FIRST), finished(FIRST, 1_796_000_000.0), started(SECOND)])
    assert told.attempt == 3
    assert told.text.startswith("The attempt before this one ended on 2026-11-30 00:53 UTC:\n\ngtrun: **finished** by ")
    assert "failed, exit code 3 (disk full)" in told.text
    assert "no pull request" in told.text
    assert "<!--" not in told.text
    later = previous([started(FIRST), finished(FIRST), started(SECOND), finished(SECOND, result=Result.SUCCESS)])
    assert "success, exit code 3" in later.text


def test_a_run_is_counted_once_and_also_without_its_start():
    assert previous([started(FIRST), finished(FIRST), started(FIRST)]).attempt == 2
    assert previous([finished(FIRST)]).attempt == 2


def test_a_long_comment_is_cut():
    body = "x" * 60_000 + "\n\n" + markers.machine_line(markers.Kind.FINISHED, FIRST)
    assert len(previous([Comment(author="a", body=body, at=1)]).text) < 2100
