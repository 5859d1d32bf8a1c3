"""What only root can show: several accounts on one board, a read-only and a full file system."""

import grp
import os
import pwd
import select
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gtrun.board.local import LocalBoard
from gtrun.errors import BoardUnavailable
from gtrun.names import IssueKey

KEY = IssueKey("1")
DEADLINE = 60.0  # seconds; reaching it is a failure, never the normal case


@pytest.fixture(autouse=True)
def root() -> None:
    if os.geteuid() != 0:
        pytest.fail("needs root; type: sudo .venv/bin/python -m pytest tests/board/test_accounts.py", pytrace=False)


def unused(taken: Callable[[int], object], start: int) -> Iterator[int]:
    for number in range(start, 65_000):
        try:
            taken(number)
        except KeyError:
            yield number


@pytest.fixture
def uids() -> tuple[int, int, int]:
    found = unused(pwd.getpwuid, 61_000)
    return next(found), next(found), next(found)


@pytest.fixture
def gid() -> int:
    return next(unused(grp.getgrgid, 61_000))


@pytest.fixture
def folder(gid: int) -> Iterator[Path]:
    """A folder of the group; pytest's own are closed to other accounts."""
    with tempfile.TemporaryDirectory(prefix="gtrun-board-") as place:
        Path(place).chmod(0o755)
        folder = Path(place, "board")
        folder.mkdir()
        os.chown(folder, 0, gid)
        folder.chmod(0o2770)
        yield folder


def as_account(uid: int, gid: int, work: Callable[[], int]) -> int:
    """Start a child that does `work` as an account and ends with what it returns."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        os.umask(0o077)
        code = work()
    finally:
        os._exit(code)


def read_soon(reader: int) -> bytes:
    """What a pipe holds, once it holds something: writers that have all died fail the test."""
    assert select.select([reader], [], [], DEADLINE)[0], f"nothing came within {DEADLINE:g} s"
    return os.read(reader, 4096)


def ended(child: int) -> int:
    watch = os.pidfd_open(child)
    try:
        if not select.select([watch], [], [], DEADLINE)[0]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail(f"child {child} did not end within {DEADLINE:g} s")
    finally:
        os.close(watch)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def told(work: Callable[[], object]) -> str:
    try:
        work()
    except BoardUnavailable as error:
        return error.message
    return ""


def test_a_group_shares_what_one_account_made(folder: Path, uids: tuple[int, int, int], gid: int) -> None:
    path = str(folder / "b")

    def make() -> int:
        with LocalBoard.open(path, create=True) as board:
            board.add("from the first")
            modes = {(stat.S_IMODE(entry.stat().st_mode), entry.stat().st_gid) for entry in folder.iterdir()}
        return 42 if modes == {(0o660, gid)} else 1

    def use() -> int:
        with LocalBoard.open(path) as board:
            board.add("from the second", blocked_by=[KEY])
            board.post(KEY, author="second", body="hello")
            board.close_issue(KEY)
        return 42

    assert ended(as_account(uids[0], gid, make)) == 42
    assert ended(as_account(uids[1], gid, use)) == 42
    with LocalBoard.open(path) as board:
        assert [issue.title for issue in board.issues(state="all")] == ["from the first", "from the second"]
    # root, who made its log, has taken nothing from the group
    assert ended(as_account(uids[0], gid, lambda: use() and 43)) == 43


def test_accounts_writing_at_once_lose_nothing_to_kill_9(folder: Path, uids: tuple[int, int, int], gid: int) -> None:
    path = str(folder / "b")
    reader, writer = os.pipe()

    def write(number: int) -> int:
        for count in range(1_000_000):
            with LocalBoard.open(path) as board:
                board.post(KEY, author=f"w{number}", body=f"{number}.{count}")
            os.write(writer, f"{number}.{count}\n".encode())
        return 1

    def start(number: int) -> int:
        return as_account(uids[number % 2], gid, lambda: write(number))

    def make() -> int:
        with LocalBoard.open(path, create=True) as board:
            board.add("t")
        return 0

    assert ended(as_account(uids[0], gid, make)) == 0
    alive = {number: start(number) for number in range(10)}
    acknowledged: list[str] = []
    killed, started = 0, len(alive)
    rest = b""
    end = time.monotonic() + DEADLINE
    try:
        while killed < 20:
            assert time.monotonic() < end, f"only {len(acknowledged)} comments within {DEADLINE:g} s"
            *lines, rest = (rest + read_soon(reader)).split(b"\n")
            for line in lines:
                acknowledged.append(line.decode())
                number = int(line.split(b".")[0])
                if line.endswith(b"5") and number in alive:
                    child = alive.pop(number)
                    os.kill(child, signal.SIGKILL)
                    assert ended(child) == -signal.SIGKILL
                    killed += 1
                    alive[started] = start(started)
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


def test_an_outsider_is_told(folder: Path, uids: tuple[int, int, int]) -> None:
    path = str(folder / "b")
    with LocalBoard.open(path, create=True) as board:
        board.add("t")

    def look() -> int:
        words = f"the board {path} cannot be used: Permission denied: {path}"
        both = {told(lambda: LocalBoard.open(path)), told(lambda: LocalBoard.open(path, create=True))}
        return 42 if both == {words} else 1

    assert ended(as_account(uids[2], uids[2], look)) == 42


def test_an_account_that_may_only_read(folder: Path, uids: tuple[int, int, int], gid: int) -> None:
    path = str(folder / "b")
    with LocalBoard.open(path, create=True) as board:
        board.add("t")
    Path(path).chmod(0o640)
    folder.chmod(0o2750)

    def look_alone() -> int:
        words = told(lambda: LocalBoard.open(path))
        return 42 if words == f"the board {path} cannot be opened by this account" else 1

    def look_beside_a_writer() -> int:
        with LocalBoard.open(path) as board:
            assert [issue.title for issue in board.issues()] == ["t"]
            words = told(lambda: board.post(KEY, author="a", body="b"))
        return 42 if words == f"the board {path} is read-only for this account" else 1

    assert ended(as_account(uids[0], gid, look_alone)) == 42
    with LocalBoard.open(path) as board:
        board.post(KEY, author="a", body="the log is there now")
        assert ended(as_account(uids[0], gid, look_beside_a_writer)) == 42


def in_a_mount(size: str, program: str) -> None:
    """Run a Python program in a mount namespace of its own, with a small tmpfs at argv[1]."""
    with tempfile.TemporaryDirectory(prefix="gtrun-board-") as place:
        mount = f'mount -t tmpfs -o size={size} none "$0" && exec "$@"'
        argv = ["unshare", "--mount", "sh", "-c", mount, place, sys.executable, "-c", program, place]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE, check=False)
        assert (done.returncode, done.stderr) == (42, "")


HEAD = """
import os, subprocess, sys
from gtrun.board.local import LocalBoard
from gtrun.errors import BoardUnavailable
place = sys.argv[1]
path = place + "/b"
def told(work):
    try:
        work()
    except BoardUnavailable as error:
        return error.message
    return ""
