"""Limits, slice and drop-ins: what the kernel holds counts, and what it does not is said."""

from __future__ import annotations

import re
from collections.abc import Callable

from harness.box import Box
from harness.scene import Scene

KEYS = {
    "memory_max": '"1G"', "memory_high": '"900M"', "memory_swap_max": '"0"', "tasks_max": "99", "cpu_weight": "50",
    "cpu_quota": '"150%"', "io_weight": "50", "oom_policy": '"kill"', "nofile": "4000",
}  # fmt: skip
SHOWN = {
    "MemoryMax": "1073741824", "MemoryHigh": "943718400", "MemorySwapMax": "0", "TasksMax": "99", "CPUWeight": "50",
    "CPUQuotaPerSecUSec": "1.500000s", "IOWeight": "50", "OOMPolicy": "kill", "LimitNOFILE": "4000",
    "LimitNOFILESoft": "4000", "Slice": "agents-big.slice",
}  # fmt: skip
FILES = {
    "memory_max": "memory.max", "memory_high": "memory.high", "memory_swap_max": "memory.swap.max",
    "tasks_max": "pids.max", "cpu_weight": "cpu.weight", "cpu_quota": "cpu.max", "io_weight": "io.weight",
    "oom_policy": "memory.oom.group",
}  # fmt: skip
HELD = {
    "memory_max": "1073741824", "memory_high": "943718400", "memory_swap_max": "0", "tasks_max": "99",
    "cpu_weight": "50", "cpu_quota": "150000 100000", "io_weight": "default 50", "oom_policy": "1",
}  # fmt: skip


def test_malformed_limits_are_refused(box: Box) -> None:
    """Every mistake is a line of its own, with its key; nothing is accepted and ignored."""
    scene = Scene(box)
    scene.runs_shell("exit 0")
    issue = scene.issue()
    scene.configure(
        '[run]\ncommand = ["true"]\ntime_limit = "soon"\nstop_timeout = "1s"\nmemory_max = "4G"\nslice = "agents"\n'
        '[run.limits]\nmemory_max = "4Q"\ntasks_max = -1\ncpu_quota = "some"\ncpu_wait = 1\noom_policy = "none"\n'
        '[agents.me.run.sandbox]\nprivate_temp = true\nprotect_home = "off"\nprivate_users = true\n'
        'read_write_paths = ["src", "~/a b"]\ninaccessible_paths = ["~/a b"]\n'
    )
    done = scene.gtrun("dispatch", "me", issue, check=78)
    lines = done.err.splitlines()
    keys = [f"run.{key}" for key in ("time_limit", "stop_timeout", "memory_max", "slice")]
    keys += [f"run.limits.{key}" for key in ("memory_max", "tasks_max", "cpu_quota", "cpu_wait", "oom_policy")]
    sandbox = ("private_temp", "protect_home", "private_users", "read_write_paths", "inaccessible_paths")
    keys += [f"agents.me.run.sandbox.{key}" for key in sandbox]
    for key in keys:
        wanted = re.compile(rf"gtrun: {scene.home}/\.config/gtrun/fleet\.toml: {re.escape(key)}: \S.*")
        assert len(list(filter(wanted.fullmatch, lines))) == 1, f"{key}: {done.err}"
    assert len(lines) == len(keys), done.err
    assert "private_temp: unknown key; " in done.err
    assert "did you mean 'private_tmp'?" in done.err
    assert not scene.units()
    scene.configure('[run]\ncommand = ["true"]\n')
    assert not scene.attempts(issue)


