"""A board on a GitHub that keeps state: reading, posting, labels, pull requests."""

import calendar
import time
from urllib.parse import parse_qs

import pytest

from gtrun.board import disposal
from gtrun.board.standing import standing
from gtrun.errors import BoardUnavailable, NoSuchIssue, UsageError
from gtrun.markers import Kind, machine_line
from gtrun.model import PullState, Result, Standing
from gtrun.names import IssueKey, RunId
from harness.between import Between
from tests.board.github.conftest import Opener, Repo

RUN = RunId("0123456789abcdef0123456789abcdef")
MARKER = f"finished:{RUN}"
BODY = f"gtrun: **finished**\n\n{machine_line(Kind.FINISHED, RUN, Result.SUCCESS)}"


def key(number: int) -> IssueKey:
    return IssueKey(str(number))


# --- reading


def test_an_issue_is_told_as_it_is(repo: Repo, open_board: Opener) -> None:
    text = "line\r\n" * 10_000 + "x" * 5_000
    number = repo.issue("a tïtle ✅", body=text, labels=["p0", "a, b", "🚀 go", "P9"])
    board = open_board()
    issue = board.issue(key(number))
    assert issue is not None
    assert (issue.key, issue.title, issue.is_open) == (str(number), "a tïtle ✅", True)
    assert issue.body == text.replace("\r\n", "\n")
    assert set(issue.labels) == {"p0", "a, b", "🚀 go", "P9"}
    assert issue.priority == 0
    assert issue.url.endswith(f"/{repo.name}/issues/{number}")
    assert not issue.is_pull
    assert [one.key for one in board.issues(label="A, B")] == [issue.key]
    assert board.issues(label="a") == []


def test_the_most_urgent_of_several_priorities_counts(repo: Repo, open_board: Opener) -> None:
    ordinary, both, own = repo.issue(), repo.issue(labels=["P3", "P1"]), repo.issue(labels=["later", "now"])
    board = open_board()
    assert [issue.key for issue in board.issues()] == [key(both), key(ordinary), key(own)]
    named = open_board(priority_labels=("now", "soon", "later"))
    assert [issue.priority for issue in named.issues()] == [0, 2, 2]
    assert [issue.key for issue in named.issues()] == [key(own), key(ordinary), key(both)]


def test_what_is_not_there(open_board: Opener) -> None:
    board = open_board()
    assert board.issue(key(99)) is None
    assert board.comments(key(99)) == []
    assert board.pull_requests(key(99)) == []
    assert board.issue(IssueKey("no key")) is None
    with pytest.raises(NoSuchIssue):
        board.post(key(99), author="a", body="text")
    with pytest.raises(NoSuchIssue):
        board.post(key(99), author="a", body=BODY, marker=MARKER)
    with pytest.raises(NoSuchIssue):
        board.close_issue(key(99))


@pytest.mark.parametrize("question", ["issue", "comments", "pull_requests"])
def test_a_repository_that_cannot_be_seen_is_no_missing_issue(question: str, open_board: Opener) -> None:
    board = open_board(repo="admin/there-is-none")
    with pytest.raises(BoardUnavailable, match="no repository admin/there-is-none that the token from the test"):
        getattr(board, question)(key(1))
    with pytest.raises(BoardUnavailable, match="no repository"):
        board.open_work((), ())


def test_a_pull_request_is_no_work(repo: Repo, open_board: Opener) -> None:
    number = repo.pull("text")
    issue = open_board().issue(key(number))
    assert issue is not None
    assert issue.is_pull
    assert disposal(issue, (), (), ()) == "a pull request"


def test_an_issue_elsewhere_and_one_name_for_each(repo: Repo, state: str, open_board: Opener) -> None:
    number = repo.issue("here")
    other = Repo(state, "elsewhere", repo.cache)
    far = IssueKey(f"{other.name}#{other.issue('there')}")
    board = open_board()
    issue = board.issue(far)
    assert issue is not None
    assert (issue.key, issue.title) == (far, "there")
    same = board.issue(IssueKey(f"{repo.name.upper()}#{number}"))
    assert same is not None
    assert same.key == str(number)


# --- comments, and who is believed


def test_comments_of_strangers_count_for_nothing(repo: Repo, open_board: Opener) -> None:
    number = repo.issue()
    repo.comment(number, "✅ all done", user="stranger")
    repo.comment(number, BODY, user="stranger")
    repo.comment(number, "hello\r\nyou")
    board = open_board()
    assert [(one.author, one.body) for one in board.comments(key(number))] == [("admin", "hello\nyou")]
    assert [one.author for one in board.all_comments(key(number))] == ["stranger", "stranger", "admin"]
    trusting = open_board(trusted=("Stranger",))
    assert len(trusting.comments(key(number))) == 3  # admin is who asks
    assert len(open_board(user="helper", trusted=("Stranger",)).comments(key(number))) == 2
    [(_, stands)] = board.open_work((), ("✅",))
    assert stands is Standing.READY
    [(_, stands)] = trusting.open_work((), ("✅",))
    assert stands is Standing.NOT_WORK


