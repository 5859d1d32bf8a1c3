"""Looking at runs, and stopping them: what gtrun shows is true, complete, and of its own runs only."""

from __future__ import annotations

import contextlib
import json
import re
import signal

import pytest

from harness.box import Box, Hung
from harness.control import Edit, Mutant, kill
from harness.scene import Scene

WORKS = "echo ready; touch ~/ready; exec sleep 60"

ADD = """
import sys
from gtrun.board.local import LocalBoard
with LocalBoard.open(sys.argv[1], create=True) as board:
    for number in range(int(sys.argv[2])):
        board.add(f"issue {number + 1}")
"""

# as the command does, without a new interpreter for each
DISPATCH = """
import sys
from gtrun.cli.boundary import guarded
sys.exit(max(guarded(["dispatch", "me", str(number + 1)]) for number in range(int(sys.argv[1]))))
"""
LAST_WORDS = """
import contextlib, io, sys
from gtrun.cli.boundary import guarded
count = 0
for number in range(1, int(sys.argv[1]) + 1):
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        assert guarded(["logs", str(number)]) == 0
    count += shown.getvalue() == f"last words of {number}\\n"
print(count)
"""


def add_issues(scene: Scene, count: int) -> None:
    """Put many issues on the board with one process."""
    board = f"{scene.home}/.local/share/gtrun/board/board.db"
    scene.box.run("/opt/gtrun/bin/python", "-c", ADD, board, str(count), account=scene.account)


def is_active(scene: Scene, unit: str) -> bool:
    return scene.properties(unit, "ActiveState")["ActiveState"] == "active"


def somebody_elses_unit_is_left_alone(box: Box) -> None:
    """CASE 15: a unit of our name that gtrun did not start, while a record of an earlier run of that issue is open."""
    scene = Scene(box)
    scene.runs_shell(WORKS)
    add_issues(scene, 5)
    board = f"{scene.home}/.local/share/gtrun/board"
    scene.gtrun("dispatch", "me", "5")
    scene.appears(f"{scene.home}/ready")
    scene.sh(f"mv {board} {board}.away")
    scene.gtrun("stop", "5")
    scene.sh(f"mv {board}.away {board}")
    assert len(list(box.path(f"{scene.state}/runs/open").glob("*.jsonl"))) == 1  # it owes its finished marker
    scene.sh("systemd-run --user --quiet --unit=task-5 sleep 300")
    refused = scene.gtrun("dispatch", "me", "5", check=None)
    assert refused.code == 11, f"exit code {refused.code}: {refused.err}"
    scene.gtrun("dispatch", "me", "1")
    (foreign,) = [one for one in scene.asks("ps")["runs"] if one["unit"] == "task-5.service"]
    one = scene.gtrun("stop", "5", check=None)
    assert is_active(scene, "task-5.service"), "somebody else's unit was stopped"
    everything = scene.gtrun("stop", "--all", check=None)
    assert is_active(scene, "task-5.service"), "somebody else's unit was stopped"
    said = "gtrun: task-5.service of alice was not started by gtrun (there is no record of its run): left alone\n"
    for done in (one, everything):
        assert (done.code, done.err.splitlines(keepends=True)[0]) == (1, said), done.err
    assert foreign["started_by_gtrun"] is False
    assert foreign["issue"] is None
    assert scene.units() == ["task-5.service"]
    assert scene.results("1") == ["stopped"]
    scene.gtrun("reconcile")
    assert is_active(scene, "task-5.service")
    assert scene.kinds("5") == ["started", "finished"]
    scene.sh("systemctl --user stop task-5.service")


def test_somebody_elses_unit_is_left_alone(box: Box) -> None:
    somebody_elses_unit_is_left_alone(box)


def all_are_stopped_at_once(box: Box) -> None:
    """Runs that take their time to end do not wait for each other, and each is told when all have."""
    scene = Scene(box)
    scene.runs_shell(
        "trap 'until [ -e ~/go ]; do sleep 0.05; done; exit 0' TERM; touch ~/$GTRUN_ISSUE; sleep 60 & wait"
    )
    issues = [scene.issue() for _ in range(3)]
    for issue in issues:
        scene.gtrun("dispatch", "me", issue)
        scene.appears(f"{scene.home}/{issue}")
    stopping = box.spawn("gtrun", "stop", "--all", account="alice")

    def ending() -> list[str]:
        units = {issue: scene.properties(f"task-{issue}.service", "ActiveState") for issue in issues}
        return [issue for issue in issues if units[issue] == {"ActiveState": "deactivating"}]

    with contextlib.suppress(Hung):
        box.wait_for("all to be ending", lambda: ending() == issues, timeout=15)
    at_once = ending()
    scene.sh("touch ~/go")
    out, err = stopping.communicate(timeout=60)
    assert at_once == issues, f"at once only {at_once} of {issues}"
    assert (stopping.returncode, err) == (0, b""), err
    told = re.findall(r"^task-(\d+)\.service on me: stopped, exit code 0 ", out.decode(), re.MULTILINE)
    assert sorted(told) == issues, out


