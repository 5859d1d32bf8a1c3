"""As many start up at once as there are CPUs; nobody waits for long, and nobody for ever."""

import select
import signal
import subprocess
import sys

import pytest

# holds a place until its standard input ends, and says so
SCRIPT = """
import os, pwd, sys, types
from gtrun import turns
home, cpus, turns._WAIT = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
pwd.getpwuid = lambda uid: types.SimpleNamespace(pw_dir=home)
os.sched_getaffinity = lambda pid: set(range(cpus))
print("comes", flush=True)
try:
    with turns.turn() as over:
        print("in", flush=True)
        if sys.stdin.readline() == "fork\\n":
            if os.fork() == 0:
                os._exit(len(sys.stdin.read()))
            over()
            print("over", flush=True)
            sys.stdin.read()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
LONG = 60.0


@pytest.fixture
def come(tmp_path):
    """Starts somebody who comes; all of them are ended."""
    (tmp_path / ".local/state/gtrun").mkdir(parents=True)
    there = []

    def start(*, cpus=1, wait=LONG):
        child = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path), str(cpus), str(wait)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        there.append(child)
        assert child.stdout.readline() == b"comes\n"
        return child

    yield start
    for child in there:
        child.kill()
        with child:
            pass


def says(child, seconds=20.0):
    """The next line, if it comes within so many seconds."""
    return child.stdout.readline().strip() if select.select([child.stdout], [], [], seconds)[0] else b""


def waits(child):
    return says(child, 0.3) == b""


def test_one_for_each_cpu(come):
    inside = [come(cpus=3) for _ in range(3)]
    assert [says(child) for child in inside] == [b"in"] * 3
    late = come(cpus=3)
    assert waits(late)
    for child in inside:  # it waits for one of them, whichever that is
        child.stdin.close()
        child.wait()
    assert says(late) == b"in"


def test_a_child_does_not_keep_the_place(come):
    first = come()
    assert says(first) == b"in"
    first.stdin.write(b"fork\n")
    assert says(first) == b"over"
    assert says(come()) == b"in"


def test_a_dead_one_has_no_place(come):
    first = come()
    assert says(first) == b"in"
    second = come()
    assert waits(second)
    first.kill()
    assert says(second) == b"in"


def test_a_stopped_one_is_not_waited_for_long(come):
    first = come()
    assert says(first) == b"in"
    first.send_signal(signal.SIGSTOP)
    second = come(wait=2)
    assert waits(second)
    assert says(second) == b"in"


def test_interrupt(come):
    first = come()
    assert says(first) == b"in"
    second = come()
    assert waits(second)
    second.send_signal(signal.SIGINT)
    assert says(second) == b"interrupted"


@pytest.mark.parametrize("state", ["missing", "a file", "a link"])
def test_without_files_nobody_is_kept_back(come, tmp_path, state):
    folder = tmp_path / ".local/state/gtrun"
    if state == "a link":
        (folder / "starting.0").symlink_to(tmp_path / "victim")
    else:
        folder.rmdir()
    if state == "a file":
        folder.touch()
    assert [says(come()), says(come())] == [b"in", b"in"]
    assert not (tmp_path / "victim").exists()
    assert folder.exists() == (state != "missing")
