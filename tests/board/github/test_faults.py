"""What networks and servers do to a conversation, and what is said of it."""

import calendar
import json
import logging
import re
import socket
import time
import traceback
from collections.abc import Callable
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs

import pytest

from gtrun.board import disposal
from gtrun.board.github import client
from gtrun.board.github.client import AnswerLost
from gtrun.errors import BoardUnavailable, GtrunError, NoSuchIssue
from gtrun.names import IssueKey
from harness.between import Between, Fault
from harness.github import USERS
from tests.board.github.conftest import Opener, Repo
from tests.board.github.test_board import BODY, MARKER, key

ISSUE = r"/issues/\d+$"
COMMENTS = r"/issues/\d+/comments"
AGAIN = 1000


def refused(asked: Callable[[], object], kind: type[GtrunError] = BoardUnavailable) -> str:
    with pytest.raises(kind) as raised:
        asked()
    message = raised.value.message
    assert "\n" not in message
    told = "".join(traceback.format_exception(raised.value)) + message + raised.value.hint
    assert not [token for token in USERS.values() if token in told]
    return message


# --- what is asked again


@pytest.mark.parametrize(
    "fault",
    [
        Fault("GET", ISSUE, status=502),
        Fault("GET", ISSUE, status=503),
        Fault("GET", ISSUE, status=504),
        Fault("GET", ISSUE, lost=True),
        Fault("GET", ISSUE, cut=True),
        Fault("GET", ISSUE, status=429, headers={"retry-after": "1"}),
        Fault("GET", ISSUE, status=403, headers={"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"}),
    ],
    ids=lambda fault: f"{fault.status or ''}{'lost' * fault.lost}{'cut' * fault.cut}",
)
def test_a_question_is_asked_again(fault: Fault, repo: Repo, between: Between, open_board: Opener) -> None:
    number = repo.issue("asked again")
    between.fail(fault)
    issue = open_board().issue(key(number))
    assert issue is not None
    assert issue.title == "asked again"
    assert between.statuses() == [fault.status, 200]


def test_it_is_not_asked_for_ever(repo: Repo, between: Between, open_board: Opener) -> None:
    number = repo.issue()
    between.fail(Fault("GET", ISSUE, status=502), times=AGAIN)
    began = time.monotonic()
    said = refused(lambda: open_board(wait=1.5).issue(key(number)))
    assert "is out of order: it answers 502 about /repos/" in said
    assert time.monotonic() - began < 15
    assert 2 <= len(between.asked) <= 6


def test_all_questions_of_an_operation_have_one_deadline(repo: Repo, between: Between, open_board: Opener) -> None:
    number = repo.issue()
    for place in range(230):
        repo.comment(number, f"comment {place}")
    between.fail(Fault("GET", COMMENTS, delay=0.9), times=AGAIN)
    said = refused(lambda: open_board(wait=2.0).comments(key(number)))
    assert "did not answer in time" in said
    assert len(between.asked) <= 3


def test_a_server_that_says_nothing(repo: Repo, between: Between, open_board: Opener) -> None:
    number = repo.issue()
    between.fail(Fault("GET", ISSUE, delay=60.0))
    began = time.monotonic()
    assert "did not answer in time" in refused(lambda: open_board(wait=1.0).issue(key(number)))
    assert time.monotonic() - began < 15


