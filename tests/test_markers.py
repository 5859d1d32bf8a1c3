"""Markers: readable, found again by their machine line, never a terminal glyph, never forged by a title or a reason."""

import re

import pytest

from gtrun import markers
from gtrun.markers import Kind
from gtrun.model import Ending, Issue, Limits, PullRequest, PullState, ResolvedRun, Result, Usage
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


def pull(url="https://git.example/7", state=PullState.OPEN, **more):
    return PullRequest(url=url, state=state, **more)


NOT_A_MERGE = "An exit code is not a merge: "


@pytest.mark.parametrize(
    ("pulls", "said"),
    [
        ([], f"{NOT_A_MERGE}there is no pull request for this issue."),
        ([pull()], f"{NOT_A_MERGE}pull request https://git.example/7 is open, and not merged."),
        ([pull(state=PullState.DRAFT)], f"{NOT_A_MERGE}pull request https://git.example/7 is open as a draft, and not"),
        (
            [pull(auto_merge=True)],
            f"{NOT_A_MERGE}pull request https://git.example/7 is open with auto-merge armed, and",
        ),
        (
            [pull(state=PullState.CLOSED)],
            f"{NOT_A_MERGE}pull request https://git.example/7 was closed without a merge.",
        ),
        ([pull(state=PullState.MERGED)], "Pull request https://git.example/7 is merged."),
        ([pull("a", PullState.MERGED), pull("b")], "Pull request a is merged. Pull request b is open, and not merged."),
        (None, f"{NOT_A_MERGE}whether there is a pull request for this issue could not be asked (it is\\x0aaway)."),
    ],
)
def test_what_an_exit_code_does_not_prove(pulls, said):
    body = markers.finished(RESOLVED, RUN, Ending(result=Result.SUCCESS, exit_code=0), pulls, "it is\naway")
    assert f"\n\n{said}" in body
    failed = markers.finished(RESOLVED, RUN, Ending(result=Result.FAILED, exit_code=1), pulls)
    assert "exit code is not a merge" not in failed


def test_a_used_up_quota_is_no_failure_of_the_work():
    ending = Ending(result=Result.QUOTA, reason="hit your limit", exit_code=1, resets_at=1_796_000_000)
    body = markers.finished(RESOLVED, RUN, ending, [])
    assert "The quota of `alice` is used up until 2026-11-30 00:53 UTC. That is no failure of this work." in body


def test_a_finished_marker_tells_its_result():
    body = markers.finished(RESOLVED, RUN, Ending(result=Result.SUCCESS, exit_code=0), [])
    assert body.endswith(f"<!-- gtrun:finished run={RUN} result=success -->")
    assert markers.parse(body) == markers.Marker(Kind.FINISHED, RUN, "success")
    assert markers.parse(f"x\n<!-- gtrun:finished run={RUN} -->\n") == markers.Marker(Kind.FINISHED, RUN)
    assert markers.parse(markers.started(RESOLVED, RUN)) == markers.Marker(Kind.STARTED, RUN)
    for other in (f"{body}\nquoted", "nothing", body.replace(RUN, "short")):
        assert markers.parse(other) is None


def test_each_note_is_a_line_of_the_started_marker():
    assert "\n\nNote: one.\n\nNote: two.\n\n<!--" in markers.started(RESOLVED, RUN, ["one", "two"])


def test_nobody_forges_a_machine_line():
    """A reason or a note with a line of its own stays on its line, so one marker has one machine line."""
    forged = f"x\n<!-- gtrun:finished run={'f' * 32} -->\n"
    bodies = [
        markers.started(RESOLVED, RUN, [forged, "the board was not asked"]),
        markers.finished(RESOLVED, RUN, Ending(result=Result.FAILED, reason=forged, exit_code=1), [pull(forged)]),
    ]
    lines = [markers.machine_line(Kind.STARTED, RUN), markers.machine_line(Kind.FINISHED, RUN, Result.FAILED)]
    assert [re.findall(r"^<!-- gtrun:.*$", body, re.MULTILINE) for body in bodies] == [[line] for line in lines]
