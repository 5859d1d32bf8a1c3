"""The box itself: it boots, it is a real machine, it is gone afterwards however its owner ended."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from harness import cgroups
from harness.box import CHECKOUT, Box, BoxError, Completed, Hung, Unexpected
from harness.conftest import MakeBox, assert_clean
from harness.pair import CABLE, connect

PLACES = ("/tmp", "/run", "/var/tmp", "/var/lib/machines")  # noqa: S108 - looked at, not written
BARE = {"venv": None}  # none of these needs gtrun
OWNER = """
    import sys
    from harness.box import Box
    with Box(venv=None) as box:
        print(box.name, box.keeper, box.leader, flush=True)
        if sys.argv[1:] == ["raise"]:
            raise RuntimeError("on purpose")
        sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class Traces:
    """What is still to be seen of a box on the host."""

    processes: list[str]
    cgroups: list[str]
    mounts: list[str]
    files: list[str]

    @classmethod
    def of(cls, name: str) -> Traces:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        return cls(
            [str(entry.parent) for entry in Path("/proc").glob("[0-9]*/cgroup") if name in _read(entry)],
            [str(found) for found in Path("/sys/fs/cgroup").rglob(name)],
            [line for line in mounts if name in line or "/box/root" in line],
            [str(found) for place in PLACES for found in Path(place).glob(f"*{name}*")],
        )


NO_TRACES = Traces([], [], [], [])


@dataclass(frozen=True, slots=True)
class Owner:
    """A process of its own that booted a box."""

    process: subprocess.Popen[str]
    name: str
    ends: tuple[int, int]  # pidfds of keeper and init: neither can be mistaken for a later process

    @classmethod
    def start(cls, *arguments: str) -> Owner:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(OWNER), *arguments],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        name, keeper, leader = process.stdout.readline().split()
        return cls(process, name, (os.pidfd_open(int(keeper)), os.pidfd_open(int(leader))))

    def await_end(self) -> str:
        """Wait until owner, init and keeper have ended; gives the owner's standard error."""
        _, err = self.process.communicate(timeout=10)
        for end in self.ends:
            assert select.select([end], [], [], 10) == ([end], [], []), "a process of the box lives on"
            os.close(end)
        return err


def _is_zombie(process: str) -> bool:
    """Dead, and for the host's init to reap, which takes its own time."""
    return "State:\tZ" in _read(Path(process) / "status")


def _says(read: Callable[[], Completed], word: str) -> bool:
    return word in read().out


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_boots_in_less_than_two_seconds(make_box: MakeBox) -> None:
    box = make_box(**BARE)
    print(f"booted in {box.boot_seconds:.2f} s")
    assert box.boot_seconds < 2
    assert box.run("systemctl", "is-system-running").out == "running\n"
    assert box.run("cat", "/proc/1/comm").out == "systemd\n"


def test_every_account_has_a_user_manager_and_its_own_journal(make_box: MakeBox) -> None:
    box = make_box(accounts=["alice", "bob", "carol"], **BARE)
    for account in box.accounts:
        listed = box.run("systemctl", "--user", "list-units", "--no-legend", "--plain", account=account.name)
        assert "basic.target" in listed.out
        version = box.run(
            "busctl", "--user", "get-property", "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
            "org.freedesktop.systemd1.Manager", "Version", account=account.name,
        )  # fmt: skip
        assert version.out.startswith('s "')
        word = f"hello-{account.name}"
        box.run("systemd-run", "--user", "-q", "--wait", "--collect", "echo", word, account=account.name)
        read = partial(box.run, "journalctl", "-q", account=account.name)
        box.wait_for(f"{account.name} reads its own line", partial(_says, read, word))


def test_without_linger_there_is_no_manager(make_box: MakeBox) -> None:
    box = make_box(linger=False, **BARE)
    assert not box.path("/run/user/1000").exists()
    assert box.leftovers() == []
    box.run("loginctl", "enable-linger", "alice")
    box.wait_for("alice's bus", box.path("/run/user/1000/bus").exists)


def test_two_boxes_at_once_do_not_meet(make_box: MakeBox) -> None:
    one, two = make_box(**BARE), make_box(**BARE)
    one.write("/home/alice/mine", "one", owner="alice")
    assert not two.path("/home/alice/mine").exists()
    assert not Path("/home/alice/mine").exists()
    for box in (one, two):
        box.run("systemd-run", "--user", "-q", "--unit=same-name", "--collect", "sleep", "60", account="alice")
    one.run("systemctl", "--user", "stop", "same-name", account="alice")
    assert two.run("systemctl", "--user", "is-active", "same-name", account="alice").out == "active\n"
    two.run("systemctl", "--user", "stop", "same-name", account="alice")


def test_the_host_stays_as_it_is_and_its_homes_unseen(make_box: MakeBox) -> None:
    box = make_box(**BARE)
    box.write("/etc/only-in-the-box", "x")
    box.run("rm", "/etc/os-release")
    assert not Path("/etc/only-in-the-box").exists()
    assert Path("/etc/os-release").exists()
    assert sorted(entry.name for entry in box.path("/home").iterdir()) == ["alice", "bob"]
    assert {entry.name for entry in box.path("/root").iterdir()} <= {".ssh"}


