"""Trouble at either end of a run: the record names the true result, and the markers come exactly once, if later."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness import steps, writes
from harness.box import Box
from harness.control import Edit, Mutant, kill
from harness.scene import MACHINE_LINE, PACKAGE, Scene

BOTH = ["started", "finished"]
READY = "echo $$ > ~/ready-$GTRUN_ISSUE; "
SLEEPS = READY + "exec sleep 60"
TRAPS = "trap 'exit 0' TERM; " + READY + "sleep 60 & wait"
LOCK = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""
DUMP = """
import json, sqlite3, sys
database = sqlite3.connect(sys.argv[1])
print(json.dumps(database.execute("SELECT issue, body FROM comments ORDER BY id").fetchall()))
"""
PYTHON = "/opt/gtrun/bin/python"


def board_of(scene: Scene) -> str:
    return f"{scene.home}/.local/share/gtrun/board/board.db"


@contextlib.contextmanager
def locked(scene: Scene) -> Iterator[None]:
    """Another writer holds the board."""
    holder = scene.box.spawn(PYTHON, "-c", LOCK, board_of(scene), account=scene.account)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"locked\n"
    try:
        yield
    finally:
        holder.communicate()


def records(scene: Scene, issue: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """The run records of an issue as they lie on the disk, oldest first: folder, facts."""
    found = []
    still_open, closed = (scene.box.path(f"{scene.state}/runs/{name}") for name in ("open", "closed"))
    names = [path.name for path in still_open.glob("*.jsonl")]  # first: what is closed meanwhile is then in either
    names += [path.name for path in closed.glob("*.jsonl") if path.name not in names]
    for name in names:
        path = closed / name if (closed / name).exists() else still_open / name
        try:
            facts = list(facts_of(path))
        except FileNotFoundError:
            path = closed / name
            facts = list(facts_of(path))
        if facts[0]["run"]["issue"]["key"] == issue:
            found.append((facts[0]["run"]["dispatched_at"], path.parent.name, facts))
    return [(folder, facts) for _, folder, facts in sorted(found, key=lambda one: one[0])]


def facts_of(path: Path) -> Iterator[dict[str, Any]]:
    """The facts in a record; what was torn is none."""
    for line in filter(None, path.read_text().split("\n")):
        with contextlib.suppress(json.JSONDecodeError):
            yield json.loads(line)


def all_kinds(scene: Scene) -> dict[str, list[str]]:
    """The kinds of the markers on every issue that has some, in their order."""
    dumped = scene.box.run(PYTHON, "-c", DUMP, board_of(scene), account=scene.account)
    kinds: dict[str, list[str]] = {}
    for issue, body in json.loads(dumped.out):
        kinds.setdefault(str(issue), []).extend(match[1] for match in MACHINE_LINE.finditer(body))
    return kinds


def add_issues(scene: Scene, count: int) -> list[str]:
    """So many new issues; their numbers."""
    return scene.sh(f"for n in $(seq {count}); do gtrun board add -- step-$n; done").out.split()


def result_on_disk(scene: Scene, issue: str) -> str | None:
    """The result in an issue's newest record; None if it has none."""
    endings = [fact["ending"] for fact in records(scene, issue)[-1][1] if fact["type"] == "ended"]
    assert len(endings) <= 1, endings
    return str(endings[0]["result"]) if endings else None


def start(scene: Scene, script: str, more: str = "", title: str = "Mend the roof") -> str:
    """Dispatch a new issue whose program says when it works; returns its number."""
    scene.runs_shell(script, more)
    issue = scene.issue(title)
    scene.gtrun("dispatch", "me", issue)
    scene.appears(f"{scene.home}/ready-{issue}", timeout=20)
    return issue


