"""What makes an issue not work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtrun.board import disposal
from gtrun.markers import finished, started
from gtrun.model import Comment, Ending, Issue, Limits, ResolvedRun, Result
from gtrun.names import IssueKey, RunId, Token, UnitName

LABELS = ("done", "wontfix")
GLYPHS = ("✅", "⛔")


def issue(*labels: str, is_open: bool = True, is_pull: bool = False, moved_to: str = "") -> Issue:
    return Issue(key=IssueKey("1"), title="t", labels=labels, is_open=is_open, is_pull=is_pull, moved_to=moved_to)


def comments(*bodies: str) -> list[Comment]:
    return [Comment(author="a", body=body, at=0.0) for body in bodies]


@pytest.mark.parametrize(
    ("given_issue", "bodies", "reason"),
    [
        (issue(), (), None),
        (issue(is_open=False), (), "closed"),
        (issue("done", is_open=False), ("✅",), "closed"),
        (issue(is_pull=True), (), "a pull request"),
        (issue("done", is_open=False, is_pull=True), (), "a pull request"),
        (issue(moved_to="o/r#7"), (), "transferred to o/r#7"),
        (issue("go", "done"), (), "label 'done'"),
        (issue("Done"), (), "label 'Done'"),
        (issue("WONTFIX"), (), "label 'WONTFIX'"),
        (issue("not done", "done?", "don"), (), None),
        (issue("done"), ("✅",), "label 'done'"),
        (issue(), ("✅ merged",), "a comment begins with ✅"),
        (issue(), ("hello", "⛔"), "a comment begins with ⛔"),
        (issue(), ("⛔\ufe0f with its emoji style",), "a comment begins with ⛔"),
        (issue(), (" \n✅ after white space",), "a comment begins with ✅"),
        (issue(), ("not yet ✅", "", "[x]", "> ✅ quoted", "- ✅"), None),
    ],
)
def test_reason(given_issue: Issue, bodies: tuple[str, ...], reason: str | None) -> None:
    assert disposal(given_issue, comments(*bodies), LABELS, GLYPHS) == reason


def test_a_configured_glyph_may_carry_its_emoji_style() -> None:
    assert disposal(issue(), comments("✔ yes"), (), ("✔\ufe0f",)) == "a comment begins with ✔"


@pytest.mark.parametrize("glyphs", [(), ("",), ("\ufe0f",)])
def test_no_glyph_matches_nothing(glyphs: tuple[str, ...]) -> None:
    assert disposal(issue("done"), comments("", "✅", "text"), (), glyphs) is None


@given(st.text())
def test_only_the_first_character_counts(rest: str) -> None:
    assert disposal(issue(), comments(f"x{rest}"), LABELS, GLYPHS) is None
    assert disposal(issue(), comments(f"✅{rest}"), LABELS, GLYPHS) == "a comment begins with ✅"


@pytest.mark.parametrize("result", list(Result))
def test_no_marker_looks_terminal(result: Result) -> None:
    resolved = ResolvedRun(
        token=Token("0" * 32), agent="✅", rig="⛔", issue=issue(), unit=UnitName("task-1.service"),
        identifier="task-1.00000000", board="/b", terminal_labels=LABELS, terminal_glyphs=GLYPHS, backend="x",
        command=("true",), prompt="", workdir="/", environment={}, path=(), time_limit=None, stop_timeout=1.0,
        limits=Limits(), keep=1.0, dispatched_at=0.0, dispatched_by="me",
    )  # fmt: skip
    run = RunId("0" * 32)
    bodies = (started(resolved, run, "✅"), finished(resolved, run, Ending(result=result, reason="✅")))
    assert disposal(issue(), comments(*bodies), LABELS, GLYPHS) is None