def test_commands_have_a_closed_environment_and_pass_their_exit_code(make_box: MakeBox) -> None:
    box = make_box(**BARE)
    seen = box.run("env", "-0", account="bob", env={"EXTRA": "$x\n"}, session=False)
    assert dict(pair.split("=", 1) for pair in seen.out.split("\0")[:-1]) == {
        "HOME": "/home/bob", "USER": "bob", "LOGNAME": "bob", "SHELL": "/bin/bash",
        "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "EXTRA": "$x\n",
    }  # fmt: skip
    assert box.run("id", "-un", account="bob").out == "bob\n"
    assert box.run("pwd", account="bob").out == "/home/bob\n"
    assert box.run("cat", stdin=b"\xff\0").stdout == b"\xff\0"
    assert box.run("printf", "%s", b"\xff").stdout == b"\xff"
    assert box.run("sh", "-c", "exit 42", check=42).code == 42
    assert box.run("sh", "-c", "kill -9 $$", check=-9).code == -9
    with pytest.raises(Unexpected, match=r"exit 7, expected 0\n--- stdout\nout\n\n--- stderr\nerr"):
        box.run("sh", "-c", "echo out; echo err >&2; exit 7")


def test_a_command_that_hangs_is_killed_and_what_it_said_is_shown(make_box: MakeBox) -> None:
    box = make_box(**BARE)
    with pytest.raises(Hung, match="so far"):
        box.run("sh", "-c", "echo so far; exec sleep 600", account="alice", timeout=0.3)
    assert box.leftovers() == []


def test_a_signal_reaches_the_command_itself(make_box: MakeBox) -> None:
    box = make_box(**BARE)
    process = box.spawn("sh", "-c", "trap 'echo caught; exit 7' INT; echo up; sleep 60 & wait; kill %1")
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    box.signal(process, signal.SIGINT)
    assert process.stdout.readline() == b"caught\n"
    assert process.wait(timeout=5) == 7
    for stream in (process.stdin, process.stdout, process.stderr):
        assert stream is not None
        stream.close()


def test_ssh_to_another_account_with_a_key(make_box: MakeBox) -> None:
    box = make_box(**BARE)
    box.allow_ssh("bob", "alice")
    answer = box.run("ssh", "-oBatchMode=yes", "alice@127.0.0.1", "id -un; exit 5", account="bob", check=5)
    assert answer.out == "alice\n"
    assert answer.err == ""
    refused = box.run("ssh", "-oBatchMode=yes", "bob@127.0.0.1", "true", account="alice", check=255)
    assert "Permission denied" in refused.err


def test_two_boxes_on_a_cable_that_the_host_does_not_see(make_box: MakeBox) -> None:
    box1, box2 = (make_box(hostname=name, **BARE) for name in ("box1", "box2"))
    pair = connect(box1, box2)
    box1.allow_ssh("alice", "bob", at=box2)
    ssh = ["ssh", "-oBatchMode=yes", "-oConnectTimeout=1", "bob@box2", "hostname; cat /etc/machine-id"]
    told = box1.run(*ssh, account="alice").out.split()
    assert told == ["box2", box2.path("/etc/machine-id").read_text().strip()]
    assert box1.path("/etc/machine-id").read_text().strip() not in told
    pair.unplug()
    box1.run(*ssh, account="alice", check=255)
    pair.plug()
    box1.run(*ssh, account="alice")
    assert CABLE not in Path("/proc/net/dev").read_text()
    os.kill(box2.keeper, signal.SIGKILL)
    with pytest.raises(BoxError, match="keeper ended with -9"):
        box2.close()
    box1.wait_for("the cable's end", lambda: CABLE not in box1.run("cat", "/proc/net/dev").out, timeout=30)


def test_replace_wants_exactly_one_occurrence(make_box: MakeBox) -> None:
    box = make_box(**BARE)
    box.write("/srv/a.py", "x = 1\nx = 2\ny = 3\n")
    box.replace("/srv/*.py", "y = 3", "y = 4")
    assert box.path("/srv/a.py").read_text() == "x = 1\nx = 2\ny = 4\n"
    with pytest.raises(BoxError, match="2 occurrences"):
        box.replace("/srv/a.py", "x = ", "z = ")
    with pytest.raises(BoxError, match="0 occurrences"):
        box.replace("/srv/a.py", "absent", "z")
    with pytest.raises(BoxError, match="0 files match"):
        box.replace("/srv/b*.py", "x", "z")


def test_small_and_read_only_file_systems(make_box: MakeBox) -> None:
    box = make_box(**BARE)
    box.mount_small("/srv/small", 8192, "alice")
    full = box.run("dd", "if=/dev/zero", "of=/srv/small/f", "bs=20000", "count=1", account="alice", check=1)
    assert "No space left on device" in full.err
    box.remount_read_only("/home/bob")
    refused = box.run("touch", "f", account="bob", check=1)
    assert "Read-only file system" in refused.err
    box.remount_writable("/home/bob")
    box.run("touch", "f", account="bob")


