"""The local board: what it keeps, what it refuses, and what many writers and broken files do to it."""

import contextlib
import os
import re
import resource
import select
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtrun.board.local import BODY_MAX, TITLE_MAX, LocalBoard
from gtrun.board.standing import standing
from gtrun.errors import BoardUnavailable, GtrunError, UsageError
from gtrun.markers import Kind, machine_line
from gtrun.model import PullRequest, PullState, Result, Standing
from gtrun.names import IssueKey, RunId

DEADLINE = 30.0  # seconds; reaching it is a failure, never the normal case
KEY = IssueKey("1")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "folder" / "board.db")


@pytest.fixture
def board(path: str) -> Iterator[LocalBoard]:
    with LocalBoard.open(path, create=True) as board:
        yield board


def make(path: str, issues: int = 1) -> None:
    with LocalBoard.open(path, create=True) as board:
        for number in range(issues):
            board.add(f"issue {number}")


def fork(work: Callable[[], None]) -> int:
    """A child that does `work` and ends without pytest's own ending; 0 if it raised nothing."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def read_soon(reader: int) -> bytes:
    """What a pipe holds, once it holds something: writers that have all died fail the test."""
    assert select.select([reader], [], [], DEADLINE)[0], f"nothing came within {DEADLINE:g} s"
    return os.read(reader, 4096)


def ended(child: int) -> int:
    """The exit code of a child, -n if a signal ended it; one that hangs is killed and fails the test."""
    watch = os.pidfd_open(child)
    try:
        if not select.select([watch], [], [], DEADLINE)[0]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail(f"child {child} did not end within {DEADLINE:g} s")
    finally:
        os.close(watch)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def raw(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=0.0)


# --- what it keeps


def test_a_new_board_is_private_and_complete(path: str) -> None:
    make(path)
    file = Path(path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in file.parent.iterdir()] == ["board.db"]
    with contextlib.closing(raw(path)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_group_folder_makes_it_the_groups(tmp_path: Path) -> None:
    tmp_path.chmod(0o2770)
    before = os.umask(0o077)
    try:
        make(str(tmp_path / "b"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o660


def test_a_sticky_group_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o3770)
    with pytest.raises(BoardUnavailable, match="sticky bit") as raised:
        make(str(tmp_path / "b"))
    assert raised.value.hint == f"chmod -t {tmp_path}"
    assert list(tmp_path.iterdir()) == []


def test_an_issue_comes_back_as_it_was_given(board: LocalBoard) -> None:
    before = time.time()
    first = board.add("first")
    key = board.add("second", body="b", labels=["go", "a,b", "GO"], priority=0, blocked_by=[first, first])
    assert (first, key) == ("1", "2")
    issue = board.issue(key)
    assert issue is not None
    assert (issue.key, issue.title, issue.body, issue.priority) == ("2", "second", "b", 0)
    assert (issue.labels, issue.blocked_by, issue.is_open) == (("a,b", "go"), ("1",), True)
    assert before <= issue.created_at <= time.time()


@pytest.mark.parametrize("key", ["2", "0", "01", "-1", "+1", "1 ", "", "x", "o/r#1", "٣", "9" * 18, "9" * 40])
def test_there_is_no_such_issue(board: LocalBoard, key: str) -> None:
    board.add("only")
    key = IssueKey(key)
    assert board.issue(key) is None
    assert board.comments(key) == []
    for change in (
        lambda: board.post(key, author="a", body="b"),
        lambda: board.label(key, add=["x"]),
        lambda: board.close_issue(key),
        lambda: board.reopen_issue(key),
        lambda: board.add("t", blocked_by=[key]),
    ):
        with pytest.raises(GtrunError) as raised:
            change()
        assert raised.value.message == f"there is no issue {key} on the board {board.path}"
        assert raised.value.code == 1
    assert [issue.title for issue in board.issues(state="all")] == ["only"]


def test_numbers_are_never_used_again(board: LocalBoard) -> None:
    board.add("one")
    with pytest.raises(GtrunError):
        board.add("fails", blocked_by=[IssueKey("7")])
    assert board.add("two") == "2"
    with contextlib.closing(raw(str(board.path))) as database:
        database.execute("DROP TRIGGER issues_stay")
        database.execute("DELETE FROM issues WHERE number = 2")
    assert board.add("three") == "3"


def test_order_and_filters(board: LocalBoard) -> None:
    for title, priority, labels in [
        ("a", 2, ["x"]),
        ("b", 0, []),
        ("c", 4, ["X"]),
        ("d", 0, ["y"]),
        ("e", 2, []),
    ]:
        board.add(title, priority=priority, labels=labels)
    board.close_issue(IssueKey("4"))

    def titles(**filters: object) -> str:
        return "".join(issue.title for issue in board.issues(**filters))  # type: ignore[arg-type]

    assert titles() == "baec"
    assert titles(state="closed") == "d"
    assert titles(state="all") == "bdaec"
    assert titles(label="x") == "ac"
    assert titles(state="all", label="y") == "d"
    assert titles(label="' OR 1=1 --") == ""


def test_close_reopen_label(board: LocalBoard) -> None:
    board.add("t", labels=["a", "b"])
    assert board.close_issue(KEY)
    assert not board.close_issue(KEY)
    assert board.issue(KEY).is_open is False  # type: ignore[union-attr]
    assert board.reopen_issue(KEY)
    assert not board.reopen_issue(KEY)
    board.label(KEY, add=["c", "B"], remove=["A", "unknown"])
    assert board.issue(KEY).labels == ("b", "c")  # type: ignore[union-attr]


def test_only_an_older_issue_blocks_so_there_is_no_cycle(board: LocalBoard) -> None:
    board.add("one")
    with pytest.raises(GtrunError, match="there is no issue 2"):
        board.add("blocked by itself", blocked_by=[IssueKey("2")])
    board.add("two", blocked_by=[KEY])
    for pair in [(1, 2), (1, 1), (2, 2)]:
        with contextlib.closing(raw(str(board.path))) as database, pytest.raises(sqlite3.IntegrityError):
            database.execute("INSERT INTO blockers VALUES (?, ?)", pair)


# Cs are lone surrogates, which are no text
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
LINE = TEXT.filter(lambda text: text.splitlines() == [text] and text.strip() != "")


@pytest.fixture(scope="module")
def long_lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBoard]:
    with LocalBoard.open(str(tmp_path_factory.mktemp("board") / "b"), create=True) as board:
        yield board


@settings(deadline=None)
@given(title=LINE, body=TEXT, label=LINE, author=LINE, comment=TEXT.filter(str.strip))
def test_any_text_comes_back(
    long_lived: LocalBoard, title: str, body: str, label: str, author: str, comment: str
) -> None:
    key = long_lived.add(title[:TITLE_MAX], body=body, labels=[label[:50].strip() or "x"])
    issue = long_lived.issue(key)
    assert issue is not None
    assert (issue.title, issue.body) == (title[:TITLE_MAX], body)
    assert issue.labels == (label[:50].strip() or "x",)
    long_lived.post(key, author=author[:100].strip() or "x", body=comment)
    (found,) = long_lived.comments(key)
    assert (found.author, found.body) == (author[:100].strip() or "x", comment)


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("", "a title cannot be empty"),
        (" \t ", "a title cannot be empty"),
        ("two\nlines", "a title is one line"),
        ("ends\n", "a title is one line"),
        ("two\rlines", "a title is one line"),
        ("two\u2028lines", "a title is one line"),
        ("nul\0", "a title cannot hold a NUL character"),
        ("bad \udcff byte", "a title has to be valid UTF-8"),
        ("x" * (TITLE_MAX + 1), "a title has at most 256 characters, not 257"),
    ],
)
def test_titles_that_are_refused(board: LocalBoard, title: str, words: str) -> None:
    with pytest.raises(UsageError) as raised:
        board.add(title)
    assert raised.value.message == words
    assert board.issues(state="all") == []


def test_lengths_are_characters(board: LocalBoard) -> None:
    board.add("😀" * TITLE_MAX, body="😀" * BODY_MAX)
    assert board.issue(KEY).body == "😀" * BODY_MAX  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["nul\0", "\ud800", "x" * (BODY_MAX + 1)])
def test_bodies_that_are_refused(board: LocalBoard, text: str) -> None:
    board.add("t")
    with pytest.raises(UsageError):
        board.add("t", body=text)
    with pytest.raises(UsageError):
        board.post(KEY, author="a", body=text)


CALLS: dict[str, Callable[[LocalBoard], object]] = {
    "body": lambda board: board.post(KEY, author="a", body=" \n"),
    "author": lambda board: board.post(KEY, author="a\nb", body="b"),
    "label": lambda board: board.label(KEY, add=["x" * 51]),
    "remove": lambda board: board.label(KEY, add=["x"], remove=["kept", "\ud800"]),
    "priority": lambda board: board.add("t", priority=5),
    "filter": lambda board: board.issues(label="\ud800"),
    "empty filter": lambda board: board.issues(label=""),
}


@pytest.mark.parametrize("call", CALLS)
def test_other_arguments_that_are_refused(board: LocalBoard, call: str) -> None:
    board.add("t", labels=["kept"])
    with pytest.raises(UsageError):
        CALLS[call](board)
    (issue,) = board.issues()
    assert issue.labels == ("kept",)
    assert board.comments(KEY) == []


# --- comments and markers


def test_a_comment_stays_as_written(board: LocalBoard) -> None:
    board.add("t")
    board.post(KEY, author="a", body="b")
    with contextlib.closing(raw(str(board.path))) as database:
        for statement in ("UPDATE comments SET body = 'x'", "DELETE FROM comments", "DELETE FROM issues"):
            with pytest.raises(sqlite3.IntegrityError, match=r"append-only|never deleted"):
                database.execute(statement)
    assert [comment.body for comment in board.comments(KEY)] == ["b"]


def test_a_marker_is_posted_once_for_an_issue(board: LocalBoard) -> None:
    board.add("one")
    board.add("two")
    board.close_issue(KEY)
    assert board.post(KEY, author="a", body="first", marker="started:1")
    assert not board.post(KEY, author="b", body="second", marker="started:1")
    assert board.post(KEY, author="a", body="other", marker="finished:1")
    assert board.post(IssueKey("2"), author="a", body="same marker, other issue", marker="started:1")
    assert board.post(KEY, author="a", body="plain") is board.post(KEY, author="a", body="plain") is True
    assert [comment.body for comment in board.comments(KEY)] == ["first", "other", "plain", "plain"]


def test_twenty_posters_of_one_marker(path: str) -> None:
    make(path)
    ready, go = os.pipe(), os.pipe()

    def poster(number: int) -> None:
        with LocalBoard.open(path) as board:
            os.write(ready[1], b".")
            os.close(go[1])
            os.read(go[0], 1)  # all begin when the test closes the other end
            if board.post(KEY, author=f"a{number}", body=f"from {number}", marker="started:x"):
                os._exit(42)

    children = [fork(partial(poster, number)) for number in range(20)]
    came = b""
    while len(came) < len(children):
        came += read_soon(ready[0])
    for descriptor in (*go, *ready):
        os.close(descriptor)
    assert sorted(ended(child) for child in children) == [0] * 19 + [42]
    with LocalBoard.open(path) as board:
        assert len(board.comments(KEY)) == 1


# --- many writers


def test_no_acknowledged_comment_is_lost_to_kill_9(path: str) -> None:
    """Twelve writers; one that has acknowledged ten comments is killed wherever it is, and another begins."""
    make(path)
    reader, writer = os.pipe()

    def write(number: int) -> NoReturn:
        for count in range(1_000_000):
            with LocalBoard.open(path) as board:
                board.post(KEY, author=f"w{number}", body=f"{number}.{count}", marker=f"{number}.{count}")
            os.write(writer, f"{number}.{count}\n".encode())  # below PIPE_BUF: whole or not at all
        raise AssertionError

    alive = {number: fork(partial(write, number)) for number in range(12)}
    acknowledged: list[str] = []
    killed, started = 0, len(alive)
    rest = b""
    end = time.monotonic() + DEADLINE
    try:
        while killed < 30:
            assert time.monotonic() < end, f"only {len(acknowledged)} comments within {DEADLINE:g} s"
            *lines, rest = (rest + read_soon(reader)).split(b"\n")
            for line in lines:
                text = line.decode()
                acknowledged.append(text)
                number = int(text.split(".")[0])
                if text.endswith("9") and number in alive:
                    child = alive.pop(number)
                    os.kill(child, signal.SIGKILL)
                    assert ended(child) == -signal.SIGKILL
                    killed += 1
                    alive[started] = fork(partial(write, started))
                    started += 1
    finally:
        for child in alive.values():
            os.kill(child, signal.SIGKILL)
            ended(child)
        os.close(writer)
        os.close(reader)
    with LocalBoard.open(path) as board:
        bodies = [comment.body for comment in board.comments(KEY)]
    assert len(set(bodies)) == len(bodies)
    assert set(acknowledged) <= set(bodies)
    with contextlib.closing(raw(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_many_make_it_at_once(path: str) -> None:
    def add() -> None:
        with LocalBoard.open(path, create=True) as board:
            board.add(f"from {os.getpid()}")

    children = [fork(add) for _ in range(16)]
    assert [ended(child) for child in children] == [0] * 16
    with LocalBoard.open(path) as board:
        issues = board.issues()
    assert sorted(int(issue.key) for issue in issues) == list(range(1, 17))
    assert {issue.title for issue in issues} == {f"from {child}" for child in children}
    assert [entry.name for entry in Path(path).parent.iterdir()] == ["board.db"]


# --- a board that cannot be had


def test_there_is_no_board(path: str) -> None:
    with pytest.raises(BoardUnavailable) as raised:
        LocalBoard.open(path)
    assert raised.value.message == f"there is no board {path}"
    assert raised.value.hint == 'gtrun board add "…" creates it'
    assert raised.value.code == 75
    assert not Path(path).parent.exists()


@pytest.mark.parametrize("wait", [0.0, 0.3])
def test_another_writer_holds_it(path: str, wait: float) -> None:
    make(path)
    with contextlib.closing(raw(path)) as holder, LocalBoard.open(path, wait=wait) as board:
        holder.execute("BEGIN IMMEDIATE")
        begun = time.monotonic()
        with pytest.raises(BoardUnavailable) as raised:
            board.post(KEY, author="a", body="b")
        took = time.monotonic() - begun
        assert raised.value.message == f"the board {path} is locked by another writer"
        assert wait * 0.8 <= took < wait + 2.0
        assert board.issue(KEY) is not None, "readers do not wait for a writer"
        holder.execute("ROLLBACK")
        assert board.post(KEY, author="a", body="b")


def test_another_connection_holds_it_exclusively(path: str) -> None:
    make(path)
    with contextlib.closing(raw(path)) as holder:
        holder.execute("PRAGMA locking_mode = EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(BoardUnavailable, match="is locked by another writer"):
            LocalBoard.open(path, wait=0.1)
    LocalBoard.open(path).close()


JUNK = {
    "empty": b"",
    "text": b"this is no database\n" * 100,
    "short": b"SQLite format 3\0",
    "zeros": bytes(8192),
}


@pytest.mark.parametrize("name", JUNK)
@pytest.mark.parametrize("create", [False, True])
def test_a_foreign_file_is_left_alone(tmp_path: Path, name: str, create: bool) -> None:  # noqa: FBT001
    file = tmp_path / "b"
    file.write_bytes(JUNK[name])
    with pytest.raises(BoardUnavailable, match="is not a gtrun board"):
        LocalBoard.open(str(file), create=create)
    assert file.read_bytes() == JUNK[name]
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_another_programs_database_is_left_alone(tmp_path: Path, journal: str) -> None:
    file = tmp_path / "b"
    with contextlib.closing(raw(str(file))) as database:
        database.execute(f"PRAGMA journal_mode = {journal}")
        database.execute("CREATE TABLE t (x)")
        database.execute("PRAGMA user_version = 1")
    before = file.read_bytes()
    with pytest.raises(BoardUnavailable, match="is not a gtrun board: it is another program's database"):
        LocalBoard.open(str(file), create=True)
    assert file.read_bytes() == before


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_what_is_no_file(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "b"
    place.mkdir() if kind == "folder" else os.mkfifo(place)
    with pytest.raises(BoardUnavailable, match="is not a gtrun board: it is not a regular file"):
        LocalBoard.open(str(place), create=True)


def crashed(path: str) -> None:
    """A board whose writer was killed: its last comments are only in the log beside it."""

    def write() -> None:
        board = LocalBoard.open(path)
        board.post(KEY, author="a", body="in the log")
        os.kill(os.getpid(), signal.SIGKILL)

    make(path)
    assert ended(fork(write)) == -signal.SIGKILL
    assert Path(f"{path}-wal").stat().st_size > 0


def test_a_log_that_a_killed_writer_left_is_read(path: str) -> None:
    crashed(path)
    with LocalBoard.open(path) as board:
        assert [comment.body for comment in board.comments(KEY)] == ["in the log"]


@pytest.mark.parametrize("damage", ["header", "emptied"])
def test_a_damaged_board_is_left_byte_for_byte_with_its_log(path: str, damage: str) -> None:
    crashed(path)
    file, log = Path(path), Path(f"{path}-wal")
    data = b"" if damage == "emptied" else b"\xff" * 100 + file.read_bytes()[100:]
    file.write_bytes(data)
    log_before = log.read_bytes()
    with pytest.raises(BoardUnavailable, match="is not a gtrun board"):
        LocalBoard.open(path, create=True)
    assert file.read_bytes() == data
    assert log.read_bytes() == log_before


def test_damage_deep_inside_is_told_when_it_is_met(path: str) -> None:
    make(path, issues=200)
    with contextlib.closing(raw(path)) as database:
        (page,) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'issues'").fetchone()
    file = Path(path)
    data = bytearray(file.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
    file.write_bytes(data)
    with LocalBoard.open(path) as board:
        for call in (board.issues, lambda: board.issue(KEY), lambda: board.add("t")):
            with pytest.raises(BoardUnavailable, match="is not a gtrun board"):
                call()
    assert file.read_bytes() == data


def test_a_truncated_board_is_refused(path: str) -> None:
    make(path, issues=200)
    file = Path(path)
    data = file.read_bytes()[:8192]
    file.write_bytes(data)
    with pytest.raises(BoardUnavailable, match="is not a gtrun board: database disk image is malformed"):
        LocalBoard.open(path)
    assert file.read_bytes() == data


@pytest.mark.parametrize(("version", "words"), [(2, "was made by a newer gtrun"), (0, "is not a gtrun board")])
def test_another_schema_is_refused(path: str, version: int, words: str) -> None:
    make(path)
    with contextlib.closing(raw(path)) as database:
        database.execute(f"PRAGMA user_version = {version}")
    before = Path(path).read_bytes()
    with pytest.raises(BoardUnavailable, match=words):
        LocalBoard.open(path)
    assert Path(path).read_bytes() == before


@pytest.mark.parametrize("name", ["a b", "100%", "a?mode=memory", "a#b", "ü😀", "b%20c", "\udcff"])
def test_any_file_name(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name / name)
    make(path)
    with LocalBoard.open(path) as board:
        assert board.issue(KEY) is not None
    assert [entry.name for entry in (tmp_path / name).iterdir()] == [name]


def test_a_use_after_close_is_told(board: LocalBoard) -> None:
    board.close()
    board.close()
    with pytest.raises(BoardUnavailable):
        board.issue(KEY)


# --- no space


def test_no_more_pages_leaves_nothing_half_written(board: LocalBoard) -> None:
    board.add("t")
    (pages,) = board._database.execute("PRAGMA page_count").fetchone()
    board._database.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(BoardUnavailable, match="no space is left for the board"):
        board.add("big", body="x" * BODY_MAX, labels=["l"])
    assert [issue.title for issue in board.issues(state="all")] == ["t"]
    assert board.add("small") == "2"


def test_a_file_size_limit_leaves_nothing_half_written(path: str) -> None:
    make(path)

    def write() -> None:
        board = LocalBoard.open(path)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        for _ in range(2):
            board.post(KEY, author="a", body="x" * 30_000)
        with pytest.raises(BoardUnavailable):
            board.post(KEY, author="a", body="x" * 30_000)
        assert board.issue(KEY) is not None
        os._exit(42)

    assert ended(fork(write)) == 42
    with LocalBoard.open(path) as board:
        assert [len(comment.body) for comment in board.comments(KEY)] == [30_000] * 2
        assert board.post(KEY, author="a", body="there is room again")
    with contextlib.closing(raw(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_opening_imports_nothing_dear() -> None:
    """The guard, the runner and the close-out open a board on their way."""
    names = ("typer", "rich", "sh", "asyncio", "http", "subprocess", "json", "logging", "pystemd")
    program = f"import sys, gtrun.board.local; print(*sorted(set({names}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# --- pull requests, and boards from before them


def url(number: int = 7, state: PullState = PullState.OPEN, **more: bool | float | None) -> PullRequest:
    return PullRequest(url=f"https://git.example/{number}", state=state, **more)  # type: ignore[arg-type]


def test_a_pull_request_is_noted_and_what_becomes_of_it(board: LocalBoard) -> None:
    board.add("t")
    board.record_pull_request(KEY, url(7))
    board.record_pull_request(KEY, url(7, PullState.DRAFT))
    board.record_pull_request(KEY, url(8, auto_merge=True))
    assert board.pull_requests(KEY) == [url(8, auto_merge=True), url(7, PullState.DRAFT)]
    board.record_pull_request(KEY, url(7, PullState.MERGED, merged_at=5.0))
    board.record_pull_request(KEY, url(7, PullState.MERGED, merged_at=9.0))  # told twice: it was merged once
    assert board.pull_requests(KEY)[0] == url(7, PullState.MERGED, merged_at=5.0)
    board.record_pull_request(KEY, url(7, PullState.CLOSED))
    assert board.pull_requests(KEY) == [url(8, auto_merge=True), url(7, PullState.CLOSED)]
    assert board.pull_requests(IssueKey("2")) == board.pull_requests(IssueKey("o/r#1")) == []


def test_one_merged_without_an_instant_was_merged_now(board: LocalBoard) -> None:
    board.add("t")
    before = time.time()
    board.record_pull_request(KEY, url(7, PullState.MERGED))
    merged_at = board.pull_requests(KEY)[0].merged_at
    assert merged_at is not None
    assert before <= merged_at <= time.time()


def test_what_is_no_pull_request(board: LocalBoard) -> None:
    with pytest.raises(GtrunError, match="there is no issue 1"):
        board.record_pull_request(KEY, url())
    board.add("t")
    for text in ("", "a\nb", "x" * 501):
        with pytest.raises(UsageError):
            board.record_pull_request(KEY, PullRequest(url=text, state=PullState.OPEN))


def test_who_reopens_or_labels_an_issue_turns_it(board: LocalBoard) -> None:
    def turned() -> float | None:
        issue = board.issue(KEY)
        assert issue is not None
        return issue.turned_at

    board.add("t")
    assert turned() is None
    board.close_issue(KEY)
    board.post(KEY, author="a", body="b")
    board.record_pull_request(KEY, url())
    assert turned() is None
    for change in (
        lambda: board.reopen_issue(KEY),
        lambda: board.label(KEY, add=["a"]),
        lambda: board.label(KEY, remove=["a"]),
    ):
        before = time.time()
        change()
        at = turned()
        assert at is not None
        assert before - 0.01 <= at <= time.time() + 0.01  # SQLite's own clock has milliseconds
    at = turned()
    board.reopen_issue(KEY)
    board.label(KEY, remove=["a"])
    assert turned() == at  # nothing changed
    assert [issue.turned_at for issue in board.issues()] == [at]


def make_old(path: str) -> None:
    """A board as the first version left it, with one issue and a label."""
    make(path)
    with LocalBoard.open(path) as board:
        board.label(KEY, add=["old"])
    with contextlib.closing(raw(path)) as database:
        for name in ("reopening_turns", "labelling_turns", "unlabelling_turns"):
            database.execute(f"DROP TRIGGER {name}")
        database.execute("DROP TABLE turns")
        database.execute("DROP TABLE pull_requests")
        database.execute("DROP TABLE identity")


def test_an_old_board_is_read_as_it_is(path: str) -> None:
    make_old(path)
    with LocalBoard.open(path) as board:
        issue = board.issue(KEY)
        assert issue is not None
        assert (issue.labels, issue.turned_at) == (("old",), None)
        assert [issue.key for issue in board.issues()] == [KEY]
        assert board.pull_requests(KEY) == []
        assert board.identity == ""
    with contextlib.closing(raw(path)) as database:
        query = "SELECT name FROM sqlite_schema WHERE name IN ('turns', 'identity')"
        assert database.execute(query).fetchall() == []


def test_an_old_board_is_extended_under_processes_of_the_old_version(path: str) -> None:
    """Its next writer does it, and who has it open already goes on; what they label turns the issue as well."""
    make_old(path)
    with contextlib.closing(raw(path)) as old, LocalBoard.open(path) as reader, LocalBoard.open(path) as writer:
        old.execute("INSERT INTO comments (issue, author, body, at) VALUES (1, 'old', 'before', 1)")
        writer.record_pull_request(KEY, url())
        assert reader.pull_requests(KEY) == [url()]
        old.execute("INSERT INTO comments (issue, author, body, at) VALUES (1, 'old', 'after', 2)")
        assert [comment.body for comment in reader.comments(KEY)] == ["before", "after"]
        old.execute("INSERT INTO labels VALUES (1, 'by the old')")
        issue = reader.issue(KEY)
        assert issue is not None
        assert issue.turned_at is not None
        assert old.execute("PRAGMA user_version").fetchone() == (1,)  # so it opens it again
        assert old.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_many_extend_an_old_board_at_once(path: str) -> None:
    make_old(path)

    def write(number: int) -> None:
        with LocalBoard.open(path, wait=DEADLINE) as board:
            board.record_pull_request(KEY, url(number))

    children = [fork(partial(write, number)) for number in range(8)]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 8
    with LocalBoard.open(path) as board:
        assert len(board.pull_requests(KEY)) == 8


def test_a_board_has_an_identity_which_its_copies_have_too(path: str, tmp_path: Path) -> None:
    make(path)
    make(str(tmp_path / "other.db"))
    with contextlib.closing(raw(path)) as database:
        database.execute("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
    identities = []
    for each in (path, str(tmp_path / "backup.db"), str(tmp_path / "other.db")):
        with LocalBoard.open(each) as board:
            identities.append(board.identity)
            assert board.identify() == board.identity
    first, backup, other = identities
    assert re.fullmatch("[0-9a-f]{32}", first)
    assert first == backup != other


def test_many_identify_an_old_board_at_once_and_agree(path: str, tmp_path: Path) -> None:
    """Beside a process of an older gtrun, which has it open and goes on to write."""
    make_old(path)

    def identify(number: int) -> None:
        with LocalBoard.open(path, wait=DEADLINE) as board:
            (tmp_path / f"{number}.told").write_text(board.identify())

    with contextlib.closing(raw(path)) as old:
        old.execute(f"PRAGMA busy_timeout = {DEADLINE * 1000:.0f}")
        children = [fork(partial(identify, number)) for number in range(8)]
        for number in range(20):
            old.execute("INSERT INTO comments (issue, author, body, at) VALUES (1, 'old', ?, 1)", (str(number),))
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 8
    with LocalBoard.open(path) as board:
        assert {file.read_text() for file in tmp_path.glob("*.told")} == {board.identity}
        assert len(board.comments(KEY)) == 20


def test_a_board_that_was_extended_before_there_were_identities_gets_one(path: str) -> None:
    make(path)
    with contextlib.closing(raw(path)) as database:
        database.execute("DROP TABLE identity")
    with LocalBoard.open(path) as board:
        assert board.identity == ""
        board.close_issue(KEY)
        assert len(board.identity) == 32


def test_a_locked_old_board_can_be_read(path: str) -> None:
    make_old(path)
    with contextlib.closing(raw(path)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with LocalBoard.open(path, wait=0.1) as board:
            assert board.pull_requests(KEY) == []
            assert board.issue(KEY) is not None
            with pytest.raises(BoardUnavailable, match="is locked"):
                board.record_pull_request(KEY, url())


class TestOpenWork:
    def test_it_stands_as_when_each_issue_is_asked_for(self, tmp_path):
        """One snapshot in a handful of queries, and the same answer as issue by issue."""
        glyphs = ("✅", "⛔\ufe0f")
        with LocalBoard.open(str(tmp_path / "b.db"), create=True) as board:
            keys = [
                board.add(f"issue {number}", body="long", labels=["done"] if number == 1 else []) for number in range(9)
            ]
            board.close_issue(keys[0])
            run = RunId("a" * 32)
            board.post(keys[2], author="me", body=f"gtrun: x\n\n{machine_line(Kind.FINISHED, run, Result.SUCCESS)}")
            board.post(keys[3], author="me", body=f"gtrun: x\n\n{machine_line(Kind.FINISHED, run, Result.FAILED)}")
            board.post(keys[4], author="me", body=f"{machine_line(Kind.FINISHED, run, Result.SUCCESS)} is a marker")
            board.post(keys[5], author="me", body="  ✅ done")
            board.post(keys[6], author="me", body="not ⛔")
            board.post(keys[7], author="me", body="⛔ no")
            board.record_pull_request(keys[8], PullRequest(url="u", state=PullState.MERGED))
            found = board.open_work(("done",), glyphs)
            for issue, stands in found:
                alone = board.issue(issue.key)
                assert issue == msgspec.structs.replace(alone, body="")
                told = board.comments(issue.key), board.pull_requests(issue.key)
                assert stands is standing(alone, *told, ("done",), glyphs), issue.key
            assert [stands.value for _, stands in found] == [
                "not-work", "awaiting", "ready", "ready", "not-work", "ready", "not-work", "shipped",
            ]  # fmt: skip

    def test_a_board_of_the_first_version_is_read(self, tmp_path):
        with LocalBoard.open(str(tmp_path / "b.db"), create=True) as board:
            board.add("x")
            for trigger in ("reopening", "labelling", "unlabelling"):
                board._database.execute(f"DROP TRIGGER {trigger}_turns")
            for table in ("turns", "pull_requests"):
                board._database.execute(f"DROP TABLE {table}")
            assert [stands for _, stands in board.open_work((), ())] == [Standing.READY]
