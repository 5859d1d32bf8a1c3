"""The worker: answers and errors come through, and it ends with its parent, whatever it is doing."""

import os
import pwd
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gtrun.account import Account, own
from gtrun.errors import ManagerSilent, NoManager
from gtrun.names import Token
from gtrun.reach import frames, operations
from gtrun.reach import worker as workers


@pytest.fixture
def me(tmp_path):
    """This account, with a state folder of its own and no manager to talk to."""
    account = own({"XDG_STATE_HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)})
    assert account.runtime == str(tmp_path)
    return account


def pid_of(process):
    """The number of the process that a pidfd refers to."""
    fields = dict(line.split(":") for line in Path(f"/proc/self/fdinfo/{process}").read_text().splitlines())
    return int(fields["Pid"])


def is_gone(pid, *, seconds=20):
    """Whether a process that is not our child ends in time."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    return bool(select.select([watched], [], [], seconds)[0])


def test_an_answer_comes_back_as_its_type(me):
    with workers.as_account(me) as worker:
        answer = worker.call(operations.runs_of, operations.OfIssue(None))
        assert answer == operations.Runs([], [])
        assert worker.call(operations.run_of, operations.ByToken(Token("0" * 32))) is None


def test_an_error_comes_back_as_its_kind(me):
    with workers.as_account(me) as worker:
        for _ in range(2):  # and the worker goes on
            with pytest.raises(NoManager, match="no user manager of") as caught:
                worker.call(operations.list_units, operations.Patterns(["task-*"]))
            assert caught.value.code == 69
            assert "start it with: " in caught.value.hint


def test_a_deadline_ends_the_child(me):
    """A bus that accepts and never answers freezes the binding, and with it all of the child."""
    silent = socket.socket(socket.AF_UNIX)
    silent.bind(f"{me.runtime}/bus")
    silent.listen()
    began = time.monotonic()
    with silent, workers.as_account(me) as worker:
        child = pid_of(worker._process)
        with pytest.raises(ManagerSilent, match=r"did not answer within 0\.5 s"):
            worker.call(operations.list_units, operations.Patterns(["task-*"]), seconds=0.5)
        assert is_gone(child)
    assert time.monotonic() - began < 20


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop to another account")
def test_root_becomes_the_account_for_good():
    nobody = pwd.getpwnam("nobody")
    account = Account("nobody", nobody.pw_uid, nobody.pw_gid, "/", "/nonexistent", "/run/user/0")
    with workers.as_account(account) as worker:
        worker.call(operations.runs_of, operations.OfIssue(None))
        status = Path(f"/proc/{pid_of(worker._process)}/status").read_text()
        ids = {
            line.split(":")[0]: set(line.split()[1:]) for line in status.splitlines() if line.startswith(("Uid", "Gid"))
        }
        assert ids == {"Uid": {str(nobody.pw_uid)}, "Gid": {str(nobody.pw_gid)}}


PARENT = """
import sys
from gtrun.account import own
from gtrun.reach import operations
from gtrun.reach import worker as workers
worker = workers.as_account(own({"XDG_STATE_HOME": sys.argv[1], "XDG_RUNTIME_DIR": sys.argv[1]}))
worker.call(operations.runs_of, operations.OfIssue(None))
worker.ask(operations.await_end, operations.OfRun("task-1.service", None), seconds=None)
fields = dict(line.split(":") for line in open(f"/proc/self/fdinfo/{worker._process}"))
print(int(fields["Pid"]), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_wait_without_a_deadline_ends_with_the_parent(number, tmp_path):
    silent = socket.socket(socket.AF_UNIX)
    silent.settimeout(20)
    silent.bind(f"{tmp_path}/bus")
    silent.listen()
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with silent, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        conversation, _ = silent.accept()  # the child is in its wait
        with conversation:
            assert not is_gone(child, seconds=0)
            parent.send_signal(number)
            assert parent.wait(timeout=20) == -number
            assert is_gone(child)


def test_a_child_that_was_killed_has_no_twin():
    with workers.Worker.start() as worker:
        signal.pidfd_send_signal(worker._process, signal.SIGKILL)
        select.select([worker._process], [], [], 20)
        with pytest.raises(ManagerSilent, match="went away"):
            worker.twin()


def test_a_parent_that_leaves_at_once_gets_no_traceback(capfd):
    """The child is asked for a twin that nobody waits for."""
    for _ in range(5):
        with workers.Worker.start() as worker:
            ours, theirs = socket.socketpair()  # the worker has neither, so that its twin hears of our end
            with ours, theirs:
                socket.send_fds(worker._socket, [workers._TWIN], [theirs.fileno()])
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "answer",
    [
        b"\x1b[2J",
        b"\xff",
        b'{"value":{"runs":7,"damaged":[]}}',
        b'{"value":"' + b"x" * 5000 + b'"}',
        b'{"value":' + b"[" * 100_000,
        b'{"failure":{"kind":"GtrunError","message":"","hint":"","code":77777}}',
    ],
)
def test_what_is_no_answer_is_an_error_of_that_account_alone(answer):
    """An account may run whatever it likes in the place of gtrun: whoever asks others as well goes on with them."""
    ours, theirs = socket.socketpair()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child, theirs:
        worker = workers.Worker(ours, os.pidfd_open(child.pid), is_ours=False)
        worker.ask(operations.runs_of, operations.OfIssue(None), seconds=20)
        theirs.sendall(frames.framed(answer))
        with pytest.raises(ManagerSilent, match=r"^nobody yet gave no answer of gtrun: ") as raised:
            worker.answer(operations.runs_of, seconds=20)
        assert raised.value.message.isprintable()
        assert len(raised.value.message) < 300
        assert child.wait(timeout=20) == -signal.SIGKILL