def test_a_proxy_is_not_shown_what_is_not_encrypted(
    repo: Repo, open_board: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = repo.issue()
    with socket.socket() as proxy:
        proxy.bind(("127.0.0.1", 0))
        proxy.listen()
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        assert open_board(wait=5.0).issue(key(number)) is not None


def test_a_token_is_not_sent_in_the_clear_to_another_box(open_board: Opener) -> None:
    assert "a token would cross the network in the clear" in refused(lambda: open_board(api="http://git.example.com"))


def test_nobody_listens(open_board: Opener) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        board = open_board(api=f"http://127.0.0.1:{taken.getsockname()[1]}", wait=0.5)
        assert "does not answer: Connection refused" in refused(lambda: board.issue(key(1)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "socks5h://someone:secret@127.0.0.1:1"),
        ("HTTPS_PROXY", "gopher://someone:secret@127.0.0.1"),
        ("HTTPS_PROXY", "http://[::1"),
        ("NO_PROXY", "localhost,[::1]"),
    ],
)
def test_a_proxy_that_cannot_be_used(
    name: str, value: str, open_board: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    said = refused(lambda: open_board(api="https://127.0.0.1:9"))
    assert said == "the proxy of the environment cannot be used"


@pytest.mark.parametrize("host", ["a..b", "xn--a.example", f"{'a' * 300}.example", "h:x"])
def test_a_server_whose_name_is_none(host: str, open_board: Opener) -> None:
    assert "is no address" in refused(lambda: open_board(api=f"https://{host}", wait=5.0).issue(key(1)))


# --- answers that are none


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>log in to the network</html>", "not understood"),
        (b'{"number": 1, "title": "x"', "not understood: Input data was truncated"),
        (b'{"number": "one"}', "Expected `int`"),
        (b"[]", "Expected `object`, got `array`"),
        (b"\xff\xfe", "not understood"),
    ],
)
def test_an_answer_that_is_none(body: bytes, why: str, between: Between, open_board: Opener) -> None:
    between.fail(Fault("GET", ISSUE, status=200, body=body))
    assert why in refused(lambda: open_board().issue(key(1)))


def test_an_answer_that_was_cut_is_asked_for_anew(repo: Repo, between: Between, open_board: Opener) -> None:
    """Where the end of an answer is that of its connection, nobody sees that it was cut; its ETag is that of all."""
    number = repo.issue("whole")
    between.fail(Fault("GET", ISSUE, status=200, headers={"etag": '"whole"'}, body=b'{"number": 1, "ti'))
    assert "not understood" in refused(lambda: open_board(cache=True).issue(key(number)))
    issue = open_board(cache=True).issue(key(number))
    assert issue is not None
    assert issue.title == "whole"
    assert "if-none-match" not in between.asked[-1].headers


@pytest.mark.parametrize("where", ["/x\x01y", f"/{'a' * 60_000}"])
def test_a_next_page_that_has_no_address(where: str, repo: Repo, between: Between, open_board: Opener) -> None:
    number = repo.issue()
    headers = {"link": f'<{between.url}{where}>; rel="next"'}
    between.fail(Fault("GET", COMMENTS, status=200, headers=headers, body=b"[]"))
    between.fail(Fault("GET", "aaaa", status=404))
    board = open_board()
    if where.isprintable():
        assert board.comments(key(number)) == []
        between.breaches.clear()
    else:
        assert "is no address" in refused(lambda: board.comments(key(number)))


