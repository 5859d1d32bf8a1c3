"""The claim lock: held by one, let go by whatever end, never a reason to stop."""

import contextlib
import errno
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gtrun.state import claim
from gtrun.state.claim import Claim, taken

LIMIT = 20.0  # seconds; reaching it is a failure

HOLDER = """
import sys
from pathlib import Path
from gtrun.state.claim import Claim, taken
claim = Claim()
with taken(Path(sys.argv[1]), wait=float(sys.argv[2]), claim=claim):
    print(claim.problem or "held", flush=True)
    sys.stdin.read()
"""
"""Says when it has the lock, and lets it go when its stdin is closed."""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "claim.lock"


@contextlib.contextmanager
def process(path, *, wait=LIMIT, script=HOLDER):
    """A process of its own that takes the lock; it is killed at the end."""
    command = [sys.executable, "-c", script, str(path), str(wait)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True) as child:
        try:
            yield child
        finally:
            child.kill()
            child.stdin.close()


@contextlib.contextmanager
def held_elsewhere(path):
    """The lock is held by another process meanwhile."""
    with process(path) as holder:
        assert holder.stdout.readline() == "held\n"
        yield holder


def take(path, *, wait=LIMIT):
    """Take the lock and let it go; returns what happened."""
    told = Claim()
    with taken(path, wait=wait, claim=told):
        pass
    return told


def is_free(path):
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def children():
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_it_is_held_and_let_go(path):
    told = Claim()
    with taken(path, wait=1, claim=told):
        assert not is_free(path)
        time.sleep(0.05)
    assert is_free(path)
    assert told.problem == ""
    assert told.waited < 1
    assert 0.05 <= told.held < LIMIT
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_an_error_under_it_lets_it_go_and_comes_through(path):
    told = Claim()
    with pytest.raises(ZeroDivisionError), taken(path, wait=1, claim=told):
        raise ZeroDivisionError
    assert is_free(path)
    assert told.held > 0


def test_it_is_waited_for(path):
    with held_elsewhere(path) as holder:
        release = "import sys, time; time.sleep(0.3); sys.stdin.close()"
        with subprocess.Popen([sys.executable, "-c", release], stdin=holder.stdin):
            holder.stdin.close()
            told = take(path)
    assert told.problem == ""
    assert 0.05 < told.waited < LIMIT


def test_the_wait_ends_and_that_is_an_answer(path):
    with held_elsewhere(path):
        before = children()
        began = time.monotonic()
        told = take(path, wait=0.3)
        took = time.monotonic() - began
        assert told.problem == f"the claim lock {path} was not to be had within 0.3 s"
        assert 0.3 <= told.waited <= took < LIMIT
        assert told.held == 0
        assert children() == before
        assert not is_free(path)
    assert take(path).problem == ""


def test_no_wait_at_all_is_no_error(path):
    with held_elsewhere(path):
        assert "within 0 s" in take(path, wait=0).problem


def test_a_wait_of_ages_is_no_error(path):
    with held_elsewhere(path) as holder, process(path, wait=1e15) as waiter:
        assert not select.select([waiter.stdout], [], [], 0.5)[0]
        holder.kill()
        assert waiter.stdout.readline() == "held\n"


def test_a_holder_that_is_killed_holds_nothing(path):
    with held_elsewhere(path) as holder:
        holder.kill()
        holder.wait()
        told = take(path, wait=0)
    assert told.problem == ""


def test_a_stopped_holder_holds_it_until_it_is_killed(path):
    with held_elsewhere(path) as holder:
        holder.send_signal(signal.SIGSTOP)
        assert "not to be had" in take(path, wait=0.2).problem
        holder.kill()
        holder.wait()
        assert take(path, wait=0).problem == ""


def waiting_child(path):
    """The child in which a process waits for the lock (proc(5), locks: `->` marks who is blocked)."""
    file = path.stat()
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if fields[1] == "->" and fields[6].endswith(f":{file.st_ino}"):
                return int(fields[5])
    pytest.fail("nobody waits for the lock")


def ends(pid):
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with os.fdopen(watched):
        return bool(select.select([watched], [], [], LIMIT)[0])


def test_an_interrupt_ends_the_wait_and_leaves_no_child_and_no_lock(path):
    with held_elsewhere(path) as holder, process(path) as waiter:
        child = waiting_child(path)
        waiter.send_signal(signal.SIGINT)
        assert waiter.wait(timeout=LIMIT) in {1, -signal.SIGINT}
        assert "KeyboardInterrupt" in waiter.stderr.read()
        assert not Path(f"/proc/{child}").exists()
        holder.kill()
        holder.wait()
        assert take(path, wait=0).problem == ""


def test_a_killed_waiter_leaves_nobody_who_holds_anything(path):
    """Its child may wait on, but without the parent's descriptors, and what it gets it lets go at once."""
    with held_elsewhere(path) as holder, process(path) as waiter:
        child = waiting_child(path)
        assert [link.readlink() for link in Path(f"/proc/{child}/fd").iterdir()] == [path]
        waiter.kill()
        assert waiter.stdout.read() == ""  # nobody else has our end of its pipe
        holder.kill()
        assert ends(child)
    assert take(path).problem == ""


def test_a_child_that_cannot_lock_is_a_lock_that_is_not_to_be_had(path, monkeypatch):
    """Whatever the child ends of, it never goes on as a second parent, and its end is not taken for the lock."""

    def fails(descriptor, operation):
        if operation == fcntl.LOCK_EX:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        flock(descriptor, operation)

    flock = fcntl.flock
    with held_elsewhere(path):
        monkeypatch.setattr(fcntl, "flock", fails)
        mine = os.getpid()
        told = take(path)
        assert os.getpid() == mine
    assert "was not to be had within" in told.problem


