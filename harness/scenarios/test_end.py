"""Ending: however a run ends, the record and the issue name the true result, with exactly one of each marker."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import steps, trees
from harness.box import Box
from harness.control import Edit, Mutant, kill
from harness.scene import Scene

BOTH = ["started", "finished"]
READY = "echo $$ > ~/ready; "
PLAIN_SLEEP = READY + "exec sleep 60"


def host_pids(box: Box, unit: str) -> list[int]:
    """The processes in a unit's cgroup, by the host's numbers."""
    groups = [path for path in box.cgroup.rglob(unit) if path.is_dir()]
    assert len(groups) == 1, f"cgroups of {unit}: {groups}"
    return [int(pid) for procs in groups[0].rglob("cgroup.procs") for pid in procs.read_text().split()]


def signal_all(number: signal.Signals) -> Callable[[Scene, str], None]:
    """Somebody sends a signal to every process of the unit."""

    def act(scene: Scene, issue: str) -> None:
        for pid in host_pids(scene.box, f"task-{issue}.service"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    return act


def systemctl(*argv: str) -> Callable[[Scene, str], None]:
    def act(scene: Scene, issue: str) -> None:
        scene.box.run("systemctl", "--user", *argv, f"task-{issue}.service", account=scene.account)

    return act


def gtrun_stop(scene: Scene, issue: str) -> None:
    scene.gtrun("stop", issue)


def out_of_memory(scene: Scene, issue: str) -> None:
    """What systemd-oomd does: it counts on the unit's cgroup, and sends SIGKILL to all that is in it."""
    (group,) = [path for path in scene.box.cgroup.rglob(f"task-{issue}.service") if path.is_dir()]
    for count in ("user.oomd_ooms", "user.oomd_kill"):
        os.setxattr(group, count, b"1")
    signal_all(signal.SIGKILL)(scene, issue)


@dataclass(frozen=True, slots=True)
class Case:
    """An agent program (a shell script), what is done to it once it is ready, and the truth about it."""

    name: str
    script: str
    result: str
    code: int | None = None
    signal: str | None = None
    act: Callable[[Scene, str], None] | None = None
    reason: str = ""
    profile: str = ""
    manager_says: str | None = None

    def __str__(self) -> str:
        return self.name


CASES = [
    Case("exit 0", "exit 0", "success", code=0),
    Case("exit 3", "exit 3", "failed", code=3),
    Case("SIGSEGV of its own", "kill -SEGV $$", "failed", signal="SEGV"),
    Case("kill -9 of all", "sleep 60 & " + PLAIN_SLEEP, "killed", signal="KILL", act=signal_all(signal.SIGKILL)),
    Case("systemctl kill", PLAIN_SLEEP, "killed", signal="KILL", act=systemctl("kill", "-s", "KILL")),
    Case("SIGTERM by a stranger", PLAIN_SLEEP, "killed", signal="TERM", act=signal_all(signal.SIGTERM)),
    Case("out of memory", "sleep 60 & " + PLAIN_SLEEP, "oom-kill", signal="KILL", act=out_of_memory),
    Case("systemctl stop", PLAIN_SLEEP, "stopped", signal="TERM", act=systemctl("stop"), reason="by systemd"),
    Case("gtrun stop", PLAIN_SLEEP, "stopped", signal="TERM", act=gtrun_stop, reason="by gtrun stop (alice)"),
    Case(
        "stop, trapped, exit 0",
        "trap 'exit 0' TERM; " + READY + "sleep 60 & wait",
        "stopped", code=0, act=gtrun_stop, reason="by gtrun stop (alice)",
    ),
    Case(
        "stop, trapped, exit 3",
        "trap 'exit 3' TERM; " + READY + "sleep 60 & wait",
        "stopped", code=3, act=systemctl("stop"), reason="by systemd",
    ),
    Case(
        "time limit", PLAIN_SLEEP, "timeout", signal="TERM", reason="time limit reached", profile='time_limit = "2s"'
    ),
    Case(
        "time limit, trapped, exit 0",
        "trap 'exit 0' TERM; " + READY + "sleep 60 & wait",
        "timeout", code=0, reason="time limit reached", profile='time_limit = "2s"',
    ),
    # SIGTERM is ignored for longer than was left of the time limit: the stop came first all the same
    Case(
        "stop shortly before the time limit",
        "trap '' TERM; " + PLAIN_SLEEP,
        "stopped", signal="KILL", act=gtrun_stop, reason="by gtrun stop (alice)",
        profile='time_limit = "8s"\nstop_timeout = "10s"',
    ),
    Case(
        "a left-over child ignores SIGTERM",
        "(trap '' TERM; touch ~/deaf; exec sleep 60) & until test -e ~/deaf; do :; done; exit 0",
        "success", code=0, profile='stop_timeout = "10s"', manager_says="timeout",
    ),
]  # fmt: skip


