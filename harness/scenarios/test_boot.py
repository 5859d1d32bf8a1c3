"""What a machine or a manager that went down leaves: told on the issues at the next boot, without anybody typing."""

from __future__ import annotations

import pytest

from harness.barrier import Barrier
from harness.box import Box
from harness.control import Edit, Mutant, kill, prepare
from harness.scenarios.test_closeout import board_of, host_processes
from harness.scene import Scene

SLEEPS = "echo $$ > ~/ready-$GTRUN_ISSUE; exec sleep 600"
UNIT = "gtrun-reconcile.service"


def start(scene: Scene, script: str = SLEEPS, more: str = "") -> str:
    """Dispatch a new issue whose program says when it works; returns its number."""
    scene.runs_shell(script, more)
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    scene.appears(f"{scene.home}/ready-{issue}", timeout=20)
    return issue


def reason(scene: Scene, issue: str) -> str:
    return str(scene.runs(issue)[-1]["ending"]["reason"])


def the_issue_says_it_after_a_power_failure(box: Box) -> None:
    scene = Scene(box)
    installed = scene.gtrun("units", "install", "reconcile").out.splitlines()
    issue = start(scene)
    silent = start(scene, "touch ~/ready-$GTRUN_ISSUE; exec sleep 600")
    box.run("journalctl", "--sync")
    box.lose_power()
    # when it has started what is enabled; `degraded` is what a unit that failed makes of it
    state = box.run("systemctl", "--user", "is-system-running", "--wait", account="alice", check=None, timeout=60).out
    results = [scene.results(one) for one in (issue, silent)]
    assert results == [["lost"], ["lost"]], f"results are {results}"
    assert state == "running\n", state
    assert scene.kinds(issue) == ["started", "finished"]
    assert reason(scene, issue).startswith("the machine went down, and no close-out was run"), reason(scene, issue)
    assert installed == [
        f"wrote {scene.home}/.config/systemd/user/{UNIT}",
        f"enabled, by the link {scene.home}/.config/systemd/user/default.target.wants/{UNIT}",
    ]
    scene.gtrun("dispatch", "me", issue)
    scene.gtrun("stop", issue)
    assert scene.results(issue) == ["lost", "stopped"]


def test_the_issue_says_it_after_a_power_failure(box: Box) -> None:
    the_issue_says_it_after_a_power_failure(box)
    units_are_put_in_and_taken_out(box)


def units_are_put_in_and_taken_out(box: Box) -> None:
    """Again is no change; what somebody else has put there is left alone; nothing is left afterwards."""
    alice, bob = Scene(box), Scene(box, "bob")
    folder = f"{alice.home}/.config/systemd/user"
    ours = f"{folder}/{UNIT}"
    again = alice.gtrun("units", "install", "reconcile").out
    assert again == f"{ours} is as it should be\n{UNIT}: enabled already\n", again
    line = next(line for line in box.path(ours).read_text().splitlines() if line.startswith("ExecStart="))
    assert line == "ExecStart=/opt/gtrun/bin/python -I -m gtrun reconcile", line
    checked = alice.sh(f"systemd-analyze --user verify {UNIT}")
    assert (checked.out, checked.err) == ("", "")
    box.write(ours, box.path(ours).read_text().replace("gtrun reconcile", "old reconcile"), owner="alice")
    rehearsed = alice.gtrun("units", "install", "--dry-run", "reconcile").out
    assert rehearsed == f"would write {ours}\nwould enable {UNIT}\n"
    assert "old reconcile" in box.path(ours).read_text()
    assert alice.gtrun("units", "install", "reconcile").out.startswith(f"wrote {ours}\n")
    removed = alice.gtrun("units", "uninstall").out
    assert removed == f"disabled, without the link {folder}/default.target.wants/{UNIT}\nremoved {ours}\n", removed
    repeated = alice.gtrun("units", "uninstall")
    assert (repeated.out, repeated.err) == ("", "gtrun: there is nothing to take out\n")
    assert alice.sh("systemctl --user list-unit-files --no-legend 'gtrun*'", check=1).out == ""
    box.write(ours, "[Service]\nType=oneshot\nExecStart=true\n[Install]\nWantedBy=default.target\n", owner="alice")
    assert f"{ours} is not gtrun's: left alone" in alice.gtrun("units", "install", "reconcile").out
    alice.gtrun("units", "uninstall")
    assert "ExecStart=true" in box.path(ours).read_text()
    box.write(f"/etc/systemd/user/{UNIT}", box.path(ours).read_text())
    box.run("loginctl", "disable-linger", "bob", check=None)
    box.run("rm", "-f", "/var/lib/systemd/linger/bob")
    box.run("systemctl", "start", "user@1001.service")
    said = bob.gtrun("units", "install").out
    assert said.startswith(f"{UNIT} is there already, from /etc/systemd/user/{UNIT}\n"), said
    assert f"\nenabled, by the link /home/bob/.config/systemd/user/default.target.wants/{UNIT}\n" in said
    assert "\nenabled, by the link /home/bob/.config/systemd/user/timers.target.wants/gtrun-sweep.timer\n" in said
    assert "\nstarted gtrun-sweep.timer\nbob does not linger, so nothing of this happens at boot" in said
    bob.gtrun("units", "uninstall")
    assert not box.path(f"{bob.home}/.config/systemd/user/{UNIT}").exists()


FORGED = """\
MESSAGE_ID=98e322203f7a4ed290d09fe03c09fe15
MESSAGE=the end of a main process
USER_UNIT=task-{issue}.service
USER_INVOCATION_ID={run}
EXIT_CODE=killed
EXIT_STATUS=9, and **all is well**
"""
"""What any account can write into the journal."""