def test_an_issue_that_a_stranger_opened_is_his(repo: Repo, open_board: Opener) -> None:
    ours, theirs = repo.issue(), repo.issue(user="stranger")
    for board, expected in (
        (open_board(), {key(ours): False, key(theirs): True}),
        (open_board(trusted=("stranger",)), {key(ours): False, key(theirs): False}),  # admin is who asks
        (open_board(user="stranger"), {key(ours): False, key(theirs): False}),
    ):
        assert {one.key: one.is_by_stranger for one, _ in board.open_work((), ())} == expected
        alone = {number: board.issue(number) for number in expected}
        assert {number: one.is_by_stranger for number, one in alone.items() if one} == expected


def test_a_collaborator_counts_as_long_as_he_is_one(repo: Repo, open_board: Opener) -> None:
    number = repo.issue()
    repo.comment(number, "⛔ no", user="helper")
    board = open_board()
    assert board.comments(key(number)) == []
    repo.collaborator("helper")
    assert [one.body for one in board.comments(key(number))] == ["⛔ no"]


def test_two_thousand_comments(repo: Repo, open_board: Opener) -> None:
    number = repo.issue()
    for place in range(1999):
        repo.comment(number, f"comment {place}")
    board = open_board()
    assert board.post(key(number), author="alice", body=BODY, marker=MARKER) is True
    assert board.post(key(number), author="alice", body=BODY, marker=MARKER) is False
    assert [one.body for one in board.comments(key(number))] == [*(f"comment {place}" for place in range(1999)), BODY]
    assert [stands for _, stands in board.open_work((), ())] == [Standing.AWAITING]


# --- posting


def test_a_marker_is_posted_once(repo: Repo, open_board: Opener) -> None:
    number = repo.issue()
    board = open_board()
    assert board.post(key(number), author="alice", body=BODY, marker=MARKER) is True
    assert board.post(key(number), author="alice", body=BODY, marker=MARKER) is False
    assert open_board().post(key(number), author="alice", body=BODY, marker=MARKER) is False
    assert board.post(key(number), author="alice", body="again") is True
    assert board.post(key(number), author="alice", body="again") is True
    assert repo.bodies(number) == [BODY, "again", "again"]


@pytest.mark.parametrize("ahead", [0.0, -3600.0, 30 * 86_400.0])
def test_nothing_older_than_its_run_is_read_for_a_marker(
    ahead: float, repo: Repo, between: Between, open_board: Opener
) -> None:
    """An issue may have thousands of comments. The clock of whoever dispatched it may be ahead of GitHub's."""
    number, now = repo.issue(), time.time()
    board = open_board()
    for is_news in (True, False):
        between.asked.clear()
        assert board.post(key(number), author="alice", body=BODY, marker=MARKER, since=now + ahead) is is_news
        (asked,) = [one for one in between.asked if one.method == "GET" and one.path.endswith("/comments")]
        (since,) = parse_qs(asked.query)["since"]
        told = calendar.timegm(time.strptime(since, "%Y-%m-%dT%H:%M:%SZ"))
        assert abs(told + 86_400 - (now + min(ahead, 0.0))) < 60
    assert board.post(key(number), author="alice", body=BODY, marker=MARKER) is False


def test_a_copied_marker_does_not_keep_ours_back(repo: Repo, open_board: Opener) -> None:
    number = repo.issue()
    repo.comment(number, BODY, user="stranger")
    repo.comment(number, f"> quoted\n{BODY}\nand more")
    assert open_board().post(key(number), author="alice", body=BODY, marker=MARKER) is True
    assert repo.bodies(number).count(BODY) == 2


def test_our_own_marker_is_known_even_to_a_token_whose_owner_is_not_trusted(repo: Repo, open_board: Opener) -> None:
    number = repo.issue()
    board = open_board(user="stranger", trusted=())
    assert board.post(key(number), author="alice", body=BODY, marker=MARKER) is True
    assert board.post(key(number), author="alice", body=BODY, marker=MARKER) is False
    assert len(board.comments(key(number))) == 1


def test_a_closed_issue_can_be_commented_on(repo: Repo, open_board: Opener) -> None:
    number = repo.issue()
    repo.edit(number, state="closed")
    assert open_board().post(key(number), author="alice", body=BODY, marker=MARKER) is True


@pytest.mark.parametrize(
    ("body", "why"), [(" ", "empty"), ("x" * 65_537, "65,536"), ("a\0b", "NUL"), ("\ud800", "UTF-8")]
)
def test_text_that_github_does_not_keep(body: str, why: str, open_board: Opener) -> None:
    with pytest.raises(UsageError, match=why):
        open_board().post(key(1), author="alice", body=body)