def ends(case: Case) -> Callable[[Box], None]:
    """The scenario of a case."""

    def scenario(box: Box) -> None:
        scene = Scene(box)
        scene.runs_shell(case.script, case.profile)
        issue = scene.issue()
        scene.gtrun("dispatch", "me", issue)
        if case.act:
            scene.appears(f"{scene.home}/ready")
            case.act(scene, issue)
        scene.idle(timeout=30)
        assert scene.kinds(issue) == BOTH, f"markers are {scene.kinds(issue)}"
        (run,) = scene.runs(issue)
        ending = run["ending"]
        assert ending["result"] == case.result, f"result is {ending['result']}: {ending}"
        assert case.manager_says in {None, ending["service_result"]}, ending
        assert (ending.get("exit_code"), ending.get("signal")) == (case.code, case.signal), ending
        assert ending.get("reason", "") == (case.reason or ("from outside" if case.result == "killed" else "")), ending
        how = f"signal {case.signal}" if case.signal else f"exit code {case.code}"
        said = scene.asks("board", "show", issue)["comments"][-1]["body"]
        assert f": {case.result}, {how}" in said, said
        assert case.reason in said, said

    return scenario


@pytest.mark.parametrize("case", CASES, ids=str)
def test_result(case: Case, box: Box) -> None:
    ends(case)(box)


def case(name: str) -> Case:
    return next(one for one in CASES if one.name == name)


def grandchildren_die_with_their_run(box: Box) -> None:
    """A `setsid` grandchild is dead after a stop and after a normal end; another run and its own live on."""
    scene = Scene(box)
    grandchild = "setsid sh -c 'echo $$ > ~/grandchild-$GTRUN_ISSUE; exec sleep 60' &"
    scene.runs_shell(f"{grandchild} test -e ~/short || exec sleep 60")
    stopped, other, ended = scene.issue(), scene.issue(), scene.issue()
    pids = {}
    for issue in (stopped, other):
        scene.gtrun("dispatch", "me", issue)
        pids[issue] = scene.appears(f"{scene.home}/grandchild-{issue}").strip()
    scene.sh("touch short")
    scene.gtrun("dispatch", "me", ended)
    scene.gtrun("stop", stopped)
    box.wait_for("the short run's end", lambda: scene.results(ended) == ["success"])
    box.wait_for("two units gone", lambda: scene.units() == [f"task-{other}.service"])
    grandchildren = scene.sh("ps -o pid= -C sleep", check=0).out.split()
    mine = [pid for pid in grandchildren if pid == pids[other]]
    assert mine == [pids[other]], f"the other run's grandchild is gone: {grandchildren}"
    # the other run's two processes and nothing else
    assert len(grandchildren) == 2, f"left alive: {grandchildren}"
    assert scene.results(other) == [None]
    scene.gtrun("stop", other)
    assert [scene.results(issue) for issue in (stopped, ended, other)] == [["stopped"], ["success"], ["stopped"]]


def test_grandchildren_die_with_their_run(box: Box) -> None:
    grandchildren_die_with_their_run(box)