def settles(scene: Scene, issue: str, result: str) -> None:
    """Several flushers at once, then again: each marker is there once, and the record is history."""
    flushers = [scene.box.spawn("gtrun", "reconcile", account=scene.account) for _ in range(4)]
    said = [flusher.communicate(timeout=60) for flusher in flushers]
    assert [flusher.returncode for flusher in flushers] == [0] * 4, said
    assert scene.gtrun("reconcile").out == "nothing is owed any more\n"
    assert scene.kinds(issue) == BOTH, f"markers are {scene.kinds(issue)}"
    assert scene.results(issue) == [result], f"results are {scene.results(issue)}"
    (told,) = records(scene, issue)
    assert told[0] == "closed", told


# The board


def board_is_locked_at_both_ends(box: Box) -> None:
    """Both markers wait until the board is free again."""
    scene = Scene(box)
    scene.runs_shell(READY + "sleep 60 & wait $!")
    issue = scene.issue()
    with locked(scene):
        scene.gtrun("dispatch", "me", issue)
        scene.appears(f"{scene.home}/ready-{issue}", timeout=20)
        scene.gtrun("stop", issue)
        scene.idle()
        assert scene.kinds(issue) == []
        assert result_on_disk(scene, issue) == "stopped"
    settles(scene, issue, "stopped")


def test_board_is_locked_at_both_ends(box: Box) -> None:
    board_is_locked_at_both_ends(box)


def board_is_gone_at_both_ends(box: Box) -> None:
    """Nobody can ask whether this is still work, so the run proceeds, and its started marker says so when it comes."""
    scene = Scene(box)
    scene.runs_shell(SLEEPS)
    issue = scene.issue()
    folder = board_of(scene).rpartition("/")[0]
    scene.sh(f"mv {folder} {folder}.away")
    said = scene.gtrun("dispatch", "me", issue).err
    hint = 'gtrun: hint: gtrun board add "…" creates it'
    assert said == f"gtrun: board guard failed open: there is no board {board_of(scene)}\n{hint}\n"
    scene.appears(f"{scene.home}/ready-{issue}", timeout=20)
    scene.gtrun("stop", issue)
    assert result_on_disk(scene, issue) == "stopped"
    scene.sh(f"mv {folder}.away {folder}")
    settles(scene, issue, "stopped")
    note = f"Note: whether this is still work could not be asked: there is no board {board_of(scene)}."
    bodies = [comment["body"] for comment in scene.asks("board", "show", issue)["comments"]]
    assert [note in body for body in bodies] == [True, False], f"comments are {bodies}"


@pytest.mark.expects_fail_open
def test_board_is_gone_at_both_ends(box: Box) -> None:
    board_is_gone_at_both_ends(box)


def owed_start_is_posted_while_the_run_works(box: Box) -> None:
    """A started marker that met a locked board does not wait for the end of the run."""
    scene = Scene(box)
    scene.runs_shell(SLEEPS)
    issue = scene.issue()
    with locked(scene):
        scene.gtrun("dispatch", "me", issue)
        scene.appears(f"{scene.home}/ready-{issue}", timeout=20)
    assert scene.kinds(issue) == []
    scene.gtrun("reconcile")
    assert scene.kinds(issue) == ["started"], f"markers are {scene.kinds(issue)}"
    scene.gtrun("stop", issue)
    assert scene.kinds(issue) == BOTH


def test_owed_start_is_posted_while_the_run_works(box: Box) -> None:
    owed_start_is_posted_while_the_run_works(box)


def next_run_posts_what_is_owed(box: Box) -> None:
    """The close-out is over its deadline on a locked board and is killed for it; another issue's run posts for it."""
    scene = Scene(box)
    issue = start(scene, SLEEPS, 'stop_timeout = "10s"')
    with locked(scene):
        scene.gtrun("stop", issue)
        assert result_on_disk(scene, issue) == "stopped"
        assert records(scene, issue)[-1][0] == "open"
        assert scene.kinds(issue) == ["started"]
    scene.runs_shell("exit 0")
    other = scene.issue()
    scene.gtrun("dispatch", "me", other)
    scene.idle()
    assert scene.kinds(issue) == BOTH, f"markers are {scene.kinds(issue)}"
    assert scene.kinds(other) == BOTH
    settles(scene, issue, "stopped")