def test_an_answer_without_end(between: Between, open_board: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_ANSWER_MOST", 1 << 20)
    between.fail(Fault("GET", ISSUE, status=200, body=b" " * (2 << 20)))
    assert "more than 1 MiB" in refused(lambda: open_board().issue(key(1)))


def test_a_page_on_another_server_is_none(repo: Repo, between: Between, open_board: Opener) -> None:
    number = repo.issue()
    repo.comment(number, "one")
    headers = {"link": '<https://elsewhere.example/repos/x/y/issues/1/comments?page=2>; rel="next"'}
    between.fail(Fault("GET", COMMENTS, status=200, headers=headers, body=b"[]"))
    assert open_board().comments(key(number)) == []


# --- redirects


def test_a_repository_that_has_another_name_now(repo: Repo, between: Between, open_board: Opener) -> None:
    number = repo.issue("found")
    moved = Fault(
        "GET", r"/repos/admin/before", status=301, headers={"location": f"/repos/{repo.name}/issues/{number}"}
    )
    between.fail(moved)
    between.fail(Fault("GET", r"/repos/admin/before$", status=301, headers={"location": f"/repos/{repo.name}"}))
    board = open_board(repo="admin/before")
    issue = board.issue(key(number))
    assert issue is not None
    assert (issue.key, issue.title, issue.moved_to) == (key(number), "found", "")
    assert board.notices == (f"the repository admin/before is {repo.name} now: set it as repo in [board]",)


def test_an_issue_of_a_renamed_repository_has_one_name(repo: Repo, between: Between, open_board: Opener) -> None:
    """Or a claim would not see the run of it that was dispatched by the other."""
    number = repo.issue("found")
    moved = {"location": f"/repos/{repo.name}/issues/{number}"}
    between.fail(Fault("GET", r"/repos/admin/before/issues", status=301, headers=moved), times=2)
    between.fail(Fault("GET", r"/repos/admin/before$", status=301, headers={"location": f"/repos/{repo.name}"}))
    for of, named in ((repo.name, f"admin/before#{number}"), ("admin/before", f"{repo.name}#{number}")):
        issue = open_board(repo=of).issue(IssueKey(named))
        assert issue is not None
        assert (issue.title, issue.moved_to) == ("found", str(number))


def test_an_issue_elsewhere_is_no_other_for_that(repo: Repo, state: str, open_board: Opener) -> None:
    other = Repo(state, "elsewhere-and-not-renamed", repo.cache)
    issue = open_board().issue(IssueKey(f"{other.name}#{other.issue()}"))
    assert issue is not None
    assert issue.moved_to == ""


def test_a_transferred_issue_is_no_work_under_its_old_name(
    repo: Repo, state: str, between: Between, open_board: Opener
) -> None:
    other = Repo(state, "new-home-of-an-issue", repo.cache)
    target = other.issue("transferred")
    where = {"location": f"/repos/{other.name}/issues/{target}"}
    between.fail(Fault("GET", r"/issues/7$", status=301, headers=where), times=2)
    board = open_board()
    issue = board.issue(key(7))
    assert issue is not None
    assert disposal(issue, (), (), ()) == f"transferred to {other.name}#{target}"
    assert board.post(key(7), author="alice", body=BODY, marker=MARKER) is True  # a run of it may be under way
    assert other.bodies(target) == [BODY]


def test_the_token_goes_to_no_other_server(repo: Repo, between: Between, open_board: Opener) -> None:
    number = repo.issue()
    with Between(between.url) as other:
        headers = {"location": f"{other.url}/repos/{repo.name}/issues/{number}"}
        between.fail(Fault("GET", ISSUE, status=301, headers=headers))
        between.fail(Fault("POST", COMMENTS, status=307, headers={"location": f"{other.url}/x"}))
        assert "to which the token is not sent" in refused(lambda: open_board().issue(key(number)))
        assert "to which the token is not sent" in refused(
            lambda: open_board().post(key(number), author="alice", body=BODY)
        )
        assert other.asked == []


def test_redirects_in_circles(between: Between, open_board: Opener) -> None:
    between.fail(Fault("GET", ISSUE, status=302, headers={"location": "/repos/admin/x/issues/1"}), times=AGAIN)
    assert "redirects in circles" in refused(lambda: open_board().issue(key(1)))
    assert len(between.asked) == 4


@pytest.mark.parametrize("where", ["http://xn--a/", "http://h:99999/"])
def test_a_redirect_to_no_address(where: str, between: Between, open_board: Opener) -> None:
    between.fail(Fault("GET", ISSUE, status=301, headers={"location": where}))
    refused(lambda: open_board().issue(key(1)))
    assert len(between.asked) == 1


# --- limits


@pytest.mark.parametrize("status", [403, 429])
def test_a_limit_that_ends_too_late_is_named_with_its_time(status: int, between: Between, open_board: Opener) -> None:
    now = 1796072400.0
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(time.time()) + 3600), "date": formatdate(now)}
    between.fail(Fault("GET", ISSUE, status=status, headers=headers))
    said = refused(lambda: open_board().issue(key(1)))
    assert re.search(
        r"rate limit for the token from the test is used up until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$", said
    )


def test_a_limit_without_an_end_that_a_calendar_has(between: Between, open_board: Opener) -> None:
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "999999999999"}
    between.fail(Fault("GET", ISSUE, status=403, headers=headers))
    assert refused(lambda: open_board().issue(key(1))).endswith("is used up until some day")


def test_a_limit_that_is_always_over_at_once(between: Between, open_board: Opener) -> None:
    between.fail(Fault("GET", ISSUE, status=429, headers={"retry-after": "0"}), times=AGAIN)
    refused(lambda: open_board(wait=3.0).issue(key(1)))
    assert 2 <= len(between.asked) <= 6


@pytest.mark.parametrize(
    ("headers", "message"),
    [({"retry-after": "3600"}, ""), ({}, "You have exceeded a secondary rate limit. Please wait a few minutes.")],
)
def test_a_secondary_limit(headers: dict[str, str], message: str, between: Between, open_board: Opener) -> None:
    between.fail(Fault("GET", ISSUE, status=403, headers=headers, body=json.dumps({"message": message}).encode()))
    assert "is used up until" in refused(lambda: open_board().issue(key(1)))


