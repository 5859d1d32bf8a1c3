"""What gtrun tells by itself: the journal, in Gas Town's words; a command, of every end, darkening and slot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gtrun import witness
from gtrun.systemd.kinds import Kind
from gtrun.witness import DispatchAttempt, DispatchFail, DispatchOk
from harness import steps
from harness.box import Box
from harness.control import Edit, Mutant, kill
from harness.fleet import WORKS
from harness.scenarios.test_closeout import board_of
from harness.scene import Scene

AT_ONCE = '[schedule]\nsettle = "0s"\n'
TELL = """#!/bin/sh
setsid sleep 600 &
env >~/told.env; pwd >~/told.pwd
cat >>~/told
"""


def listens(*command: str, timeout: str = "10s") -> str:
    """The part of a fleet.toml that names the command."""
    return f"[notify]\ncommand = {json.dumps(list(command))}\ntimeout = {json.dumps(timeout)}\n"


# tee(2) gives what is in a pipe and leaves it there: so it is written down before it counts as read
_TEE = """
import ctypes, os, sys
r, w = os.pipe()
with open(sys.argv[1], "ab", buffering=0) as file:
    while (n := ctypes.CDLL(None).tee(0, w, 65536, 0)) > 0:
        file.write(os.read(r, n))
        os.read(0, n)
"""


def tee(scene: Scene) -> str:
    """A command that writes down what it is told, and nothing else: it has done so before anybody can kill it."""
    return listens("/usr/bin/python3", "-ISc", _TEE, f"{scene.home}/told")


def told(scene: Scene) -> list[dict[str, Any]]:
    """What the command was told, oldest first."""
    path = scene.box.path(f"{scene.home}/told")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def entries(box: Box, kind: Kind, *matches: str) -> list[dict[str, Any]]:
    """The entries of one kind in the journal, oldest first."""
    printed = box.journal("-o", "json", f"MESSAGE_ID={kind.message_id}", *matches)
    return [json.loads(line) for line in printed.splitlines()]


def messages(box: Box, issue: str) -> list[tuple[str, witness.Message]]:
    """The messages of the dispatches of an issue, as a program reads them: (attempt, message)."""
    kinds = [f"MESSAGE_ID={kind.message_id}" for kind in (Kind.DISPATCH_ATTEMPT, Kind.DISPATCH_OK, Kind.DISPATCH_FAIL)]
    printed = box.journal("-o", "json", f"GTRUN_ISSUE={issue}", *kinds)
    found = [json.loads(line) for line in printed.splitlines()]
    return [(one["GTRUN_ATTEMPT"], witness.parse(*one["MESSAGE"].split("\n", 1))) for one in found]


def the_journal_tells_and_explains(box: Box) -> None:
    """Each attempt is told before its outcome; `journalctl -x` explains both once the catalog is where root puts it."""
    scene = Scene(box)
    scene.runs_shell("exit 3")
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    scene.idle()
    scene.gtrun("board", "close", issue)
    assert scene.gtrun("dispatch", "me", issue, check=None).code == 13
    scene.configure('[run]\ncommand = ["/nowhere/agent"]\n')
    other = scene.issue()
    assert scene.gtrun("dispatch", "me", other, check=None).code == 1
    started, refused, failed = (scene.attempts(issue) + scene.attempts(other))[:3]
    heard = messages(box, issue)
    assert [message for _, message in heard] == [
        DispatchAttempt("me", issue),
        DispatchOk("me", issue),
        DispatchAttempt("me", issue),
        DispatchFail("me", issue, refused[2]),
    ], heard
    assert [attempt for attempt, _ in heard[::2]] == [attempt for attempt, _ in heard[1::2]]
    assert [message for _, message in messages(box, other)] == [
        DispatchAttempt("me", other),
        DispatchFail("me", other, failed[2]),
    ]
    assert (started[0], refused[0], failed[0]) == ("started", "refused", "failed")
    (ended,) = entries(box, Kind.RUN_ENDED)
    assert ended["MESSAGE"] == f"run {ended['GTRUN_RUN']} of issue {issue} by me has ended: failed, exit code 3"

    line = scene.gtrun("units", "install", "catalog").out
    assert line.startswith("journalctl -x does not explain gtrun's entries here; mend it with: sudo install -D ")
    assert "Subject:" not in box.journal("-x", f"GTRUN_ISSUE={issue}")
    box.run("sh", "-euc", line.partition("mend it with: ")[2].replace("sudo ", ""))
    explained = box.journal("-x", f"GTRUN_ISSUE={issue}")
    for subject in (
        f"Issue {issue} is about to be given to me",
        f"Issue {issue} was given to me",
        f"The board guard kept issue {issue} from me",
        f"Issue {issue} was not given to me: refused",
        f"The run of issue {issue} by me has ended: failed",
    ):
        assert f"Subject: {subject}\n" in explained, explained
    assert f"    gtrun logs --run {ended['GTRUN_RUN']} {issue}\n" in explained
    assert "@" not in explained
    place = "/usr/local/lib/systemd/catalog/gtrun.catalog"
    assert scene.gtrun("units", "install", "--dry-run").out.endswith(f"\n{place} is as it should be\n")
    root = Scene(box, "root")  # which has no manager here
    assert root.gtrun("units", "uninstall", "catalog").out == f"removed {place}\n"
    assert "Subject:" not in box.journal("-x", f"GTRUN_ISSUE={issue}")
    assert root.gtrun("units", "install", "catalog", "--dry-run").out == f"would write {place}\n"
    assert root.gtrun("units", "install", "catalog").out == f"wrote {place}\n"
    assert box.journal("-x", f"GTRUN_ISSUE={issue}") == explained


def test_the_journal_tells_and_explains(box: Box) -> None:
    the_journal_tells_and_explains(box)


def both_closeouts_tell_an_end_once(box: Box) -> None:
    """The unit's second close-out knows what the first has told."""
    scene = Scene(box)
    scene.runs_shell("exit 0", tee(scene))
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    scene.idle()
    numbers = [one["issue"] for one in told(scene)]
    assert numbers == [issue], f"told of {numbers}"