def test_next_run_posts_what_is_owed(box: Box) -> None:
    next_run_posts_what_is_owed(box)


def fill(box: Box, folder: str, account: str) -> None:
    """Leave no byte free on the file system of a folder."""
    box.run("sh", "-c", f"! cat /dev/zero 2>/dev/null >{folder}/filler", account=account)


def board_disk_is_full(box: Box) -> None:
    scene = Scene(box)
    box.run("install", "-d", "-o", "alice", f"{scene.home}/.local", f"{scene.home}/.local/share")
    box.run("install", "-d", "-o", "alice", f"{scene.home}/.local/share/gtrun")
    box.mount_small(board_of(scene).rpartition("/")[0], 512 * 1024, scene.account)
    scene.runs_shell(SLEEPS)
    issue = scene.issue()
    fill(box, board_of(scene).rpartition("/")[0], scene.account)
    scene.gtrun("dispatch", "me", issue)
    scene.appears(f"{scene.home}/ready-{issue}", timeout=20)
    scene.gtrun("stop", issue)
    assert result_on_disk(scene, issue) == "stopped"
    assert [fact["type"] for fact in records(scene, issue)[-1][1]][-3:] == ["stop-asked", "ended", "noticed"]
    scene.sh(f"rm {board_of(scene).rpartition('/')[0]}/filler")
    settles(scene, issue, "stopped")


@pytest.mark.expects_fail_open
def test_board_disk_is_full(box: Box) -> None:
    board_disk_is_full(box)


def board_is_read_only(box: Box) -> None:
    scene = Scene(box)
    issue = start(scene, SLEEPS)
    box.remount_read_only(board_of(scene).rpartition("/")[0])
    scene.gtrun("stop", issue)
    assert result_on_disk(scene, issue) == "stopped"
    assert scene.kinds(issue) == ["started"]
    box.remount_writable(board_of(scene).rpartition("/")[0])
    settles(scene, issue, "stopped")


def test_board_is_read_only(box: Box) -> None:
    board_is_read_only(box)


# The account's own disk


def state_disk_is_full(box: Box) -> None:
    """The file system of the record is full since the start, and the facts have filled the last block's rest."""
    scene = Scene(box)
    box.run("install", "-d", "-o", "alice", f"{scene.home}/.local", f"{scene.home}/.local/state")
    box.mount_small(scene.state, 1024 * 1024, scene.account)
    box.write(f"{scene.home}/prompt.md", "x" * 5000, owner=scene.account)
    probe = start(scene, SLEEPS, 'prompt = "~/prompt.md"')
    facts = records(scene, probe)[-1][1]
    length = sum(len(json.dumps(fact, separators=(",", ":"), ensure_ascii=False).encode()) + 1 for fact in facts)
    scene.gtrun("stop", probe)
    # so many bytes are left of the last block when the close-out begins: fewer than it writes
    box.write(f"{scene.home}/prompt.md", "x" * (5000 + (-length - 60) % 4096), owner=scene.account)
    issue = start(scene, SLEEPS, 'prompt = "~/prompt.md"')
    fill(box, scene.state, scene.account)
    scene.box.run("systemctl", "--user", "stop", f"task-{issue}.service", account=scene.account)
    scene.idle()
    assert result_on_disk(scene, issue) == "stopped", f"the result is {result_on_disk(scene, issue)}"
    assert scene.kinds(issue) == BOTH
    scene.sh(f"rm {scene.state}/filler")
    settles(scene, issue, "stopped")


def test_state_disk_is_full(box: Box) -> None:
    state_disk_is_full(box)


# The manager and its bus


