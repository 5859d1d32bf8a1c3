"""A sweep: three questions when nothing has changed, and the same answer as without anything kept when it has."""

import random
import re
import stat
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from gtrun.board.github import cache as cache_module
from gtrun.board.github import known
from gtrun.board.github.board import GitHubBoard
from gtrun.errors import BoardUnavailable
from gtrun.model import Issue, Standing
from harness.between import Between, Fault
from harness.github import USERS
from tests.board.github.conftest import Opener, Repo
from tests.board.github.test_board import BODY, key

LABELS, GLYPHS = ("wontfix",), ("✅", "⛔")


@pytest.fixture(autouse=True)
def _github_lists_comments(between: Between, repo: Repo) -> None:
    between.answers.append(repo.list_comments)


def sweep(board: GitHubBoard) -> dict[str, tuple[Issue, Standing]]:
    return {issue.key: (issue, stands) for issue, stands in board.open_work(LABELS, GLYPHS)}


def stands(board: GitHubBoard) -> dict[str, Standing]:
    return {number: where for number, (_, where) in sweep(board).items()}


# --- how much is asked


def test_five_hundred_issues_with_nothing_changed_are_three_questions_and_all_304(
    repo: Repo, between: Between, open_board: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in range(500):
        repo.issue(f"issue {place}", labels=["ready", "P1"])
    for number in range(1, 130):
        repo.comment(number, BODY if number < 20 else "a word")
    board = open_board(cache=True)
    first = sweep(board)
    assert len(first) == 500
    assert sum(where is Standing.AWAITING for _, where in first.values()) == 19
    cold = len(between.asked)
    # pages: 5 of issues, 5 and 5 of those touched of late, 2, 2 and 2 of comments, 1 of pulls; 19 may have turned
    assert cold < 60, [one.path + "?" + one.query for one in between.asked]
    for again in (board, open_board(cache=True), open_board(cache=True)):
        between.asked.clear()
        asked, unchanged = again.requests
        assert sweep(again) == first
        assert [one.status for one in between.asked] == [304, 304, 304]
        assert (again.requests[0] - asked, again.requests[1] - unchanged) == (3, 3)
    assert {issue.priority for issue, _ in sweep(open_board(cache=True, priority_labels=("ready",))).values()} == {0}
    between.asked.clear()
    repo.comment(400, "⛔ no")
    changed = stands(open_board(cache=True))
    assert changed["400"] is Standing.NOT_WORK
    assert len(between.asked) < 25  # all were touched within the last two minutes, and are looked through again
    between.asked.clear()
    assert stands(open_board(cache=True)) == changed
    assert [one.status for one in between.asked] == [304, 304, 304]
    monkeypatch.setattr(known, "REFRESH", 0.0)
    for _ in range(2):  # the first one finds the list of issues changed by the comment
        between.asked.clear()
        assert stands(open_board(cache=True)) == changed
    assert [one.status for one in between.asked] == [304] * 8


def test_without_a_folder_everything_is_asked_each_time(repo: Repo, between: Between, open_board: Opener) -> None:
    repo.issue()
    board = open_board()
    first = sweep(board)
    asked = len(between.asked)
    assert sweep(board) == first
    assert len(between.asked) == 2 * asked
    assert 304 not in between.statuses()


# --- what is noticed


def test_what_people_do_between_two_sweeps_is_noticed(repo: Repo, open_board: Opener) -> None:
    numbers = [repo.issue(f"issue {place}") for place in range(8)]
    one, two, three, four, five, six, seven, eight = numbers
    awaited = [repo.comment(number, BODY) for number in (one, two, three, four)]
    glyph = repo.comment(five, "⛔ no")

    def now() -> dict[str, Standing]:
        found = stands(open_board(cache=True))
        assert found == stands(open_board())
        return found

    assert [now()[key(number)] for number in numbers[:5]] == [Standing.AWAITING] * 4 + [Standing.NOT_WORK]
    repo.edit(one, labels=["again"])
    repo.do("PATCH", f"/repos/{repo.name}/issues/comments/{awaited[1]}", {"body": "edited"})
    repo.do("DELETE", f"/repos/{repo.name}/issues/comments/{awaited[2]}")
    repo.edit(four, state="closed")
    repo.do("PATCH", f"/repos/{repo.name}/issues/comments/{glyph}", {"body": "on second thoughts"})
    repo.edit(six, labels=["wontfix"])
    repo.merge(repo.pull(f"Fixes #{seven}"))
    repo.comment(eight, BODY, user="stranger")
    new = repo.issue("new", labels=["P0"])
    found = now()
    assert [found.get(key(number)) for number in (one, two, three, four, five, six, seven, eight, new)] == [
        Standing.READY, Standing.READY, Standing.READY, None, Standing.READY, Standing.NOT_WORK, Standing.SHIPPED,
        Standing.READY, Standing.READY,
    ]  # fmt: skip
    assert sweep(open_board(cache=True))[key(new)][0].priority == 0
    repo.edit(four, state="open")
    repo.edit(seven, labels=["more to do"])
    found = now()
    assert found[key(four)] is Standing.READY  # its run was before it was reopened
    assert found[key(seven)] is Standing.READY


def test_a_turn_of_what_has_no_marker_is_noticed_too(repo: Repo, open_board: Opener) -> None:
    """What failed before it had one may be tried again once somebody has changed its labels."""
    number = repo.issue()
    assert sweep(open_board(cache=True))[key(number)][0].turned_at is None
    repo.edit(number, labels=["again"])
    turned = sweep(open_board(cache=True))[key(number)][0].turned_at
    assert turned is not None
    assert abs(turned - time.time()) < 60
    assert sweep(open_board(cache=True))[key(number)][0].turned_at == turned


def test_a_stranger_who_reopens_his_own_issue_turns_nothing(repo: Repo, open_board: Opener) -> None:
    """GitHub lets him: once it was labelled, he could have it run again and again."""
    number = repo.issue(user="stranger")
    repo.comment(number, BODY)
    for state in ("closed", "open"):
        repo.do("PATCH", f"/repos/{repo.name}/issues/{number}", {"state": state}, user="stranger")

    def turned() -> list[bool]:
        alone = open_board().issue(key(number))
        assert alone is not None
        found = (sweep(open_board(cache=True))[key(number)][0], sweep(open_board())[key(number)][0], alone)
        return [issue.turned_at is not None for issue in found]

    assert turned() == [False] * 3
    assert stands(open_board(cache=True)) == {key(number): Standing.AWAITING}
    for state in ("closed", "open"):
        repo.edit(number, state=state)
    assert turned() == [True] * 3


def test_what_touches_nothing_is_noticed_when_all_is_read_again(
    repo: Repo, between: Between, open_board: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, gone = repo.issue(labels=["go"]), repo.issue()
    assert sweep(open_board(cache=True))[key(number)][0].labels == ("go",)
    repo.do("PATCH", f"/repos/{repo.name}/labels/go", {"new_name": "went"})

    def without(path: str, value: object) -> object:  # as after a transfer
        if path.endswith("/issues") and isinstance(value, list):
            return [one for one in value if one["number"] != gone]
        return value

    between.edits.append(without)
    monkeypatch.setattr(known, "REFRESH", 0.0)
    found = sweep(open_board(cache=True))
    assert list(found) == [key(number)]
    assert found[key(number)][0].labels == ("went",)


def test_a_blocker_that_is_done_elsewhere(
    repo: Repo, state: str, open_board: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Repo(state, "a-blocker-elsewhere", repo.cache)
    far = other.issue()
    number = repo.issue(body=f"Blocked by {other.name}#{far}")
    assert sweep(open_board(cache=True))[key(number)][0].blocked_by == (f"{other.name}#{far}",)
    other.edit(far, state="closed")
    monkeypatch.setattr(known, "REFRESH", 0.0)
    assert sweep(open_board(cache=True))[key(number)][0].blocked_by == ()


def test_other_glyphs_are_looked_for_in_what_was_read_before(repo: Repo, open_board: Opener) -> None:
    number = repo.issue()
    repo.comment(number, "🏁 finished")
    assert stands(open_board(cache=True)) == {key(number): Standing.READY}
    [(_, where)] = open_board(cache=True).open_work((), ("🏁",))
    assert where is Standing.NOT_WORK


@pytest.mark.parametrize("seed", range(2))
def test_any_sequence_of_changes(seed: int, repo: Repo, open_board: Opener) -> None:
    """What is kept never says anything else than a board that keeps nothing."""
    chance = random.Random(seed)  # noqa: S311 - a game
    numbers: list[int] = []
    comments: list[int] = []

    def comment() -> None:
        body = chance.choice([BODY, "✅ done", "⛔", "a word", "> ✅"])
        comments.append(repo.comment(chance.choice(numbers), body, user=chance.choice(["admin", "stranger"])))

    def touch_comment() -> None:
        if comments:
            path = f"/repos/{repo.name}/issues/comments/{chance.choice(comments)}"
            repo.do("PATCH", path, {"body": chance.choice([BODY, "✅", "a word"])})

    def delete_comment() -> None:
        if comments:
            gone = comments.pop(chance.randrange(len(comments)))
            repo.do("DELETE", f"/repos/{repo.name}/issues/comments/{gone}")

    changes = [
        lambda: numbers.append(repo.issue(labels=chance.sample(["P0", "wontfix", "a, b"], 1))),
        comment,
        comment,
        touch_comment,
        delete_comment,
        lambda: repo.edit(chance.choice(numbers), labels=chance.sample(["P0", "wontfix", "🚀"], 1)),
        lambda: repo.edit(chance.choice(numbers), state=chance.choice(["open", "closed"])),
        lambda: repo.merge(repo.pull(f"fixes #{chance.choice(numbers)}")),
    ]
    numbers.append(repo.issue())
    for _ in range(10):
        for _ in range(chance.randrange(1, 4)):
            chance.choice(changes)()
        assert stands(open_board(cache=True)) == stands(open_board())


# --- what goes wrong


def test_what_a_pass_did_not_get_to_is_read_by_the_next(repo: Repo, between: Between, open_board: Opener) -> None:
    numbers = [repo.issue() for _ in range(120)]
    assert len(sweep(open_board(cache=True))) == 120
    for number in numbers:
        repo.edit(number, labels=["wontfix"])
    between.fail(Fault("GET", r"/issues\?.*since.*page=2", status=502), times=99)
    with pytest.raises(BoardUnavailable, match="out of order"):
        sweep(open_board(cache=True, wait=1.0))
    between.clear()
    between.answers.append(repo.list_comments)
    assert set(stands(open_board(cache=True)).values()) == {Standing.NOT_WORK}


def test_a_pass_without_enough_time_goes_on_the_next_time(repo: Repo, between: Between, open_board: Opener) -> None:
    for _ in range(6):
        repo.comment(repo.issue(), BODY)
    between.fail(Fault("GET", r"/events", delay=0.6), times=99)
    with pytest.raises(BoardUnavailable, match="6 issues are read so far, and the next time goes on from there"):
        sweep(open_board(cache=True, wait=2.0))
    asked = sum("/events" in one.path for one in between.asked)
    between.clear()
    between.answers.append(repo.list_comments)
    assert set(stands(open_board(cache=True)).values()) == {Standing.AWAITING}
    assert sum("/events" in one.path for one in between.asked) <= 6 - asked + 1


def test_a_list_too_long_for_one_pass_is_read_in_several(
    repo: Repo, between: Between, open_board: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever page is the last that a pass gets, the next goes on from it."""
    monkeypatch.setattr(known, "_OVERLAP", 0.0)  # nothing of this was touched of late
    numbers = [repo.issue() for _ in range(230)]
    pulls = [repo.pull(f"fixes #{numbers[place]}") for place in range(3)]
    for number in pulls:
        repo.merge(number)
    for number in numbers[::20]:
        for _ in range(35):
            repo.comment(number, BODY)
    time.sleep(1.1)
    faults = (r"/issues\?.*&page=3", r"/pulls", r"/issues/comments\?.*created.*page=3", r"/events")
    asked = []
    for fault in faults:
        between.fail(Fault("GET", fault, status=502), times=99)
        with pytest.raises(BoardUnavailable, match="out of order"):
            sweep(open_board(cache=True, wait=2.5))
        asked.append([(one.path.rsplit("/", 1)[-1], one.query) for one in between.asked if "created" in one.query])
        between.clear()
        between.answers.append(repo.list_comments)
    pages = [[(what, re.findall(r"&page=(\d)", query)) for what, query in one] for one in asked]
    issues = [[page for what, page in one if what == "issues"] for one in pages]
    assert issues[0][:3] == [[], ["2"], ["3"]]
    assert issues[1:] == [[["2"], ["3"]], [], []]
    comments = [[page for what, page in one if what == "comments"] for one in pages]
    assert comments[:2] == [[], []]
    assert comments[2][:3] == [[], ["2"], ["3"]]
    assert comments[3] == [["2"], ["3"], ["4"], ["5"]]
    found = stands(open_board(cache=True))
    fresh = stands(open_board())
    assert found == fresh
    assert list(found.values()).count(Standing.SHIPPED) == 3


def files(folder: Path) -> Iterable[Path]:
    return (path for path in folder.iterdir() if path.is_file())


def test_what_is_kept_is_private_and_does_not_hold_the_token(repo: Repo, open_board: Opener) -> None:
    repo.issue()
    sweep(open_board(cache=True))
    assert stat.S_IMODE(repo.cache.stat().st_mode) == 0o700
    kept = list(files(repo.cache))
    assert len(kept) >= 4
    for path in kept:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert USERS["admin"].encode() not in path.read_bytes()
        assert USERS["admin"] not in path.name


def test_another_token_gets_nothing_of_what_is_kept(repo: Repo, between: Between, open_board: Opener) -> None:
    repo.issue()
    sweep(open_board(cache=True))
    between.asked.clear()
    sweep(open_board(cache=True, user="helper"))
    assert between.statuses()[:3] == [200] * 3
    assert "if-none-match" not in between.asked[0].headers


def test_another_repository_gets_nothing_of_what_is_kept(
    repo: Repo, state: str, between: Between, open_board: Opener
) -> None:
    """One account with one token may work from two."""
    other = Repo(state, "kept-beside-it", repo.cache, between.url)
    between.answers.append(other.list_comments)
    numbers = [repo.issue() for _ in range(3)]
    far = other.issue("theirs")
    for _ in range(2):
        assert set(sweep(open_board(cache=True))) == {key(number) for number in numbers}
        [(issue, _)] = open_board(cache=True, repo=other.name).open_work((), ())
        assert (issue.key, issue.title) == (key(far), "theirs")


@pytest.mark.parametrize("damage", ["garbage", "truncated", "empty", "folder", "link", "unreadable shape"])
def test_what_is_damaged_counts_as_not_there(damage: str, repo: Repo, open_board: Opener, tmp_path: Path) -> None:
    number = repo.issue()
    repo.comment(number, BODY)
    first = sweep(open_board(cache=True))
    target = tmp_path / "target"
    target.write_bytes(b"not to be touched")
    for path in files(repo.cache):
        data = path.read_bytes()
        match damage:
            case "garbage":
                path.write_bytes(b"\xc1" + data)
            case "truncated":
                path.write_bytes(data[: len(data) // 2])
            case "empty":
                path.write_bytes(b"")
            case "folder":
                path.unlink()
                path.mkdir()
            case "link":
                path.unlink()
                path.symlink_to(target)
            case _:
                path.write_bytes(b"\x93\x01\x02\x03")
    assert sweep(open_board(cache=True)) == first
    assert target.read_bytes() == b"not to be touched"


def test_a_folder_that_cannot_be_had_is_done_without(repo: Repo, open_board: Opener) -> None:
    number = repo.issue()
    repo.cache.write_text("a file in its place")
    assert list(sweep(open_board(cache=True))) == [key(number)]


def test_what_is_too_old_or_too_much_goes(repo: Repo, open_board: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    number = repo.issue()
    sweep(open_board(cache=True))
    before = set(files(repo.cache))
    monkeypatch.setattr(cache_module, "_PRUNE_EVERY", 0.0)
    monkeypatch.setattr(cache_module, "MOST_BYTES", 0)
    repo.comment(number, "touched")
    sweep(open_board(cache=True))
    assert not [path for path in files(repo.cache) if path.suffix == ".gh"]
    assert before