def each_end_is_told_once(box: Box) -> None:
    """One document for each end, whoever is killed on the way to it, and one for the quota that it used up."""
    scene = Scene(box)
    before, after, _, noted = steps.instrument(box, "state/noticing.py", ["hand_over", "append"])
    scene.runs_shell("exit $(cat ~/code)", f"quota_exit_codes = [75]\n{tee(scene)}")
    scene.sh("echo 3 >~/code")
    title = 'Mend `the` "roof"\x1b[31m $(touch ~/hacked); \u202e'
    plain, *killed = [scene.issue(title) for _ in range(4)]
    plans = [None, before, noted, after]
    for issue, step in zip([plain, *killed], plans, strict=True):
        if step is not None:  # both close-outs of it
            steps.die_at(scene, issue, f"closeout {step}")
        scene.gtrun("dispatch", "me", issue)
        scene.idle()
        steps.let_go(scene, issue)
    assert [steps.has_died(scene, issue) for issue in killed] == [True] * 3
    numbers = [one["issue"] for one in told(scene)]
    assert numbers == [plain, killed[1], killed[2]], f"told of {numbers}"
    scene.gtrun("reconcile")
    scene.gtrun("reconcile")
    numbers = [one["issue"] for one in told(scene)]
    assert sorted(numbers) == [plain, *killed], f"told of {numbers}"
    assert len(entries(box, Kind.RUN_ENDED)) == 4
    assert scene.open_records() == []
    (run,) = scene.runs(plain)
    (document,) = [one for one in told(scene) if one["issue"] == plain]
    assert {key: document[key] for key in document if key not in {"at", "started_at", "duration"}} == {
        "schema": 1, "kind": "notice", "notice": "RUN_ENDED", "agent": "me", "rig": "here", "issue": plain,
        "run": run["run"], "unit": f"task-{plain}.service", "title": title, "attempt": 1,
        "url": f"file://{board_of(scene)}#{plain}", "result": "failed",
        "reason": None, "exit_code": 3, "signal": None, "pull_requests": [],
    }  # fmt: skip
    assert document["at"] >= document["started_at"]
    assert not box.path(f"{scene.home}/hacked").exists()

    scene.sh("echo 75 >~/code; rm ~/told")
    for issue in killed[:2]:
        scene.gtrun("dispatch", "me", issue, env={"DISPATCH_IGNORE_QUOTA": "1"})
        scene.idle()
    heard = [(one["notice"], one["issue"]) for one in told(scene)]
    assert heard == [("RUN_ENDED", killed[0]), ("AGENT_DARK", killed[0]), ("RUN_ENDED", killed[1])], heard
    assert told(scene)[1]["until"] == scene.runs(killed[0])[-1]["ending"]["resets_at"]