def bus_is_gone(box: Box) -> None:
    """The session bus is gone, the manager is not: a stop is told from an end, and nothing is lost."""
    scene = Scene(box)
    issues = [start(scene, SLEEPS), start(scene, TRAPS)]
    box.run("systemctl", "--user", "stop", "dbus.socket", "dbus.service", account=scene.account)
    scene.gtrun("reconcile")
    for issue in issues:
        assert scene.results(issue) == [None], f"results are {scene.results(issue)}"
        box.run("systemctl", "--user", "stop", f"task-{issue}.service", account=scene.account)
    scene.idle()
    assert [result_on_disk(scene, issue) for issue in issues] == ["stopped", "stopped"]
    assert [scene.kinds(issue) for issue in issues] == [BOTH, BOTH]
    assert [how_on_disk(scene, issue) for issue in issues] == ["TERM", 0]
    box.run("systemctl", "--user", "start", "dbus.socket", account=scene.account)


def how_on_disk(scene: Scene, issue: str) -> str | int | None:
    """The signal or the exit code in an issue's newest record."""
    (ending,) = [fact["ending"] for fact in records(scene, issue)[-1][1] if fact["type"] == "ended"]
    return ending.get("signal", ending.get("exit_code"))  # type: ignore[no-any-return]


def test_bus_is_gone(box: Box) -> None:
    bus_is_gone(box)


def bus_is_silent(box: Box) -> None:
    """The bus takes a connection and never answers, as when it is stopped before its socket."""
    scene = Scene(box)
    issue = start(scene, TRAPS)
    buses = [pid for pid in host_processes(box, 1000) if Path(f"/proc/{pid}/comm").read_text().startswith("dbus-")]
    assert buses
    for pid in buses:
        os.kill(pid, signal.SIGSTOP)
    box.run("systemctl", "--user", "stop", f"task-{issue}.service", account=scene.account)
    scene.idle()
    for pid in buses:
        os.kill(pid, signal.SIGCONT)
    assert result_on_disk(scene, issue) == "stopped", f"the result is {result_on_disk(scene, issue)}"
    assert scene.kinds(issue) == BOTH


def test_bus_is_silent(box: Box) -> None:
    bus_is_silent(box)


SHUTDOWNS = {
    "stop the manager": ("systemctl", "stop", "user@1000.service"),
    "terminate the user": ("loginctl", "terminate-user", "alice"),
}


@pytest.mark.parametrize("shutdown", SHUTDOWNS.values(), ids=list(SHUTDOWNS))
def test_manager_shuts_down(shutdown: tuple[str, ...], box: Box) -> None:
    manager_shuts_down(box, shutdown)


def manager_shuts_down(box: Box, shutdown: tuple[str, ...] = SHUTDOWNS["stop the manager"]) -> None:
    """One agent dies of SIGTERM, one traps it and exits 0: both were stopped, and both say so."""
    scene = Scene(box)
    issues = [start(scene, SLEEPS), start(scene, TRAPS)]
    box.run(*shutdown, timeout=60)
    box.wait_for("both records", lambda: all(result_on_disk(scene, issue) for issue in issues), timeout=20)
    results = [result_on_disk(scene, issue) for issue in issues]
    assert results == ["stopped", "stopped"], f"results are {results}"
    box.run("systemctl", "start", "user@1000.service")
    for issue in issues:
        settles(scene, issue, "stopped")


def test_box_powers_off(tmp_path: Path) -> None:
    """The whole box goes down under two runs; what it had on its disks is read through folders held open."""
    with Box() as box:
        scene = Scene(box)
        issues = [start(scene, SLEEPS), start(scene, TRAPS)]
        held = os.open(box.path(scene.home), os.O_RDONLY | os.O_DIRECTORY)
        try:
            box.run("systemctl", "poweroff", check=None)
            box.wait_for("the box to be off", lambda: not box.running, timeout=60)
            shutil.copytree(f"/proc/self/fd/{held}/.local", tmp_path / "local")
        finally:
            os.close(held)
    results = {}
    for path in (tmp_path / "local/state/gtrun/runs").glob("*/*.jsonl"):
        facts = list(facts_of(path))
        results[facts[0]["run"]["issue"]["key"]] = [
            fact["ending"]["result"] for fact in facts if fact["type"] == "ended"
        ]
    assert results == {issue: ["stopped"] for issue in issues}, f"results are {results}"
    with contextlib.closing(sqlite3.connect(tmp_path / "local/share/gtrun/board/board.db")) as board:
        bodies = board.execute("SELECT body FROM comments ORDER BY issue, id").fetchall()
    kinds = [match[1] for (body,) in bodies for match in MACHINE_LINE.finditer(body)]
    assert kinds == BOTH * 2, f"markers are {kinds}"