def test_leftovers_are_found() -> None:
    with Box(venv=None) as box:
        box.run("systemd-run", "--user", "-q", "--unit=task-1", "sleep", "60", account="alice")
        box.run("systemd-run", "--user", "-q", "--wait", "--unit=task-2", "false", account="alice", check=1)
        box.run("systemd-run", "--user", "-q", "--unit=other", "sleep", "61", account="bob")
        box.run("touch", "/tmp/gtrun.x", "/run/user/1001/gtrun.lock")  # noqa: S108 - the box's own
        found = "\n".join(box.leftovers())
        for trace in (
            "alice: unit task-1.service loaded active running",
            "alice: unit task-2.service loaded failed failed",
            "sleep 60 in /user.slice/user-1000.slice/user@1000.service/app.slice/task-1.service",
            "bob: process",
            "cgroup /user.slice/user-1000.slice/user@1000.service/app.slice/task-1.service",
            "file /tmp/gtrun.x",
            "file /run/user/1001/gtrun.lock",
        ):
            assert trace in found
        with pytest.raises(pytest.fail.Exception, match="left behind"):
            assert_clean(box, tracebacks=False, opened=False)


def test_nothing_is_left_after_a_normal_end() -> None:
    with Box(venv=None) as box:
        assert Traces.of(box.name) != NO_TRACES
    assert Traces.of(box.name) == NO_TRACES
    box.close()


def test_nothing_is_left_after_an_exception() -> None:
    owner = Owner.start("raise")
    assert "RuntimeError: on purpose" in owner.await_end()
    assert owner.process.returncode == 1
    assert Traces.of(owner.name) == NO_TRACES


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_nothing_is_left_after_a_signal_to_the_owner(number: signal.Signals) -> None:
    owner = Owner.start()
    assert Traces.of(owner.name) != NO_TRACES
    owner.process.send_signal(number)
    owner.await_end()
    assert owner.process.returncode == -number
    assert Traces.of(owner.name) == NO_TRACES


class Impatient(Box):
    """Its owner is interrupted while it boots."""

    def _await_keeper(self, keeper: subprocess.Popen[bytes]) -> None:
        assert keeper.stdin is not None
        keeper.stdin.write(json.dumps(self._order).encode() + b"\n")
        keeper.stdin.flush()
        raise KeyboardInterrupt


def test_an_interrupt_during_the_boot_stays_one() -> None:
    box = Impatient(venv=None)
    with pytest.raises(KeyboardInterrupt):
        box.boot()
    left = Traces.of(box.name)
    assert [process for process in left.processes if not _is_zombie(process)] == []
    assert replace(left, processes=[]) == NO_TRACES


def test_the_kernel_cleans_up_after_a_killed_keeper_and_the_next_boot_sweeps(make_box: MakeBox) -> None:
    box = Box(venv=None)
    box.boot()
    init = os.pidfd_open(box.leader)
    os.kill(box.keeper, signal.SIGKILL)
    assert select.select([init], [], [], 10) == ([init], [], []), "the guest outlives its keeper"
    os.close(init)
    with pytest.raises(BoxError, match="keeper ended with -9"):
        box.close()
    for _ in range(100):  # the kernel kills all of a namespace with its init, and takes a moment for it
        left = [process for process in Traces.of(box.name).processes if not _is_zombie(process)]
        if not left:
            break
        select.select([], [], [], 0.1)
    assert left == []
    make_box(**BARE)
    assert Traces.of(box.name).cgroups == []


def test_nothing_of_ours_stays_in_the_cgroup_root() -> None:
    with Box(venv=None):
        assert cgroups.family().is_dir()
    boxes = list(cgroups.family().glob("gtrun-box-*")) if cgroups.family().exists() else []
    assert [box for box in boxes if f"-box-{os.getpid()}-" in box.name] == []


def test_a_box_that_cannot_boot_says_why(tmp_path: Path) -> None:
    with pytest.raises(BoxError, match="the box did not boot"):
        Box(venv=None, tree=tmp_path).boot()


def test_after_a_power_failure_it_is_the_same_machine(make_box: MakeBox) -> None:
    box = make_box(**BARE)
    ask = ("cat", "/etc/machine-id", "/proc/sys/kernel/random/boot_id", "/home/alice/kept")
    box.write("/home/alice/kept", "x", owner="alice")
    box.write("/run/user/1000/lost", "x", owner="alice")
    sleeper = box.spawn("sleep", "600", account="alice")
    before, leader = box.run(*ask).out.splitlines(), box.leader
    box.lose_power()
    sleeper.communicate(timeout=20)
    after = box.run(*ask).out.splitlines()
    assert (after[0], after[2]) == (before[0], before[2])
    assert (after[1] != before[1], box.leader != leader) == (True, True)
    assert not box.path("/run/user/1000/lost").exists()
    box.run("systemctl", "--user", "is-active", "-q", "default.target", account="alice")