def remount(how):
    subprocess.run(["mount", "-o", "remount," + how, place], check=True)
"""


def test_a_read_only_file_system_can_be_read() -> None:
    in_a_mount(
        "4m",
        HEAD
        + """
with LocalBoard.open(path, create=True) as board:
    board.add("t")
remount("ro")
with LocalBoard.open(path) as board:
    assert [issue.title for issue in board.issues()] == ["t"]
    words = told(lambda: board.post("1", author="a", body="b"))
    assert words == f"the board {path} is read-only for this account", words
assert told(lambda: LocalBoard.open(place + "/new", create=True)).startswith(
    f"the board {place}/new cannot be used: Read-only file system")
remount("rw")
if not os.fork():
    board = LocalBoard.open(path)
    board.post("1", author="a", body="in the log")
    os._exit(0)  # without closing: the log stays
os.wait()
os.unlink(path + "-shm")
remount("ro")
assert told(lambda: LocalBoard.open(path)) == f"the board {path} cannot be opened by this account"
sys.exit(42)
""",
    )


def test_a_full_file_system_leaves_nothing_half_written() -> None:
    in_a_mount(
        "512k",
        HEAD
        + """
acknowledged = 0
with LocalBoard.open(path, create=True) as board:
    board.add("t")
    words = ""
    while not words:
        words = told(lambda: board.post("1", author="a", body="x" * 5000))
        acknowledged += not words
    assert words == f"no space is left for the board {path}", words
    assert len(board.comments("1")) == acknowledged > 10
before = sorted(os.listdir(place))
words = told(lambda: LocalBoard.open(place + "/new", create=True))
assert "new" in words, words
assert sorted(os.listdir(place)) == before
remount("size=4m")
with LocalBoard.open(path) as board:
    assert len(board.comments("1")) == acknowledged
    assert board.post("1", author="a", body="there is room again")
sys.exit(42)
""",
    )


def test_however_little_space_there_is_a_new_board_is_whole_or_not_there() -> None:
    """Also where the log still fits and what SQLite copies out of it when it closes does not: it says nothing then."""
    in_a_mount(
        "256k",
        HEAD
        + """
def make():
    LocalBoard.open(path, create=True).close()
def free():
    info = os.statvfs(place)
    return info.f_bavail * info.f_frsize
refused = made = 0
for pages in range(60):
    with open(place + "/filler", "wb") as filler:
        filler.write(bytes(free() - pages * 4096))
    words = told(make)
    os.unlink(place + "/filler")
    if words:
        refused += 1
        assert words == f"no space is left for the board {path}", (pages, words)
        assert os.listdir(place) == [], (pages, os.listdir(place))
    else:
        made += 1
        with LocalBoard.open(path) as board:
            assert board.add("t") == "1", pages
        os.unlink(path)
assert refused > 10 and made > 10, (refused, made)
sys.exit(42)
""",
    )