def lost_is_said_once(box: Box) -> None:
    """The user manager is killed under a run: lost, at the next reconcile, even if two do it at once."""
    scene = Scene(box)
    issue = start(scene, SLEEPS)
    box.run("systemctl", "kill", "--kill-who=main", "-s", "KILL", "user@1000.service")
    box.wait_for("the manager's end", lambda: not host_processes(box, 1000), timeout=20)
    refused = scene.gtrun("dispatch", "me", issue, check=69)
    assert "systemctl restart user@1000.service" in refused.err
    box.run("systemctl", "restart", "user@1000.service")
    settles(scene, issue, "lost")
    assert scene.gtrun("dispatch", "me", issue).code == 0
    scene.gtrun("stop", issue)
    assert scene.results(issue) == ["lost", "stopped"]


def host_processes(box: Box, uid: int) -> list[int]:
    """The processes of an account's manager, by the host's numbers."""
    try:
        return [
            int(pid)
            for group in box.cgroup.rglob(f"user@{uid}.service")
            for procs in group.rglob("cgroup.procs")
            for pid in procs.read_text().split()
        ]
    except OSError:
        return host_processes(box, uid)  # a cgroup went away meanwhile: look again


def test_lost_is_said_once(box: Box) -> None:
    lost_is_said_once(box)


def reconcile_leaves_what_starts(box: Box) -> None:
    """A run whose dispatcher is between record and start is not taken for one that has lost its unit; nobody waits."""
    scene = Scene(box)
    box.replace(
        f"{PACKAGE}/reach/operations/starting.py",
        "    bus = session.bus\n    wanted = transient",
        "    open(os.path.expanduser('~/held'), 'w').close()\n"
        "    while not os.path.exists(os.path.expanduser('~/go')): time.sleep(0.01)\n"
        "    bus = session.bus\n    wanted = transient",
    )
    scene.runs_shell(SLEEPS)
    issue = scene.issue()
    dispatcher = box.spawn("gtrun", "dispatch", "me", issue, account=scene.account)
    scene.appears(f"{scene.home}/held")
    for _ in range(2):
        scene.gtrun("reconcile")
    scene.sh("touch go")
    dispatcher.communicate(timeout=30)
    assert dispatcher.returncode == 0
    assert scene.results(issue) == [None], f"results are {scene.results(issue)}"
    scene.appears(f"{scene.home}/ready-{issue}")
    scene.gtrun("reconcile")
    assert scene.results(issue) == [None], f"results are {scene.results(issue)}"
    scene.gtrun("stop", issue)
    assert scene.kinds(issue) == BOTH, f"markers are {scene.kinds(issue)}"
    assert scene.results(issue) == ["stopped"]


@pytest.mark.parametrize("board", ["answers", "locked"])
def test_a_unit_started_again_is_no_second_run(board: str, box: Box) -> None:
    """`systemctl restart` ends the run; its unit comes once more, and the agent program does not."""
    scene = Scene(box)
    scene.runs_shell("echo once >> ~/begun; exec sleep 60")
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    scene.appears(f"{scene.home}/begun")
    with locked(scene) if board == "locked" else contextlib.nullcontext():
        box.run("systemctl", "--user", "restart", f"task-{issue}.service", account="alice", check=None, timeout=60)
        scene.idle(timeout=60)
    scene.gtrun("reconcile")
    assert box.path(f"{scene.home}/begun").read_text() == "once\n"
    assert (scene.results(issue), scene.kinds(issue)) == (["stopped"], BOTH)
    assert len({run for _, run in scene.markers(issue)}) == 1
    assert "this run has begun before" in box.journal("-o", "cat", "_UID=1000")