def test_each_end_is_told_once(box: Box) -> None:
    each_end_is_told_once(box)


TROUBLE = {
    "hangs": (["/bin/sh", "-c", "trap '' TERM; setsid sleep 600 & sleep 600"], "did not end within 0.5 s"),
    "floods": (["/usr/bin/yes"], "did not end within 0.5 s: y"),
    "fails": (["/bin/sh", "-c", "echo 'it is \x1b[31mbroken' >&2; exit 3"], "exited with 3: it is \\x1b[31mbroken"),
    "is missing": (["/nowhere/tell"], "cannot be executed: No such file or directory"),
    "reads nothing": (["/bin/true"], None),
}


def a_command_in_trouble_changes_nothing(box: Box) -> None:
    """One line in the journal is all that comes of it; the run is closed out in time, as it ended."""
    for trouble in TROUBLE:
        is_one_line(box, trouble)
    unit = box.journal("-o", "cat", "_UID=1000", "USER_UNIT=task-1.service")
    assert "Failed with result" not in unit, unit


def is_one_line(box: Box, trouble: str = "hangs") -> None:
    """A run that succeeds, and one kind of trouble with its notice."""
    scene, (command, problem) = Scene(box), TROUBLE[trouble]
    scene.runs_shell("exit 0", f'stop_timeout = "9s"\n{listens(*command, timeout="500ms")}')
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    scene.idle(timeout=30)
    assert scene.results(issue) == ["success"]
    assert scene.kinds(issue) == ["started", "finished"]
    lines = [one["MESSAGE"] for one in entries(box, Kind.NOTIFY_FAILED, f"GTRUN_ISSUE={issue}")]
    run = scene.runs(issue)[0]["run"]
    wanted = [f"RUN_ENDED of run {run}: the notify command {command[0]} {problem}"] if problem else []
    assert lines == wanted, f"lines are {lines}"
    assert len(entries(box, Kind.RUN_ENDED, f"GTRUN_ISSUE={issue}")) == 1
    assert scene.open_records() == []


def test_a_command_in_trouble_changes_nothing(box: Box) -> None:
    a_command_in_trouble_changes_nothing(box)


def heard_of_slots(scene: Scene) -> list[str]:
    """The notices of slots that the command was told since the last time, which are those in the journal."""
    found = [one["notice"] for one in told(scene) if one["notice"] != "RUN_ENDED"]
    kinds = (Kind.SCHEDULER_OPEN, Kind.SLOT_OPEN, Kind.SLOT_BLOCKED)
    cursor = scene.box.path("/root/cursor")
    since = [f"--after-cursor={cursor.read_text()}"] if cursor.exists() else []
    wanted = [f"MESSAGE_ID={kind.message_id}" for kind in kinds]
    printed = [json.loads(line) for line in scene.box.journal("-o", "json", *since, *wanted).splitlines()]
    assert [one["GTRUN_NOTICE"] for one in printed] == found
    if printed:
        cursor.write_text(printed[-1]["__CURSOR"])
    scene.box.path(f"{scene.home}/told").unlink(missing_ok=True)
    return found