def test_limits_are_in_force_or_said_not_to_be(box: Box, not_run_here: Callable[[str], None]) -> None:
    """The manager takes every limit and shows it as set; what the kernel holds is in the unit's cgroup and process.

    Where the machine has a controller, its limit is held; where it has not, that is said, by everyone who looks.
    """
    scene = Scene(box)
    limits = "\n".join(f"{key} = {value}" for key, value in KEYS.items())
    scene.runs_shell("exec sleep 60", f'slice = "agents-big.slice"\n[run.limits]\n{limits}')
    issue = scene.issue()
    unit = f"task-{issue}.service"
    started = scene.gtrun("dispatch", "me", issue)
    assert scene.properties(unit, *SHOWN) == SHOWN
    (cgroup,) = [path for path in box.cgroup.rglob(unit) if path.is_dir()]
    assert cgroup.parent.relative_to(cgroup.parents[2]).parts == ("agents.slice", "agents-big.slice")
    missing = [key for key, file in FILES.items() if not (cgroup / file).exists()]
    held = {key: (cgroup / file).read_text().strip() for key, file in FILES.items() if key not in missing}
    assert held == {key: HELD[key] for key in held}
    pid = scene.properties(unit, "MainPID")["MainPID"]
    assert re.search(r"^Max open files +4000 +4000 ", box.path(f"/proc/{pid}/limits").read_text(), re.MULTILINE)
    if missing:
        not_run_here(f"limits in force whose controller this kernel does not give to cgroup2: {', '.join(missing)}")
    if "memory_max" in missing:
        not_run_here("a run that the kernel ends for its memory: what systemd-oomd does is played instead")
    keys = [f"limits.{key}" for key in missing]
    warned = re.findall(
        r"^gtrun: warning: (\S+) is not in force on me: its controller is not delegated", started.err, re.MULTILINE
    )
    assert sorted(warned) == sorted(keys), started.err
    told = scene.gtrun("ps")
    assert told.err == (f"gtrun: not in force for {unit} on me: {', '.join(warned)}\n" if missing else "")
    assert [run["not_in_force"] for run in scene.asks("ps")["runs"]] == [warned]
    bad = [each["what"] for each in scene.asks("doctor", check=None)["findings"] if not each["is_fine"]]
    reason = "its controller is not delegated to the user manager"
    assert bad == ([f"not in force here: {', '.join(warned)}: {reason}"] if missing else [])
    scene.gtrun("stop", issue)
    assert scene.asks("dispatch", "me", issue)["not_in_force"] == warned
    scene.gtrun("stop", issue)


def test_more_than_the_manager_has(box: Box) -> None:
    """A manager that may not give so many files gives fewer, and says nothing; we do, before a run and after."""
    scene = Scene(box)
    box.write("/etc/systemd/system/user@.service.d/few.conf", "[Service]\nLimitNOFILE=2048\n")
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "restart", "user@1000.service")
    scene.runs_shell("exec sleep 60", "[run.limits]\nnofile = 4096")
    issue = scene.issue()
    done = scene.gtrun("dispatch", "me", issue)
    assert "warning: limits.nofile is not in force on me: the manager may not give so many\n" in done.err
    assert scene.properties(f"task-{issue}.service", "LimitNOFILE") == {"LimitNOFILE": "4096"}
    assert scene.asks("ps")["runs"][0]["not_in_force"] == ["limits.nofile"]
    page = scene.gtrun("doctor", check=1).out
    assert "BAD  me: not in force here: limits.nofile: the manager may not give so many" in page, page
    scene.gtrun("stop", issue)


def test_drop_ins_are_said_and_the_truth_is_told_all_the_same(box: Box) -> None:
    """A drop-in that takes the close-out away, one that starts the unit again, one that changes limits and slice."""
    scene = Scene(box)
    scene.runs_shell("exit 0", "[run.limits]\nnofile = 4096")
    drop_in = f"{scene.home}/.config/systemd/user/task-.service.d/mine.conf"
    first, second = scene.issue(), scene.issue()
    box.write(drop_in, "[Service]\nExecStopPost=\n", owner=scene.account)
    done = scene.gtrun("dispatch", "me", first)
    assert f"gtrun: warning: a drop-in changes task-{first}.service on me: {drop_in}\n" in done.err
    scene.idle()
    assert scene.results(first) == [None]
    page = scene.gtrun("doctor", check=1).out
    assert f"BAD  me: a drop-in changes its runs: {drop_in}" in page, page
    lost = scene.asks("reconcile")["lost"]
    assert [run["issue"] for run in lost] == [first]
    assert scene.results(first) == ["lost"]
    assert scene.kinds(first) == ["started", "finished"]
    box.write(drop_in, "[Service]\nRestart=always\nRestartSec=0\n", owner=scene.account)
    scene.sh("systemctl --user daemon-reload")
    assert scene.asks("dispatch", "me", second)["drop_ins"] == [drop_in]
    box.wait_for("the end of its restarts", lambda: not scene.units(), timeout=20)
    assert scene.results(second) == ["success"]
    assert scene.kinds(second) == ["started", "finished"]
    box.write(drop_in, "[Service]\nLimitNOFILE=100\nSlice=other.slice\n", owner=scene.account)
    scene.sh("systemctl --user daemon-reload")
    scene.runs_shell("exec sleep 60", 'slice = "agents.slice"\n[run.limits]\nnofile = 4096')
    done = scene.gtrun("dispatch", "me", second)
    assert "warning: limits.nofile is not in force on me" in done.err, done.err
    assert "warning: slice is not in force on me: the unit lies in another slice" in done.err, done.err
    scene.gtrun("stop", second)
    assert not scene.open_records()