def reconcile_leaves_what_it_cannot_see(box: Box) -> None:
    """A runtime folder of one's own hides the manager's sockets; the run that it has is not lost for that."""
    scene = Scene(box)
    scene.runs_shell("touch ~/ready; while [ ! -e ~/go ]; do sleep 0.1; done")
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    scene.appears(f"{scene.home}/ready")
    scene.sh("mkdir -m 0700 ~/runtime")
    told = scene.gtrun("reconcile", check=None, env={"XDG_RUNTIME_DIR": f"{scene.home}/runtime"})
    assert scene.results(issue) == [None], f"results are {scene.results(issue)}"
    assert told.code == 1, f"exit code {told.code}: {told.err}"
    assert "user@1000.service is up all the same: its open runs were left alone" in told.err
    scene.sh("touch ~/go")
    scene.idle()
    assert (scene.results(issue), scene.kinds(issue)) == (["success"], BOTH)


def test_reconcile_leaves_what_it_cannot_see(box: Box) -> None:
    reconcile_leaves_what_it_cannot_see(box)


def test_reconcile_leaves_what_starts(box: Box) -> None:
    reconcile_leaves_what_starts(box)


# Killed between two steps


def writes_of(scene: Scene, who: str) -> list[str]:
    """What that process of a run writes, from the one before it is executed or the name is free."""
    (issue,) = add_issues(scene, 1)
    writes.trace(scene, issue, who)
    dispatch_all(scene, [issue])
    return writes.traced(scene, issue)


def dispatch_all(scene: Scene, issues: Iterable[str]) -> None:
    """One after the other has ended, whatever is used up: each run then writes as the first one did."""
    script = f"for n in {' '.join(issues)}; do DISPATCH_IGNORE_QUOTA=1 gtrun dispatch --wait me $n || :; done"
    scene.box.run("sh", "-euc", script, account=scene.account, timeout=200)
    scene.idle(timeout=90)


def dispatched(scene: Scene, plans: Sequence[tuple[str, int, bool]]) -> dict[str, tuple[str, int, bool]]:
    """An issue for each plan: the process, the number of the write before which it is killed, whether only once."""
    issues = dict(zip(add_issues(scene, len(plans)), plans, strict=True))
    for issue, (who, step, once) in issues.items():
        writes.plan(scene, issue, who, step, "die", once=once)
    dispatch_all(scene, issues)
    return issues


def runner_killed_at_every_write(box: Box) -> None:
    """The runner is killed between any two of its writes: never half a truth, and the name is free."""
    scene = Scene(box)
    writes.count(box)
    scene.runs_shell("exit 0")
    names = writes_of(scene, "run")
    assert names[-1].startswith("execve "), names
    assert len(names) >= 12, names  # three facts, each written and flushed; the marker; what becomes the program
    issues = dispatched(scene, [("run", step, True) for step in range(1, len(names) + 1)])
    kinds = all_kinds(scene)
    for issue, (_, step, _) in issues.items():
        where = f"before write {step}, {names[step - 1]}"
        assert writes.was_met(scene, issue), where
        owes = any(fact["type"] == "owed" for fact in records(scene, issue)[0][1])
        assert result_on_disk(scene, issue) == "killed", f"{where}: {result_on_disk(scene, issue)}"
        assert kinds.get(issue, []) == (BOTH if owes else []), f"{where}: markers are {kinds.get(issue)}"
        assert records(scene, issue)[0][0] == "closed", where
    dispatch_all(scene, issues)
    kinds = all_kinds(scene)
    for issue in issues:
        assert result_on_disk(scene, issue) == "success", issue
        assert kinds[issue] in (BOTH, BOTH + BOTH), f"{issue}: markers are {kinds[issue]}"


def test_runner_killed_at_every_write(box: Box) -> None:
    runner_killed_at_every_write(box)