def disposes(why: str, *board: str) -> Callable[[Box], None]:
    """The issue stops being work when all else is done before the started marker: no marker at all, then work again."""

    def scenario(box: Box) -> None:
        scene = Scene(box)
        _, ready = steps.instrument(box, "runner/run.py", ["resolved_here"])
        scene.runs_shell("echo ran >> ~/ran")
        issue = scene.issue()
        steps.hold_at(scene, issue, f"run {ready}")
        scene.gtrun("dispatch", "me", issue)
        steps.is_held(scene, issue)
        scene.gtrun("board", board[0], issue, *board[1:])
        steps.let_go(scene, issue)
        scene.idle()
        assert scene.kinds(issue) == [], f"markers are {scene.kinds(issue)}"
        assert not box.path(f"{scene.home}/ran").exists(), "the agent program ran"
        assert (scene.open_records(), scene.asks("show", issue)["standing"]) == ([], "not-work")
        (run,) = scene.runs(issue)
        assert (run["ending"]["result"], run["ending"]["reason"]) == ("disposed", why), run["ending"]
        assert (run["markers_owed"], run["markers_posted"]) == ([], [])
        if board[0] == "close":
            scene.gtrun("board", "reopen", issue)
            scene.gtrun("dispatch", "me", issue)
            scene.idle()
            assert scene.kinds(issue) == BOTH
            assert scene.results(issue) == ["disposed", "success"]

    return scenario


DISPOSALS = [
    ("closed", "close"),
    ("label 'done'", "label", "--add", "done"),
    ("a comment begins with ✅", "comment", "--body", "✅ merged"),
]


@pytest.mark.parametrize("why", DISPOSALS, ids=lambda why: why[1])
def test_disposed(why: tuple[str, ...], box: Box) -> None:
    disposes(*why)(box)


BURN = """exec /usr/bin/python3 -c '
import os, time
open(os.path.expanduser("~/ready"), "w").close()
while time.process_time() < 1: pass
'"""


def usage_is_the_agents(box: Box) -> None:
    """A second of CPU is reported as about that; memory only where the kernel counts it."""
    scene = Scene(box)
    scene.runs_shell(BURN)
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    scene.idle(timeout=30)
    (run,) = scene.runs(issue)
    usage = run["ending"]["usage"]
    assert 0.8 <= usage["cpu"] <= 2, usage
    assert 1 <= run["ending"]["duration"] < 30, run["ending"]
    counted = any(path.exists() for path in box.cgroup.rglob("memory.peak"))
    assert ("memory_peak" in usage) == counted, usage


def test_usage_is_the_agents(box: Box) -> None:
    usage_is_the_agents(box)


LOOK = (
    r"""
(cat; echo; umask; grep -E '^(SigIgn|SigBlk):' /proc/self/status) > ~/seen 2>&1
"""
    + PLAIN_SLEEP
)


def names_in(box: Box, unit: str) -> list[str]:
    """The names of the processes in a unit's cgroup."""
    return [Path(f"/proc/{pid}/comm").read_text().strip() for pid in host_pids(box, unit)]


def nothing_of_ours_stays(box: Box) -> None:
    """While the agent works no process, descriptor or memory of gtrun is in the unit, and its world is a clean one."""
    scene = Scene(box)
    box.write(f"{scene.home}/prompt.md", "Do {issue} now: $HOME %h", owner=scene.account)
    scene.runs_shell(LOOK, 'prompt = "~/prompt.md"')
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    scene.appears(f"{scene.home}/ready")
    unit = f"task-{issue}.service"
    box.wait_for("the shell to have become its last command", lambda: "sleep" in names_in(box, unit))
    seen = box.path(f"{scene.home}/seen").read_text()
    assert seen.startswith(f"Do {issue} now: $HOME %h\n0022\n"), seen
    masks = dict(line.split(":\t") for line in seen.splitlines() if line.startswith("Sig"))
    assert {name: int(mask, 16) for name, mask in masks.items()} == {"SigIgn": 0, "SigBlk": 0}, masks
    pids = host_pids(box, unit)
    assert len(pids) == 1, f"processes in the unit: {pids}"
    for pid in pids:
        process = Path(f"/proc/{pid}")
        assert "sleep" in (process / "cmdline").read_text()
        exposed = (process / "maps").read_text() + str((process / "exe").readlink())
        assert "/opt/gtrun" not in exposed, exposed
        assert "python" not in exposed, exposed
        opened = sorted(f"{fd.name} -> {fd.readlink()}" for fd in (process / "fd").iterdir())
        assert [line.split(" -> ")[0] for line in opened] == ["0", "1", "2"], opened
        assert opened[0].startswith("0 -> /memfd:prompt"), opened
    shown = scene.properties(unit, "IgnoreSIGPIPE", "Delegate", "UMask")
    assert shown == {"IgnoreSIGPIPE": "no", "Delegate": "yes", "UMask": "0022"}, shown
    scene.gtrun("stop", issue)