def what_is_lost_and_what_is_not_ours(box: Box) -> None:
    """CASES 12 and 15. The manager is killed under runs; the name of one is then somebody else's unit."""
    scene = Scene(box)
    lost, taken = start(scene, more='credentials = { x = { command = ["echo", "x"] } }'), start(scene)
    box.run("systemctl", "kill", "--kill-who=main", "-s", "KILL", "user@1000.service")
    box.wait_for("the manager's end", lambda: not host_processes(box, 1000), timeout=20)
    refused = scene.gtrun("dispatch", "me", lost, check=69)
    assert "hint: start it with: sudo loginctl enable-linger alice && sudo systemctl restart user@1000.service" in (
        refused.err
    )
    box.run("systemctl", "restart", "user@1000.service")
    scene.sh(f"systemd-run --user -q --unit=task-{taken} sleep 600")
    entry = FORGED.format(issue=lost, run=scene.runs(lost)[0]["run"])
    box.run("logger", "--journald", account="alice", stdin=entry.encode())
    told = scene.gtrun("reconcile").out
    results = [scene.results(one) for one in (lost, taken)]
    assert results == [["lost"], ["lost"]], f"results are {results}"
    assert f"lost: issue {lost} on me, run " in told
    assert scene.runs(lost)[0]["ending"].get("signal") is None, scene.runs(lost)[0]["ending"]
    assert reason(scene, lost).startswith("its user manager was killed, and no close-out was run"), reason(scene, lost)
    assert scene.properties(f"task-{taken}.service", "ActiveState") == {"ActiveState": "active"}
    assert "gtrun." not in box.run("ls", "/run/user/1000").out
    scene.sh(f"systemctl --user stop task-{taken}")
    scene.gtrun("dispatch", "me", lost)
    scene.gtrun("stop", lost)
    assert scene.results(lost) == ["lost", "stopped"]


def test_what_is_lost_and_what_is_not_ours(box: Box) -> None:
    what_is_lost_and_what_is_not_ours(box)
    closeouts_are_killed(box)
    issue_is_gone(box)


AT_BEGIN = Barrier("begin", "runner/run.py", "    run_id = _invocation()")


def lost_before_it_could_say_a_word(box: Box) -> None:
    """The manager is killed when the dispatch has said "started" and the runner's interpreter is still starting up."""
    scene = Scene(box)
    AT_BEGIN.close(scene)
    scene.runs_shell(SLEEPS)
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    AT_BEGIN.wait_for(scene)
    box.run("systemctl", "kill", "--kill-who=main", "-s", "KILL", "user@1000.service")
    box.wait_for("the manager's end", lambda: not host_processes(box, 1000), timeout=20)
    AT_BEGIN.open(scene)
    box.run("systemctl", "restart", "user@1000.service")
    scene.gtrun("reconcile")
    assert scene.results(issue) == ["lost"], f"results are {scene.results(issue)}"
    assert reason(scene, issue).startswith("its user manager was killed, and no close-out was run")
    assert scene.kinds(issue) == []


def test_lost_before_it_could_say_a_word(box: Box) -> None:
    prepare(box, [AT_BEGIN.edit])
    lost_before_it_could_say_a_word(box)


def closeouts_are_killed(box: Box) -> None:
    """Both close-outs are killed at once: what the manager said of the program is in the journal."""
    scene = Scene(box)
    box.replace(
        "/opt/gtrun/lib/python3*/site-packages/gtrun/runner/closeout.py",
        "        _write_ending(record, os.environ",
        "        os.kill(os.getpid(), 9)\n        _write_ending(record, os.environ",
    )
    scene.runs_shell("echo bye; exit 3")
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    scene.idle()
    assert scene.results(issue) == [None]
    box.run("journalctl", "--sync")
    scene.gtrun("reconcile")
    (run,) = scene.runs(issue)
    assert (run["ending"]["result"], run["ending"]["exit_code"]) == ("lost", 3)
    assert run["ending"]["reason"].startswith("its unit is gone, and no close-out was run; its last line came at 20")
    assert "; its program had ended at 20" in run["ending"]["reason"]
    assert "bye" not in scene.asks("board", "show", issue)["comments"][-1]["body"]


def issue_is_gone(box: Box) -> None:
    """With close-outs that are killed. What nobody can read any more is dropped, and said once."""
    scene = Scene(box)
    scene.runs_shell("exit 0")
    scene.sh(f"cp -p {board_of(scene)} ~/backup.db")
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    scene.idle()
    # the board is what it was before this issue, as from a backup
    scene.sh(f"rm {board_of(scene)}*; cp -p ~/backup.db {board_of(scene)}")
    said = scene.gtrun("reconcile", check=1).err
    assert f"is dropped: there is no issue {issue} on the board {board_of(scene)}" in said, said
    assert scene.gtrun("reconcile").out == "nothing is owed any more\n"
    assert not scene.open_records()


MUTANTS = [
    Mutant(
        "the boot unit is not enabled",
        [Edit("unit_files.py", "yield from worker.call(at_agent.enable, at_agent.UnitFiles(enabled))", "yield ''")],
        the_issue_says_it_after_a_power_failure,
        r"results are \[\[None\], \[None\]\]",
    ),
    Mutant(
        "a start is not noted",
        [Edit("reach/operations/starting.py", "            record.append(Begun(run, None))", "            pass")],
        lost_before_it_could_say_a_word,
        r"results are \[\]",
        setup=[AT_BEGIN.edit],
    ),
    Mutant(
        "a unit is known by its name",
        [
            Edit(
                "systemd/units.py",
                "    return state if invocation(bus, state.path) == run else None",
                "    return state",
            )
        ],
        what_is_lost_and_what_is_not_ours,
        r"results are \[\['lost'\], \[None\]\]",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