def test_a_comment_refused_by_a_limit_is_posted_after_it(repo: Repo, between: Between, open_board: Opener) -> None:
    number = repo.issue()
    between.fail(Fault("POST", COMMENTS, status=403, headers={"retry-after": "1"}))
    assert open_board().post(key(number), author="alice", body=BODY, marker=MARKER) is True
    assert repo.bodies(number) == [BODY]


# --- refusals


@pytest.mark.parametrize(
    ("status", "headers", "message", "said"),
    [
        (
            401,
            {},
            "Bad credentials",
            "does not accept the token from the test: it is wrong, has expired or was revoked",
        ),
        (
            403,
            {"x-accepted-github-permissions": "issues=write; pull_requests=write"},
            "Resource not accessible by personal access token",
            "the token from the test lacks the permission issues=write or pull_requests=write: Resource not accessible",
        ),
        (
            403,
            {"x-oauth-scopes": "gist, read:org", "x-accepted-oauth-scopes": "repo"},
            "Must have admin rights",
            "the token from the test lacks the scope repo (it has gist, read:org): Must have admin rights",
        ),
        (
            403,
            {"x-github-sso": "required; url=https://github.com/orgs/o/sso?x=1"},
            "Resource protected by organization SAML enforcement.",
            "the token from the test may not do that: Resource protected by organization",
        ),
        (
            403,
            {},
            "Repository was archived so is read-only.",
            "the token from the test may not do that: Repository was",
        ),
        (422, {}, "Validation Failed", "GitHub refuses that as invalid: Validation Failed"),
        (500, {}, "boom\x1b[2J", r"answers 500 about /repos/"),
        (418, {}, "", "answers 418 about /repos/"),
    ],
)
def test_a_refusal_says_why(
    status: int, headers: dict[str, str], message: str, said: str, between: Between, open_board: Opener
) -> None:
    between.fail(Fault("GET", ISSUE, status=status, headers=headers, body=json.dumps({"message": message}).encode()))
    found = refused(lambda: open_board().issue(key(1)))
    assert said in found
    assert "\x1b" not in found


def test_what_a_token_needs_is_the_hint_where_that_is_what_it_lacks(between: Between, open_board: Opener) -> None:
    for message in ("Resource not accessible by personal access token", "Repository was archived so is read-only."):
        between.fail(Fault("GET", ISSUE, status=403, body=json.dumps({"message": message}).encode()))
    hints = []
    for _ in range(2):
        with pytest.raises(BoardUnavailable) as raised:
            open_board().issue(key(1))
        hints.append(raised.value.hint)
    assert hints == ["give the token access: issues (read and write), pull requests (read)", ""]


def test_a_locked_issue(repo: Repo, between: Between, open_board: Opener) -> None:
    number = repo.issue()
    body = json.dumps({"message": "Unable to create comment because issue is locked."}).encode()
    between.fail(Fault("POST", COMMENTS, status=403, body=body))
    said = refused(lambda: open_board().post(key(number), author="alice", body=BODY, marker=MARKER))
    assert said.startswith(f"issue {number} is locked, and the account of the token may not comment on it")


def test_a_deleted_issue_and_a_repository_without_issues(between: Between, open_board: Opener) -> None:
    deleted = Fault("GET", ISSUE, status=410, body=b'{"message": "This issue was deleted"}')
    disabled = Fault("GET", ISSUE, status=410, body=b'{"message": "Issues has been disabled in this repository."}')
    between.fail(deleted)
    between.fail(disabled)
    board = open_board()
    assert board.issue(key(1)) is None
    assert "has its issues disabled" in refused(lambda: board.issue(key(1)))


# --- a comment whose answer is lost


