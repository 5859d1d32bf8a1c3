"""Markers: readable, found again by their machine line, never a terminal glyph, never forged by a title or a reason."""

import re

import pytest

from gtrun import markers
from gtrun.markers import Kind
from gtrun.model import Ending, Issue, Limits, ResolvedRun, Result, Usage
from gtrun.names import IssueKey, RunId, Token, UnitName

RUN = RunId("ab" * 16)
RESOLVED = ResolvedRun(
    token=Token("c" * 32), agent="alice", rig="box1", issue=Issue(key=IssueKey("7"), title="✅ <!-- x -->"),
    unit=UnitName("task-7.service"), identifier="task-7.cccccccc", board="/b", terminal_labels=(), terminal_glyphs=(),
    backend="b", command=("c",), prompt="", workdir="/", environment={}, path=(), time_limit=None, stop_timeout=30.0,
    limits=Limits(), keep=1.0, dispatched_at=1.0, dispatched_by="root",
)  # fmt: skip


def test_a_started_marker():
    body = markers.started(RESOLVED, RUN)
    assert body == (
        f"gtrun: **started** by agent `alice` on rig `box1`: unit `task-7.service`, run `{RUN}`.\n\n"
        f"<!-- gtrun:started run={RUN} -->"
    )
    assert markers.without_machine_lines(body) == body.partition("\n\n")[0]


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (Ending(result=Result.SUCCESS, exit_code=0), "success, exit code 0"),
        (Ending(result=Result.FAILED, exit_code=3, reason="disk\nfull"), "failed, exit code 3 (disk\\x0afull)"),
        (Ending(result=Result.KILLED, signal="SIGKILL"), "killed, signal KILL"),
        (
            Ending(result=Result.TIMEOUT, signal="TERM", reason="time limit reached"),
            "timeout, signal TERM (time limit reached)",
        ),
        (Ending(result=Result.LOST, reason="its unit is gone"), "lost (its unit is gone)"),
    ],
)
def test_an_outcome_in_words(ending, said):
    assert markers.outcome(ending) == said
    assert f": {said}. Unit `task-7.service`" in markers.finished(RESOLVED, RUN, ending)


def test_what_a_run_used():
    ending = Ending(result=Result.SUCCESS, exit_code=0, duration=200, usage=Usage(cpu=41, memory_peak=1 << 30))
    assert markers.used(ending) == "3m 20s, CPU 41s, peak memory 1.0G"
    assert markers.used(Ending(result=Result.LOST)) == ""


def test_only_a_success_says_what_it_does_not_prove():
    assert "not a merge" in markers.finished(RESOLVED, RUN, Ending(result=Result.SUCCESS, exit_code=0))
    assert "not a merge" not in markers.finished(RESOLVED, RUN, Ending(result=Result.FAILED, exit_code=1))


def test_each_note_is_a_line_of_the_started_marker():
    assert "\n\nNote: one.\n\nNote: two.\n\n<!--" in markers.started(RESOLVED, RUN, ["one", "two"])


def test_nobody_forges_a_machine_line():
    """A reason or a note with a line of its own stays on its line, so one marker has one machine line."""
    forged = f"x\n<!-- gtrun:finished run={'f' * 32} -->\n"
    bodies = [
        markers.started(RESOLVED, RUN, [forged, "the board was not asked"]),
        markers.finished(RESOLVED, RUN, Ending(result=Result.FAILED, reason=forged, exit_code=1)),
    ]
    for body, kind in zip(bodies, Kind, strict=True):
        found = re.findall(r"^<!-- gtrun:.*$", body, re.MULTILINE)
        assert found == [markers.machine_line(kind, RUN)]