def test_all_are_stopped_at_once(box: Box) -> None:
    all_are_stopped_at_once(box)


def last_lines_are_found(box: Box, count: int = 8) -> None:
    """Runs whose child prints one line and ends at once: `gtrun logs` has the line of each.

    journald attributes a line to a unit by a process that may be gone by then. Here it is: journald is held until all
    of them are.
    """
    scene = Scene(box)
    scene.runs_shell("/bin/echo last words of {issue}; exit 0")
    add_issues(scene, count)
    box.run("pkill", "-STOP", "-x", "systemd-journal")
    box.run("/opt/gtrun/bin/python", "-c", DISPATCH, str(count), account="alice", timeout=90)
    scene.idle(timeout=30)
    box.run("pkill", "-CONT", "-x", "systemd-journal")
    found = box.run("/opt/gtrun/bin/python", "-c", LAST_WORDS, str(count), account="alice", timeout=90)
    assert int(found.out) == count, f"{int(found.out)} of {count} last lines are found"


def test_last_lines_are_found(box: Box) -> None:
    last_lines_are_found(box, 40)


def test_logs_follows_a_run_to_its_end(box: Box) -> None:
    scene = Scene(box)
    scene.runs_shell("for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.2; done; echo over >&2")
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    done = scene.gtrun("logs", "-f", issue)
    assert done.out.splitlines() == [*(f"line {number}" for number in range(1, 9)), "over"]
    scene.idle()
    assert scene.gtrun("logs", issue).out == done.out
    assert scene.gtrun("logs", "-f", issue).out == done.out  # it has ended: nothing to wait for
    theirs = scene.sh(f"journalctl --user -u task-{issue} -o cat").out.splitlines()
    assert f"Started task-{issue}.service - me: issue {issue}: Mend the roof." in theirs, theirs
    assert "line 1" in theirs, theirs  # journald may lose the unit of a line; whose, it does not say
    assert scene.gtrun("logs", "-n", "2", issue).out == "line 8\nover\n"
    assert scene.gtrun("logs", "-n", "0", issue).out == ""
    box.run("pgrep", "-u", "alice", "journalctl", check=1)


def test_logs_of_one_run_of_several(box: Box) -> None:
    """And `show` after several: every attempt, also the refused one, and every run with its own result."""
    scene = Scene(box)
    scene.runs_shell("echo this is $GTRUN_RUN; exit 3")
    issue = scene.issue()
    for _ in range(2):
        scene.gtrun("dispatch", "me", issue, "--wait", check=3)
    scene.runs_shell("echo this is $GTRUN_RUN; touch ~/ready; exec sleep 60")
    scene.gtrun("dispatch", "me", issue)
    scene.appears(f"{scene.home}/ready")
    scene.gtrun("dispatch", "me", issue, check=11)
    scene.gtrun("stop", issue)
    told = scene.asks("show", issue)
    assert [one["outcome"] for one in told["attempts"]] == ["started", "started", "started", "refused"]
    assert [one["code"] for one in told["attempts"]] == [0, 0, 0, 11]
    assert [one["ending"]["result"] for one in told["runs"]] == ["failed", "failed", "stopped"]
    assert [one["run"] for one in told["attempts"]][:3] == [one["run"] for one in told["runs"]]
    for one in told["runs"]:
        assert scene.gtrun("logs", "--run", one["run"][:8].upper(), issue).out == f"this is {one['run']}\n"
    assert scene.gtrun("logs", "--agent", "me", issue).out == f"this is {told['runs'][-1]['run']}\n"
    assert scene.gtrun("logs", "--run", "nope", issue, check=1).err.startswith(
        "gtrun: there is no run 'nope' of issue 1"
    )
    assert scene.gtrun("logs", "--agent", "nobody", issue, check=2).err.startswith("gtrun: there is no agent 'nobody'")
    assert scene.sh(f"set -o pipefail; gtrun show {issue} | head -1").out == "issue 1: Mend the roof (open)\n"
    assert scene.sh(f"set -o pipefail; gtrun show {issue} | true").err == ""