def sweep_tells(scene: Scene, count: int = 0) -> list[str]:
    """The notices of slots of a sweep that starts so many."""
    swept = scene.gtrun("sweep")
    assert witness.parse_scheduler_run_dispatched(swept.out) == count, swept.out
    assert swept.err == "", swept.err
    return heard_of_slots(scene)


def a_run_that_is_given_is_all_there_is_to_tell(box: Box) -> None:
    """Neither the pass that gives it nor the next, which finds its agent full, tells anything of its slots."""
    scene = Scene(box)
    box.write(f"{scene.home}/tell", TELL, owner=scene.account, mode=0o755)
    scene.runs_shell(WORKS, AT_ONCE + listens("~/tell"))
    issue = scene.issue()
    given = sweep_tells(scene, 1)
    assert given == [], f"a pass that gave it a run told {given}"
    assert sweep_tells(scene) == []
    scene.gtrun("stop", issue)


def slots_are_told_when_they_change(box: Box) -> None:
    """Of a free agent, of one that cannot be used, and of neither where work was given or all is as it should be."""
    a_run_that_is_given_is_all_there_is_to_tell(box)
    scene, notify = Scene(box), listens("~/tell")
    assert sweep_tells(scene) == ["SCHEDULER_OPEN"]
    assert sweep_tells(scene) == []  # no news
    assert scene.gtrun("dispatch", "me", check=None).code == 12
    assert heard_of_slots(scene) == []
    scene.gtrun("pause")
    assert sweep_tells(scene) == []
    scene.gtrun("resume")
    assert sweep_tells(scene) == ["SCHEDULER_OPEN"]

    scene.configure(f'[run]\ncommand = ["/nowhere/agent"]\n{AT_ONCE}{notify}')
    scene.issue()
    swept = scene.gtrun("sweep")
    assert swept.out == "Dispatched 0 of 1 planned\n"
    (opened,) = told(scene)
    assert {key: opened[key] for key in ("notice", "state", "free", "waiting", "dispatched", "why")} == {
        "notice": "SLOT_OPEN", "state": "free", "free": 1, "waiting": 1, "dispatched": 1, "why": None,
    }  # fmt: skip
    assert heard_of_slots(scene) == ["SLOT_OPEN"]
    assert sweep_tells(scene) == ["SLOT_BLOCKED"]  # backing off
    assert scene.gtrun("dispatch", "me", check=None).code == 10
    assert heard_of_slots(scene) == []

    environment = dict(line.split("=", 1) for line in box.path(f"{scene.home}/told.env").read_text().splitlines())
    for name in ("PWD", "SHLVL", "_", "OLDPWD"):  # the shell's own
        environment.pop(name, None)
    assert set(environment) == {"HOME", "LANG", "LOGNAME", "PATH", "USER", "XDG_RUNTIME_DIR"}
    assert box.path(f"{scene.home}/told.pwd").read_text() == "/\n"
    left = box.run("pgrep", "-u", "alice", "-x", "sleep", check=None).out
    assert left == "", "a child of the command that had left its session is left"


def test_slots_are_told_when_they_change(box: Box) -> None:
    slots_are_told_when_they_change(box)


MUTANTS = [
    Mutant(
        "a notice that is not remembered",
        [Edit("state/noticing.py", "    record.append(Noticed(notice))\n", "    record.append()\n")],
        both_closeouts_tell_an_end_once,
        r"told of \['1', '1'\]",
    ),
    Mutant(
        "a slot told although it was given a run",
        [Edit("planner/slots.py", "return None if was_given else ", "return ")],
        a_run_that_is_given_is_all_there_is_to_tell,
        r"a pass that gave it a run told \['SCHEDULER_OPEN'\]",
    ),
    Mutant(
        "a command without a deadline",
        [Edit("notify.py", "deadline=limit", "deadline=3600.0")],
        is_one_line,
        r"lines are \[\]",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