# --- by hand


def test_labels_close_and_reopen(repo: Repo, open_board: Opener) -> None:
    number = repo.issue(labels=["a, b", "🚀"])
    board = open_board()
    board.label(key(number), add=["new one", "🚀"], remove=["a, b", "never there"])
    issue = board.issue(key(number))
    assert issue is not None
    assert set(issue.labels) == {"🚀", "new one"}
    assert [board.close_issue(key(number)), board.close_issue(key(number))] == [True, False]
    assert [one.key for one in board.issues(state="closed")] == [key(number)]
    assert [board.reopen_issue(key(number)), board.reopen_issue(key(number))] == [True, False]
    turned = board.issue(key(number))
    assert turned is not None
    assert turned.is_open
    with pytest.raises(UsageError):
        board.label(key(number), add=["two\nlines"])


def test_a_label_that_is_a_path(repo: Repo, between: Between, open_board: Opener) -> None:
    number = repo.issue(labels=[".", "..", "a/b", "kept"])
    open_board().label(key(number), remove=[".", "..", "a/b"])
    path = f"/repos/{repo.name}/issues/{number}/labels/"
    asked = [one.path for one in between.asked if one.method == "DELETE"]
    assert asked == [f"{path}%2E", f"{path}%2E%2E", f"{path}a%2Fb"]


# --- pull requests


def test_pull_requests_by_what_became_of_them(repo: Repo, open_board: Opener) -> None:
    number = repo.issue()
    board = open_board()
    assert board.pull_requests(key(number)) == []
    closed = repo.pull(f"Closes #{number}")
    repo.do("PATCH", f"/repos/{repo.name}/pulls/{closed}", {"state": "closed"})
    repo.pull(f"resolves {repo.name}#{number}", draft=True)
    repo.pull(f"mentions #{number}, fixes #{number}0")
    repo.pull(f"fixes #{number}", base="release")
    repo.pull(f"<!-- fixes #{number} -->`fixes #{number}`")
    assert [one.state for one in board.pull_requests(key(number))] == [PullState.DRAFT, PullState.CLOSED]
    merged = repo.pull(f"text\nFIXED: #{number}")
    repo.merge(merged)
    first, *rest = board.pull_requests(key(number))
    assert first.state is PullState.MERGED
    assert first.url.endswith(f"/pull/{merged}")
    assert first.repo == repo.name
    assert first.merged_at is not None
    assert len(rest) == 2
    work = {issue.key: stands for issue, stands in board.open_work((), ())}
    assert work[key(number)] is Standing.SHIPPED


def test_what_is_written_into_a_pull_request_after_its_merge(repo: Repo, open_board: Opener) -> None:
    """Its author can do that, whoever he is; GitHub closes nothing by it."""
    theirs, early = repo.pull("a change", user="stranger"), repo.pull("a change")
    for number in (theirs, early):
        repo.merge(number)
    time.sleep(1.1)
    late = repo.issue("later than the merge")
    later = repo.pull("a change", user="stranger")
    repo.merge(later)
    for number in (theirs, early, later):
        repo.do("PATCH", f"/repos/{repo.name}/pulls/{number}", {"body": f"Fixes #{late}"})
    assert open_board().pull_requests(key(late)) == []
    assert [stands for issue, stands in open_board().open_work((), ()) if issue.key == key(late)] == [Standing.READY]
    [found] = open_board(trusted=("stranger",)).pull_requests(key(late))
    assert found.url.endswith(f"/{later}")
    repo.edit(late, state="closed")
    assert len(open_board().pull_requests(key(late))) == 3


# --- where issues stand


def test_where_issues_stand(repo: Repo, open_board: Opener) -> None:
    numbers = [repo.issue(f"issue {place}") for place in range(6)]
    ready, done, glyph, labelled, turned, closed = numbers
    for number in (done, turned):
        repo.comment(number, BODY)
    repo.comment(glyph, "⛔ never")
    repo.edit(labelled, labels=["wontfix"])
    repo.edit(turned, labels=["again"])
    repo.edit(closed, state="closed")
    board = open_board()
    expected = {
        ready: Standing.READY,
        done: Standing.AWAITING,
        glyph: Standing.NOT_WORK,
        labelled: Standing.NOT_WORK,
        turned: Standing.READY,
    }
    work = board.open_work(("wontfix",), ("⛔",))
    assert {int(issue.key): stands for issue, stands in work} == expected
    for issue, stands in work:  # one by one the answer is the same
        alone = board.issue(issue.key)
        assert alone is not None
        assert alone.turned_at == issue.turned_at or stands is Standing.READY
        found = standing(alone, board.comments(issue.key), board.pull_requests(issue.key), ("wontfix",), ("⛔",))
        assert found is stands