def closeouts_killed_at_every_write(box: Box) -> None:
    """Both close-outs are killed between the same two writes, or the first alone: the truth is told once, if later."""
    scene = Scene(box)
    writes.count(box)
    spent = 'rm -f ~/.local/state/gtrun/quota.json; echo "hit your limit"; exit 3'
    scene.runs_shell(spent, 'quota_patterns = ["hit your limit"]')
    names = writes_of(scene, "closeout")
    assert len(names) >= 15, names  # the truth, the quota, what ships, the marker, and the way into the history
    both = [("closeout", step, once) for step in range(1, len(names) + 1) for once in (True, False)]
    issues = dispatched(scene, both)
    kinds = all_kinds(scene)
    for issue, (_, step, once) in issues.items():
        where = f"before write {step}, {names[step - 1]}, once {once}"
        assert writes.was_met(scene, issue), where
        if once:
            assert result_on_disk(scene, issue) == "quota", f"{where}: {result_on_disk(scene, issue)}"
            assert kinds[issue] == BOTH, f"{where}: markers are {kinds[issue]}"
    scene.gtrun("reconcile")
    kinds = all_kinds(scene)
    for issue, (_, step, once) in issues.items():
        where = f"before write {step}, {names[step - 1]}, once {once}"
        result = result_on_disk(scene, issue)
        assert kinds[issue] == BOTH, f"{where}: markers are {kinds[issue]}"
        # killed before the truth was written, both of them: nobody knows it any more
        assert result == ("lost" if step == 1 and not once else "quota"), f"{where}: {result}"
        assert records(scene, issue)[-1][0] == "closed", where
    assert scene.asks("quota")["agents"][0]["state"] == "dark"
    assert scene.gtrun("reconcile").out == "nothing is owed any more\n"


def test_closeouts_killed_at_every_write(box: Box) -> None:
    closeouts_killed_at_every_write(box)


def facts_are_flushed_first(box: Box) -> None:
    """Each fact is on the disk before anything that builds on it: SIGKILL cannot show that, a power cut would."""
    scene = Scene(box)
    writes.count(box)
    scene.runs_shell("exit 0")
    for who, least in (("run", 3), ("closeout", 3)):
        names = writes_of(scene, who)
        facts = [place for place, name in enumerate(names) if re.fullmatch(r"pwrite \w+\.jsonl", name)]
        assert len(facts) >= least, names
        for place in facts:
            assert names[place + 1] == names[place].replace("pwrite", "fdatasync"), f"not flushed: {names[place + 1]}"


def test_facts_are_flushed_first(box: Box) -> None:
    facts_are_flushed_first(box)


def second_closeout_takes_over(box: Box) -> None:
    """The first close-out is killed before it has written anything: the second tells the truth, at once."""
    scene = Scene(box)
    before, *_ = steps.instrument(box, "runner/closeout.py", ["_write_ending"])
    scene.runs_shell("exit 3")
    issue = scene.issue()
    steps.die_at(scene, issue, f"closeout {before}", once=True)
    scene.gtrun("dispatch", "me", issue)
    scene.idle()
    assert steps.has_died(scene, issue)
    assert result_on_disk(scene, issue) == "failed", f"the result is {result_on_disk(scene, issue)}"
    assert scene.kinds(issue) == BOTH, f"markers are {scene.kinds(issue)}"


