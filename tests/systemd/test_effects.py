"""What the kernel shows, read from its files: whether a box holds it is for the scenarios."""

import os
from pathlib import Path

import pytest

from gtrun.model import Limits, Sandbox
from gtrun.systemd import effects
from gtrun.systemd.effects import Mount, mounts_of, not_in_force

MOUNTINFO = """\
22 1 0:20 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/
36 22 0:31 /systemd/inaccessible/dir /home ro,nosuid - tmpfs tmpfs rw,size=1k
41 22 8:1 /a\\040b /srv/a\\040b rw,noatime - ext4 /dev/sda1 ro
"""


def test_mounts_are_read_with_their_escapes_and_both_kinds_of_options():
    assert mounts_of(MOUNTINFO) == [
        Mount("/", "/", False, "overlay"),  # noqa: FBT003
        Mount("/systemd/inaccessible/dir", "/home", True, "tmpfs"),  # noqa: FBT003
        Mount("/a b", "/srv/a b", True, "ext4"),  # noqa: FBT003
    ]


@pytest.fixture
def cgroup(tmp_path, monkeypatch):
    """A folder in the place of a unit's cgroup."""
    monkeypatch.setattr(effects, "cgroup_folder", lambda path: tmp_path / path.lstrip("/"))
    folder = tmp_path / "user.slice/agents.slice/task-1.service"
    folder.mkdir(parents=True)
    return folder


def ignored(limits: Limits, slice_name: str | None = None) -> list[str]:
    cgroup = "/user.slice/agents.slice/task-1.service"
    return not_in_force(limits, slice_name, Sandbox(), cgroup=cgroup, pid=0, home="/")


@pytest.mark.parametrize(
    ("key", "wanted", "file", "held", "other"),
    [
        ("memory_max", 5000, "memory.max", "4096", "max"),
        ("memory_high", 8192, "memory.high", "8192", "8191"),
        ("memory_swap_max", 0, "memory.swap.max", "0", "max"),
        ("tasks_max", 99, "pids.max", "99", "100"),
        ("cpu_weight", 50, "cpu.weight", "50", "100"),
        ("cpu_quota", 150, "cpu.max", "150000 100000", "max 100000"),
        ("io_weight", 50, "io.weight", "default 50\n8:0 70", "default 100"),
        ("io_weight", 10000, "io.bfq.weight", "1000", "100"),
        ("oom_policy", "kill", "memory.oom.group", "1", "0"),
        ("oom_policy", "continue", "memory.oom.group", "0", "1"),
    ],
)
def test_a_limit_is_in_force_if_its_file_says_so(cgroup, key, wanted, file, held, other):
    limits = Limits(**{key: wanted})
    assert ignored(limits) == [f"limits.{key}"]  # no controller: no file
    (cgroup / file).write_text(f"{other}\n")
    assert ignored(limits) == [f"limits.{key}"]
    (cgroup / file).write_text(f"{held}\n")
    assert ignored(limits) == []


def test_what_is_not_asked_for_is_not_missed(cgroup):
    assert not list(cgroup.iterdir())
    assert ignored(Limits()) == []


def test_the_slice_is_the_one_that_the_unit_lies_in(cgroup):
    assert cgroup
    assert ignored(Limits(), "agents.slice") == []
    assert ignored(Limits(), "other.slice") == ["slice"]


def test_a_process_without_any_of_it_shows_none_of_it(tmp_path):
    sandbox = Sandbox(
        protect_home="tmpfs", private_tmp=True, private_devices=True, private_network=True,
        inaccessible_paths=(str(tmp_path),), bind_paths=(str(tmp_path),),
    )  # fmt: skip
    found = not_in_force(Limits(nofile=7), None, sandbox, cgroup="", pid=os.getpid(), home=str(Path.home()))
    assert found == [
        "limits.nofile", "sandbox.protect_home", "sandbox.private_tmp", "sandbox.private_devices",
        "sandbox.private_network", "sandbox.inaccessible_paths", "sandbox.bind_paths",
    ]  # fmt: skip


def test_a_home_that_protect_home_does_not_cover_is_not_protected():
    found = not_in_force(Limits(), None, Sandbox(protect_home="yes"), cgroup="", pid=os.getpid(), home="/srv/agent")
    assert found == ["sandbox.protect_home"]


def test_a_process_that_has_ended_shows_nothing_to_complain_of():
    sandbox = Sandbox(private_tmp=True)
    assert not_in_force(Limits(nofile=7), None, sandbox, cgroup="", pid=1 << 22, home="/") == []