def test_suppressed_lines_are_counted(box: Box) -> None:
    """journald's rate limit drops lines: how many is told to whoever may read the system's journal."""
    box.write("/etc/systemd/journald.conf.d/rate.conf", "[Journal]\nRateLimitIntervalSec=5s\nRateLimitBurst=100\n")
    box.run("systemctl", "restart", "systemd-journald.service")
    box.run("usermod", "-aG", "systemd-journal", "alice")
    scene = Scene(box)
    # by the main process, which is there until the end: what journald cannot attribute it does not limit
    scene.runs_shell("i=0; while [ $i -lt 60000 ]; do i=$((i+1)); echo $i; done; sleep 7; echo over; sleep 1")
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    followed = scene.gtrun("logs", "-f", issue)
    scene.idle()
    told = scene.asks("logs", issue)
    assert told["lines"][-1] == "over"
    assert 0 < len(told["lines"]) < 60001
    assert told["suppressed"] >= 60001 - len(told["lines"]), (
        f"{told['suppressed']} suppressed, {len(told['lines'])} kept"
    )
    assert f"gtrun: {told['suppressed']} lines suppressed by the journal's rate limit" in scene.gtrun("logs", issue).err
    assert re.search(r"^gtrun: [1-9]\d* lines suppressed by", followed.err, re.MULTILINE), followed.err


def test_an_interrupted_follow_leaves_the_run(box: Box) -> None:
    scene = Scene(box)
    scene.runs_shell(WORKS)
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGHUP, -1)):
        process = box.spawn("gtrun", "logs", "-f", issue, account="alice")
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        box.signal(process, number)
        process.communicate(timeout=20)
        assert process.returncode == code
        box.wait_for(
            "no child of ours", lambda: box.run("pgrep", "-u", "alice", "gtrun|journalctl", check=None).code == 1
        )
    assert is_active(scene, f"task-{issue}.service")
    scene.gtrun("stop", issue)


def test_a_manager_that_does_not_answer(box: Box) -> None:
    """A stopped manager: `ps` says so within its deadline, dispatch says 69, ^C works, and nothing of ours is left."""
    scene = Scene(box)
    scene.runs_shell(WORKS)
    issue = scene.issue()
    manager = box.run("systemctl", "show", "-P", "MainPID", "user@1000.service").out.strip()

    def count_of(name: str) -> int:
        return int(box.run("pgrep", "-c", "-u", "alice", name, check=None).out)

    scene.gtrun("ps")  # its bus is up
    box.run("kill", "-STOP", manager)
    try:
        interrupted = box.spawn("gtrun", "ps", account="alice")
        ps = box.spawn("gtrun", "ps", "--json", account="alice")
        dispatch = box.spawn("gtrun", "dispatch", "me", issue, account="alice")
        box.wait_for("three commands with their workers", lambda: count_of("gtrun") == 6)
        box.signal(interrupted, signal.SIGINT)
        assert (interrupted.communicate(timeout=9)[1], interrupted.returncode) == (b"gtrun: interrupted\n", 130)
        out, err = ps.communicate(timeout=60)
        document = json.loads(out)
        assert (ps.returncode, document["runs"], err) == (0, [], b"")
        (silent,) = document["unreachable"]
        assert silent["agent"] == "me"
        assert re.fullmatch(r"the user manager of alice did not answer within 10 s", silent["problem"])
        out, err = dispatch.communicate(timeout=60)
        assert (dispatch.returncode, out) == (69, b"")
        assert err.startswith(b"gtrun: the user manager of alice did not answer within ")
        box.run("pgrep", "-u", "alice", "gtrun", check=1)
    finally:
        box.run("kill", "-CONT", manager)
    box.wait_for(
        "the manager", lambda: box.run("systemctl", "--user", "is-system-running", account="alice", check=None).out
    )
    assert scene.units() == []
    assert scene.gtrun("ps").err == "gtrun: nothing is running\n"
    scene.gtrun("reconcile")
    assert scene.runs(issue) == []