def test_nothing_of_ours_stays(box: Box) -> None:
    nothing_of_ours_stays(box)


def with_own_marker(box: Box) -> None:
    """The runner is killed between the post and the `posted` fact, so the marker is posted again: it stays one."""
    scene = Scene(box)
    step = next(name for name in steps.instrument(box, "state/outbox.py", ["post"]) if name.startswith("after"))
    scene.runs_shell("exit 0")
    issue = scene.issue()
    steps.die_at(scene, issue, f"run {step}", once=True)
    scene.gtrun("dispatch", "me", issue)
    scene.idle()
    assert steps.has_died(scene, issue)
    assert scene.kinds(issue) == BOTH, f"markers are {scene.kinds(issue)}"
    assert scene.results(issue) == ["killed"]


def trixie() -> Box:
    """systemd 257: its KILL of a unit reaches whatever is started in the unit's cgroup later on as well."""
    tree = trees.root_of("trixie")
    return Box(tree=tree.path, venv=tree.venv)


MUTANTS = [
    Mutant(
        "marker without its ID",
        [Edit("state/outbox.py", 'marker=f"{kind}:{run.run}",', "marker=None,")],
        with_own_marker,
        r"markers are \['started', 'started', 'finished'\]",
    ),
    Mutant(
        "started intent not durable before the post",
        [Edit("runner/run.py", "record.append(Owed(Kind.STARTED))", "record._told.learn(Owed(Kind.STARTED))")],
        with_own_marker,
        r"markers are \['started'\]",
    ),
    Mutant(
        "no Delegate",
        [Edit("systemd/transient.py", '("Delegate", "b", True),', "")],
        ends(case("systemctl kill")),
        r"markers are \['started'\]",
        boot=trixie,
    ),
    Mutant(
        "the manager's own OOM policy",
        [Edit("systemd/transient.py", 'limits.oom_policy or "stop"', "limits.oom_policy")],
        ends(case("out of memory")),
        r"result is killed: ",
    ),
    Mutant(
        "finished marker posted by the runner",
        [
            Edit(
                "runner/run.py",
                "record.append(Owed(Kind.STARTED))",
                "record.append(Owed(Kind.STARTED), Owed(Kind.FINISHED))",
            ),
            Edit(
                "state/outbox.py",
                "    if run.ending is None:\n",
                "    from gtrun.model import Ending, Result\n"
                "    run.ending or (run := msgspec.structs.replace(run, ending=Ending(result=Result.SUCCESS)))\n"
                "    if run.ending is None:\n",
            ),
            Edit("state/outbox.py", "import time\n", "import time\n\nimport msgspec\n"),
        ],
        ends(case("kill -9 of all")),
        r"finished.*: success",
    ),
    Mutant(
        "result taken from SERVICE_RESULT alone",
        [
            Edit(
                "runner/judge.py",
                "    exited = seen.exit_code",
                '    if seen.service_result == "success":\n'
                "        return Judgement(Result.SUCCESS)\n"
                "    exited = seen.exit_code",
            )
        ],
        ends(case("SIGTERM by a stranger")),
        r"result is success: ",
    ),
    Mutant(
        "disposal asked only before dispatch",
        [Edit("runner/run.py", "gone = _disposed(record, resolved)", "gone = None")],
        disposes(*DISPOSALS[0]),
        r"markers are \['started', 'finished'\]",
    ),
    Mutant(
        "disposal asked before the sync of the clones",
        [
            Edit(
                "runner/run.py",
                "    try:\n        resolved = _sync_clones",
                "    with _reopened(path) as record:\n"
                "        early = _disposed(record, resolved)\n    try:\n        resolved = _sync_clones",
            ),
            Edit("runner/run.py", "gone = _disposed(record, resolved)", "gone = early"),
        ],
        disposes(*DISPOSALS[0]),
        r"markers are \['started', 'finished'\]",
    ),
    Mutant(
        "the runner stays as the agent's parent",
        [
            Edit(
                "runner/become.py",
                "    os.execve(program.path, program.argv, program.environment)",
                "    import subprocess\n    sys.exit(subprocess.run(program.argv, env=program.environment).returncode)",
            )
        ],
        nothing_of_ours_stays,
        r"processes in the unit: \[\d+, \d+\]",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
