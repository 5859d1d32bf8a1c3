"""Each operation against GitHub's own OpenAPI description: its questions are allowed, its examples are understood."""

import pytest

from gtrun.board.github.board import GitHubBoard
from gtrun.board.github.token import Token
from gtrun.model import GitHubPlace, Standing
from gtrun.names import IssueKey
from harness.between import Between
from harness.github import ASKED, breaches
from tests.board.github.test_board import BODY, MARKER


def test_github_understands_us_and_we_understand_github(contract: str) -> None:
    def unwrap(path: str, value: object) -> object:
        """Some examples have their value one level too deep, and that of an issue is a pull request, and bare."""
        if isinstance(value, dict) and "value" in value:
            value = value["value"]
        for one in value if isinstance(value, list) else [value]:
            if "/issues" in path and isinstance(one, dict) and one.pop("pull_request", None):
                one |= {"comments": 1, "issue_dependencies_summary": {"blocked_by": 1, "total_blocked_by": 1}}
        return value

    with Between(contract) as between:
        between.edits.append(unwrap)
        place = GitHubPlace(repo="octocat/hello-world", api=between.url, trusted=())
        with GitHubBoard.open(place, Token("token", "the test"), wait=60.0) as board:
            issue = board.issue(IssueKey("1347"))
            assert issue is not None
            assert issue.title == "Found a bug"
            assert [one.key for one in board.issues(label="bug")] == ["1347"]
            assert [one.body for one in board.all_comments(IssueKey("1347"))] == ["Me too"]
            assert board.comments(IssueKey("1347")) == board.all_comments(IssueKey("1347"))
            assert board.pull_requests(IssueKey("1347")) == []
            [(known, stands)] = board.open_work(("done",), ("✅",))
            assert (known.key, known.title, stands) == (issue.key, issue.title, Standing.READY)
            assert board.post(IssueKey("1347"), author="alice", body=BODY, marker=MARKER) is True
            board.label(IssueKey("1347"), add=["a, b", "🚀"], remove=["bug"])
            assert board.close_issue(IssueKey("1347")) is True
            assert board.reopen_issue(IssueKey("1347")) is False
        assert between.breaches == []
        assert [(one.method, one.path, one.status) for one in between.asked if not 200 <= one.status < 400] == []
        asked = {(one.method, one.path.removeprefix("/repos/octocat/hello-world")) for one in between.asked}
    one = "/issues/1347"
    assert asked >= {
        ("POST", f"{one}/comments"), ("POST", f"{one}/labels"), ("DELETE", f"{one}/labels/bug"), ("PATCH", one),
        ("GET", f"{one}/timeline"), ("GET", f"{one}/events"), ("GET", f"{one}/dependencies/blocked_by"),
        ("GET", "/issues/comments"), ("GET", "/pulls"), ("GET", "/user"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("question", "breach"),
    [
        (("GET", "/repos/o/r/issues", "state=all&per_page=100&since=2026-11-30T00:00:00Z", b""), None),
        (("GET", "/repos/o/r/issues", "state=any", b""), "GET /repos/{owner}/{repo}/issues: state=any"),
        (("GET", "/repos/o/r/issues", "since=yesterday", b""), "GET /repos/{owner}/{repo}/issues: since=yesterday"),
        (("GET", "/repos/o/r/issues", "sort=updated&order=asc", b""), "GET /repos/{owner}/{repo}/issues has no"),
        (("GET", "/repos/o/r/pulls", "since=2026-11-30T00:00:00Z", b""), "GET /repos/{owner}/{repo}/pulls has no"),
        (("PUT", "/repos/o/r/issues/1", "", b"{}"), "PUT /repos/o/r/issues/1 is not described"),
        (
            ("POST", "/repos/o/r/issues/1/comments", "", b""),
            "POST /repos/{owner}/{repo}/issues/{issue_number}/comments: no",
        ),
    ],
)
def test_a_question_that_github_does_not_know_is_seen(
    question: tuple[str, str, str, bytes], breach: str | None
) -> None:
    found = breaches(*question)
    assert len(found) == (breach is not None)
    assert breach is None or found[0].startswith(breach)
    assert len(ASKED) > 10