def test_watching(box: Box) -> None:
    """A table after the other, each as things are then: on a terminal in the place of the last; ^C ends it."""
    scene = Scene(box)
    scene.runs_shell(WORKS)
    issue = scene.issue()
    shown = box.path("/home/alice/shown")
    on_terminal = box.spawn("script", "-qfec", "gtrun ps --watch", "/home/alice/shown", account="alice")
    in_pipe = box.spawn("gtrun", "ps", "--watch", "--json", account="alice")
    assert in_pipe.stdout is not None
    assert json.loads(in_pipe.stdout.readline())["runs"] == []
    box.wait_for("the first table", lambda: shown.exists() and "nothing is running" in shown.read_text())
    scene.gtrun("dispatch", "me", issue)
    box.wait_for("the run", lambda: f"task-{issue}.service" in shown.read_text())
    pages = shown.read_text().split("\x1b[H\x1b[2J")
    assert "task-" not in "".join(pages[:2]), pages
    told = next(runs for line in in_pipe.stdout if (runs := json.loads(line)["runs"]))
    assert [run["issue"] for run in told] == [issue]
    scene.gtrun("stop", issue)
    assert next(True for line in in_pipe.stdout if json.loads(line)["runs"] == [])
    box.run("pkill", "-INT", "-u", "alice", "-f", "gtrun ps --watch$")
    box.signal(in_pipe, signal.SIGINT)
    assert (on_terminal.wait(timeout=20), in_pipe.wait(timeout=20)) == (130, 130)
    assert in_pipe.stderr is not None
    assert in_pipe.stderr.read() == b"gtrun: interrupted\n"
    for process in (on_terminal, in_pipe):
        process.communicate()


KEYS = {
    "dispatch": "started unit agent issue run not_in_force drop_ins is_preparing result exit_code signal",
    "ps": "runs unreachable",
    "live": "runs unreachable",
    "show": "issue title is_open standing held held_because board_problem pull_requests attempts runs stashes damaged"
    " unreachable",
    "rigs": "rigs agents",
    "sweep": "dry_run why planned skipped started failed issues agents",
    "logs": "run agent issue lines suppressed",
    "stop": "stopped failed",
    "doctor": "findings",
    "info": "version commit release systemd python news",
    "reconcile": "lost resolved posted owing problems",
}
COUNTERS = "running max_runs free state why until dispatched last_dispatch_at last_dispatch_count successes failures"
INNER_KEYS = {
    ("ps", "runs"): "agent account rig unit active sub main_pid run issue title begun_at started_by_gtrun not_in_force"
    " drop_ins",
    ("show", "attempts"): "at by agent unit outcome code reason run lock_waited lock_held digest verdicts",
    ("show", "runs"): "agent unit run commit digest begun_at ended_at ending markers_owed markers_posted",
    ("stop", "stopped"): "agent unit run result",
    ("rigs", "rigs"): f"rig {COUNTERS}",
    ("rigs", "agents"): f"agent rig {COUNTERS}",
    ("sweep", "issues"): "issue title priority agent held waits_for until why",
    ("sweep", "agents"): "agent rig running max_runs free state until issues why",
    ("doctor", "findings"): "subject what is_fine mend",
}


def test_documents(box: Box) -> None:
    """The keys of every `--json` document: a public interface. Nothing else is on stdout, and stderr is for people."""
    scene = Scene(box)
    scene.runs_shell(WORKS)
    issue = scene.issue()
    started = scene.asks("dispatch", "me", issue)
    assert set(started) == {"schema", "kind", *KEYS["dispatch"].split()}
    scene.appears(f"{scene.home}/ready")
    of_issue = {"live", "show", "logs", "stop"}
    for command, keys in KEYS.items():
        if command == "dispatch":
            continue
        document = scene.asks(command, *([issue] if command in of_issue else []))
        assert (document["schema"], document["kind"]) == (1, command)
        # a later version may add keys, and then this list; taking one away raises the schema's number
        assert set(document) == {"schema", "kind", *keys.split()}, command
        for (what, key), inner in INNER_KEYS.items():
            if what == command:
                assert document[key], f"{command} has no {key}"
                assert set(document[key][0]) == set(inner.split()), f"{command}: {key}"
    assert scene.asks("live", issue, check=1)["runs"] == []


MUTANTS = [
    Mutant(
        "a unit is known by its name instead of its run",
        [
            Edit(
                "reach/operations/looking.py",
                "run.resolved.unit == seen.state.name and run.run in {None, seen.run}",
                "run.resolved.unit == seen.state.name",
            )
        ],
        somebody_elses_unit_is_left_alone,
        r"somebody else's unit was stopped",
    ),
    Mutant(
        "one stopped after the other",
        [Edit("looking.py", "_AT_ONCE = 32", "_AT_ONCE = 1")],
        all_are_stopped_at_once,
        r"at once only \['[123]'\] of ",
    ),
    Mutant(
        "logs by unit instead of identifier",
        [
            Edit(
                "systemd/journal.py",
                'f"SYSLOG_IDENTIFIER={run.resolved.identifier}"',
                'f"_SYSTEMD_USER_UNIT={run.resolved.unit}"',
            )
        ],
        last_lines_are_found,
        r"^0 of 8 last lines are found",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