@pytest.mark.parametrize("where", [(fcntl, "flock", errno.ENOLCK), (os, "fork", errno.EAGAIN)])
def test_what_the_kernel_refuses_is_an_answer(where, path, monkeypatch):
    module, name, number = where

    def refuses(*_):
        raise OSError(number, os.strerror(number))

    with held_elsewhere(path):
        monkeypatch.setattr(module, name, refuses)
        told = take(path)
    assert told.problem == f"the claim lock {path} is not to be had: {os.strerror(number)}"
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()


def plant_link(path):
    (path.parent.parent / "elsewhere").touch(mode=0o600)
    path.symlink_to(path.parent.parent / "elsewhere")


def plant_shared(path):
    path.touch()
    path.chmod(0o644)


def plant_foreign(path):
    path.touch(mode=0o600)
    os.chown(path, 65534, 65534)


@pytest.mark.parametrize(
    ("plant", "why"),
    [
        (plant_link, "Too many levels of symbolic links: "),
        (lambda path: path.symlink_to("nowhere"), "Too many levels of symbolic links: "),
        (os.mkfifo, "it is prw-r--r-- of owner 0, not this account's private file"),
        (Path.mkdir, "Is a directory: "),
        (plant_shared, "it is -rw-r--r-- of owner 0, not this account's private file"),
        (plant_foreign, "it is -rw------- of owner 65534, not this account's private file"),
    ],
    ids=["link", "dangling link", "fifo", "folder", "0644", "foreign"],
)
def test_what_was_planted_is_not_used_and_does_not_hang(plant, why, path):
    path.parent.mkdir(mode=0o700)
    plant(path)
    told = take(path)
    assert told.problem.startswith(f"the claim lock {path} is not to be had: {why.replace('owner 0', owner())}")
    assert "\n" not in told.problem
    assert told.held == 0


def owner():
    return f"owner {os.geteuid()}"


@pytest.mark.parametrize("parent", ["/proc/gtrun/claim.lock", "/dev/null/claim.lock", "/proc/claim.lock"])
def test_a_folder_that_cannot_be_made_is_an_answer(parent):
    assert take(Path(parent)).problem.startswith(f"the claim lock {parent} is not to be had: ")


def test_somebody_elses_folder_is_not_used(path, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    path.parent.symlink_to(tmp_path / "elsewhere")
    assert "is not a folder of this account" in take(path).problem
    assert list((tmp_path / "elsewhere").iterdir()) == []


def replaces(path, monkeypatch, *, times):
    """The file goes away, or another one comes in its place, whenever somebody is about to wait for the lock."""

    def replaced(descriptor, wait):
        if done[0] < times:
            path.unlink()
            if done[0] % 2:
                path.touch(mode=0o600)
            done[0] += 1
        return lock(descriptor, wait)

    done, lock = [0], claim._lock
    monkeypatch.setattr(claim, "_lock", replaced)
    return done


def test_a_file_that_was_replaced_meanwhile_is_another_lock(path, monkeypatch):
    done = replaces(path, monkeypatch, times=4)
    told = Claim()
    with taken(path, wait=LIMIT, claim=told) as descriptor:
        assert os.path.samestat(os.fstat(descriptor), path.stat())
        assert not is_free(path)
        assert len([file for file in opened_by(os.getpid()) if file.name.startswith(path.name)]) == 1
    assert (told.problem, done) == ("", [4])


def test_a_file_that_is_replaced_without_end_is_given_up(path, monkeypatch):
    replaces(path, monkeypatch, times=float("inf"))
    told = take(path, wait=0.2)
    assert told.problem == f"the claim lock {path} was not to be had within 0.2 s"
    assert 0.2 <= told.waited < LIMIT


def opened_by(pid):
    """What a process has open; what it closes meanwhile is left out."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(link.readlink())
    return found


def test_nothing_that_is_forked_or_executed_under_it_holds_it(path):
    """A program that is executed under the lock and outlives it; a fork does too, so workers are forked before."""
    told = Claim()
    with taken(path, wait=1, claim=told):
        inherited = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1, close_fds=False)
        opened = opened_by(inherited.pid)
    with inherited:
        assert path not in opened
        assert is_free(path)
        inherited.stdin.close()


def test_a_clock_that_jumps_changes_nothing(path, monkeypatch):
    """The wall clock is not asked at all: every wait is on CLOCK_MONOTONIC, which is never set (clock_gettime(2))."""

    def asked(*_):
        raise AssertionError

    monkeypatch.setattr(time, "time", asked)
    monkeypatch.setattr(time, "time_ns", asked)
    with held_elsewhere(path):
        told = take(path, wait=0.2)
    assert 0.2 <= told.waited < LIMIT
    assert "not to be had" in told.problem


TWENTY_TIMES = """
import sys
from pathlib import Path
from gtrun.state.claim import Claim, taken
inside = Path(sys.argv[1] + ".inside")
for _ in range(20):
    claim = Claim()
    with taken(Path(sys.argv[1]), wait=float(sys.argv[2]), claim=claim):
        inside.mkdir()
        inside.rmdir()
    assert not claim.problem, claim.problem
"""
"""Fails if somebody else is in there at the same time."""


def test_one_at_a_time(path):
    with contextlib.ExitStack() as stack:
        everyone = [stack.enter_context(process(path, wait=60, script=TWENTY_TIMES)) for _ in range(8)]
        for one in everyone:
            _, errors = one.communicate(timeout=60)
            assert (one.returncode, errors) == (0, "")