@pytest.mark.parametrize(
    "fault",
    [
        Fault("POST", COMMENTS, lost=True),
        Fault("POST", COMMENTS, cut=True),
        Fault("POST", COMMENTS, status=502, also_done=True),
        Fault("POST", COMMENTS, status=500, also_done=True),
    ],
    ids=["lost", "cut", "502", "500"],
)
def test_a_marker_that_was_posted_although_nobody_said_so(
    fault: Fault, repo: Repo, between: Between, open_board: Opener
) -> None:
    number = repo.issue()
    between.fail(fault)
    board = open_board()
    assert board.post(key(number), author="alice", body=BODY, marker=MARKER) is True
    assert board.post(key(number), author="alice", body=BODY, marker=MARKER) is False
    assert repo.bodies(number) == [BODY]


def test_a_marker_is_looked_for_by_the_clock_of_github(
    repo: Repo, between: Between, open_board: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of this box may be hours ahead of it."""
    number, then = repo.issue(), time.time() - 86_400
    monkeypatch.setattr(BaseHTTPRequestHandler, "date_time_string", lambda _: formatdate(then, usegmt=True))
    between.fail(Fault("POST", COMMENTS, lost=True))
    assert open_board().post(key(number), author="alice", body=BODY, marker=MARKER) is True
    [since] = parse_qs(between.asked[-1].query)["since"]
    assert calendar.timegm(time.strptime(since, "%Y-%m-%dT%H:%M:%SZ")) <= then


def test_a_marker_that_was_not_posted_is_reported_and_posted_the_next_time(
    repo: Repo, between: Between, open_board: Opener
) -> None:
    number = repo.issue()
    repo.comment(number, BODY, user="stranger")
    between.fail(Fault("POST", COMMENTS, status=502))
    board = open_board(wait=6.0)
    said = refused(lambda: board.post(key(number), author="alice", body=BODY, marker=MARKER), AnswerLost)
    assert said.endswith(f"it answers 502; whether the comment is on issue {number} is not known")
    assert [one.method for one in between.asked].count("POST") == 1
    assert board.post(key(number), author="alice", body=BODY, marker=MARKER) is True
    assert repo.bodies(number) == [BODY, BODY]


def test_a_slow_answer_to_a_comment_is_a_lost_one(repo: Repo, between: Between, open_board: Opener) -> None:
    number = repo.issue()
    between.fail(Fault("POST", COMMENTS, delay=30.0))
    began = time.monotonic()
    refused(lambda: open_board(wait=2.0).post(key(number), author="alice", body=BODY, marker=MARKER), AnswerLost)
    assert time.monotonic() - began < 20
    assert open_board().post(key(number), author="alice", body=BODY, marker=MARKER) is False
    assert repo.bodies(number) == [BODY]


def test_a_comment_of_a_person_is_not_posted_twice(repo: Repo, between: Between, open_board: Opener) -> None:
    number = repo.issue()
    between.fail(Fault("POST", COMMENTS, lost=True))
    refused(lambda: open_board().post(key(number), author="alice", body="hello"), AnswerLost)
    assert repo.bodies(number) == ["hello"]


def test_a_token_that_may_only_read_and_an_issue_that_goes_meanwhile(
    repo: Repo, between: Between, open_board: Opener
) -> None:
    number = repo.issue()
    between.fail(Fault("POST", COMMENTS, status=404), times=2)
    board = open_board()
    said = refused(lambda: board.post(key(number), author="alice", body=BODY, marker=MARKER))
    assert said.startswith(f"the token from the test may not change issue {number} on {between.url}/")
    between.fail(Fault("GET", COMMENTS, status=200, body=b"[]"))
    between.fail(Fault("GET", ISSUE, status=200, body=b"{}"))
    refused(lambda: board.post(key(99), author="alice", body=BODY, marker=MARKER), NoSuchIssue)


# --- whose token it is


def test_an_app_has_no_user(repo: Repo, between: Between, open_board: Opener) -> None:
    number = repo.issue()
    repo.comment(number, "hello", user="stranger")
    body = b'{"message": "Resource not accessible by integration"}'
    between.fail(Fault("GET", r"^/user$", status=403, body=body), times=AGAIN)
    board = open_board()
    assert board.comments(key(number)) == []
    assert board.comments(key(number)) == []
    assert [one.path for one in between.asked].count("/user") == 1


def test_the_token_is_in_no_log(
    repo: Repo, between: Between, open_board: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    number = repo.issue()
    with caplog.at_level(logging.DEBUG):
        open_board().issue(key(number))
    assert between.asked[0].headers["authorization"] == f"Bearer {USERS['admin']}"
    assert caplog.records  # the library does talk
    assert USERS["admin"] not in caplog.text


# --- what a repository that is none of ours can do


def test_a_server_that_lists_pull_requests_among_issues(repo: Repo, between: Between, open_board: Opener) -> None:
    number = repo.issue()

    def graft(path: str, value: object) -> object:
        if path.endswith("/issues") and isinstance(value, list):
            return [*value, {**value[0], "number": 999, "pull_request": {"url": "x", "merged_at": None}}]
        if path.endswith(f"/issues/{number}") and isinstance(value, dict):
            return {**value, "pull_request": {"url": "x"}}
        return value

    between.edits.append(graft)
    board = open_board()
    assert [issue.key for issue in board.issues()] == [key(number)]
    assert [issue.key for issue, _ in board.open_work((), ())] == [key(number)]
    issue = board.issue(key(number))
    assert issue is not None
    assert issue.is_pull


def test_blockers(repo: Repo, state: str, between: Between, open_board: Opener) -> None:
    other = Repo(state, "blockers-live-here", repo.cache)
    near, far, done = repo.issue(), other.issue(), other.issue()
    other.edit(done, state="closed")
    text = f"why\n- Blocked by #{near}, {other.name}#{far}, {other.name}#{done}, admin/nowhere#1.\nblocked by nobody"
    number = repo.issue(body=text)
    board = open_board()
    expected = (key(near), IssueKey(f"{other.name}#{far}"))
    issue = board.issue(key(number))
    assert issue is not None
    assert issue.blocked_by == expected
    assert {one.key: one.blocked_by for one, _ in board.open_work((), ())}[key(number)] == expected
    native = [other.do("GET", f"/repos/{other.name}/issues/{one}") for one in (far, done)]

    def graft(path: str, value: object) -> object:
        def with_summary(one: dict[str, object]) -> dict[str, object]:
            counts = {"blocked_by": 1, "total_blocked_by": 2} if one["number"] == number else {}
            return {**one, "issue_dependencies_summary": {"blocking": 0, "total_blocking": 0, **counts}}

        if path.endswith("/issues") and isinstance(value, list):
            return [with_summary(one) for one in value]
        return with_summary(value) if path.endswith(f"/issues/{number}") and isinstance(value, dict) else value

    between.edits.append(graft)
    body = json.dumps(native).encode()
    between.fail(Fault("GET", r"/dependencies/blocked_by", status=200, body=body), times=AGAIN)
    issue = board.issue(key(number))
    assert issue is not None
    assert issue.blocked_by == (IssueKey(f"{other.name}#{far}"),)
    fresh = {one.key: one.blocked_by for one, _ in open_board().open_work((), ())}
    assert fresh == {key(near): (), key(number): issue.blocked_by}


def test_pull_requests_of_other_repositories(repo: Repo, state: str, between: Between, open_board: Opener) -> None:
    number = repo.issue()
    other = Repo(state, "where-the-change-is", repo.cache)
    pull = other.pull(f"Fixes {repo.name}#{number}")
    other.merge(pull)
    issue = {**repo.do("GET", f"/repos/{repo.name}/issues/{number}"), "pull_request": {"url": "x"}, "number": pull}
    events = [
        {"event": "committed", "sha": "0"},
        {"event": "labeled", "created_at": issue["created_at"]},
        *(
            {
                "event": "cross-referenced",
                "created_at": issue["created_at"],
                "source": {"type": "issue", "issue": {**issue, "repository": {"full_name": name}}},
            }
            for name in (other.name, "stranger/theirs")
        ),
    ]
    between.fail(Fault("GET", r"/timeline", status=200, body=json.dumps(events).encode()))
    [found] = open_board().pull_requests(key(number))
    assert (found.repo, found.state.value) == (other.name, "merged")
    assert not [one for one in between.asked if "stranger" in one.path]


def test_an_armed_pull_request(repo: Repo, between: Between, open_board: Opener) -> None:
    number = repo.issue()
    repo.pull(f"Fixes #{number}")

    def arm(path: str, value: object) -> object:
        if path.endswith("/pulls") and isinstance(value, list):
            return [{**one, "auto_merge": {"merge_method": "squash"}} for one in value]
        return value

    between.edits.append(arm)
    [found] = open_board().pull_requests(key(number))
    assert found.auto_merge