def dispatcher_dies_after_the_start(box: Box) -> None:
    """Nobody waits for the start: the run is a run like any other, and its attempt is settled later."""
    scene = Scene(box)
    box.replace(
        f"{PACKAGE}/dispatch.py",
        '        outcome = partial(ledger.decide, run.token, "started"',
        '        os.kill(os.getpid(), 9)\n        outcome = partial(ledger.decide, run.token, "started"',
    )
    scene.runs_shell(SLEEPS)
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue, check=-signal.SIGKILL)
    scene.appears(f"{scene.home}/ready-{issue}")
    scene.gtrun("stop", issue)
    assert scene.kinds(issue) == BOTH, f"markers are {scene.kinds(issue)}"
    assert scene.results(issue) == ["stopped"]
    assert f"settled: an attempt at issue {issue} on me" in scene.gtrun("reconcile").out
    attempts = scene.asks("show", issue)["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == ["started"]


def test_dispatcher_dies_after_the_start(box: Box) -> None:
    dispatcher_dies_after_the_start(box)


# Damaged and foreign records


def damaged_records_hold_up_nobody(box: Box) -> None:
    """A damaged record is moved aside with its bytes kept, and said, while a run beside it ends as it should.

    So it goes for the record of a live run: its unit then ends without a truth, and the next dispatch is right.
    """
    scene = Scene(box)
    owing = start(scene, SLEEPS)
    live = start(scene, SLEEPS)
    box.remount_read_only(board_of(scene).rpartition("/")[0])
    scene.gtrun("stop", owing)
    box.remount_writable(board_of(scene).rpartition("/")[0])
    assert scene.kinds(owing) == ["started"]
    (record,) = [path for path in box.path(f"{scene.state}/runs/open").glob("*.jsonl") if is_about(path, live)]
    damaged = b"\0" * 100 + record.read_bytes()
    record.write_bytes(damaged)
    said = scene.gtrun("reconcile", check=1)
    assert f"the run record {scene.state}/runs/open/{record.name} is damaged; its bytes are kept in " in said.err
    (aside,) = record.parent.glob("*.corrupt-*")
    assert aside.read_bytes() == damaged
    assert scene.kinds(owing) == BOTH
    assert scene.gtrun("reconcile").out == "nothing is owed any more\n"
    scene.box.run("systemctl", "--user", "stop", f"task-{live}.service", account=scene.account)
    scene.idle()
    scene.runs_shell("exit 0")
    scene.gtrun("dispatch", "me", live)
    scene.idle()
    assert scene.results(live) == ["success"]
    assert aside.read_bytes() == damaged


def is_about(path: Path, issue: str) -> bool:
    """Whether a record's first line is about this issue."""
    return bool(json.loads(path.read_text().split("\n")[0])["run"]["issue"]["key"] == issue)


def test_damaged_records_hold_up_nobody(box: Box) -> None:
    damaged_records_hold_up_nobody(box)


MUTANTS = [
    Mutant(
        "outbox not flushed to the disk",
        [Edit("state/record.py", "    os.fdatasync(descriptor)\n", "")],
        facts_are_flushed_first,
        "not flushed: ",
    ),
    Mutant(
        "one close-out only",
        [Edit("systemd/transient.py", "[closeout, closeout]", "[closeout]")],
        second_closeout_takes_over,
        "the result is None",
    ),
    Mutant(
        "record without its reserve",
        [Edit("state/record.py", "RESERVE = 32 * 1024", "RESERVE = 0")],
        state_disk_is_full,
        "the result is None",
    ),
    Mutant(
        "record without its lock",
        [
            Edit(
                "state/record.py", "fcntl.flock(self._descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))", "0"
            ),
            Edit("files.py", "fcntl.flock(descriptor, fcntl.LOCK_EX)", "fcntl.LOCK_EX"),
        ],
        reconcile_leaves_what_starts,
        r"results are \[\]",
    ),
    Mutant(
        "the bus asked before the manager itself",
        [Edit("systemd/bus.py", "        if Path(private).exists():", "        if not Path(account.bus).exists():")],
        bus_is_silent,
        "the result is success",
    ),
    Mutant(
        "no socket in sight taken for no manager",
        [Edit("reach/operations/ending.py", "if units.user_manager_is_down(account.uid):", "if True:")],
        reconcile_leaves_what_it_cannot_see,
        r"results are \['lost'\]",
    ),
    Mutant(
        "no bus taken for no manager",
        [Edit("reach/operations/ending.py", "session.use_private_bus()\n    except", "pass\n    except")],
        bus_is_gone,
        r"results are \['lost'\]",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
