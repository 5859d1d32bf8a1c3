"""A manager that reloads or re-executes itself changes nothing about a run, on every systemd at hand."""

from __future__ import annotations

import pytest

from harness.barrier import Barrier
from harness.box import Box
from harness.conftest import MakeBox
from harness.control import Edit, Mutant, kill, prepare
from harness.scenarios.test_start import answer
from harness.scene import Scene
from harness.trees import Suite, root_of

# before its own deadline begins
IN_CLOSEOUT = Barrier("in-closeout", "runner/closeout.py", "        signal.setitimer(signal.ITIMER_REAL, allowed)")
WAITS = "echo $$ > ~/ready; until [ -e ~/go ]; do sleep 0.05; done; rm ~/go ~/ready; exit 7"
AGAIN = ("daemon-reload", "daemon-reexec", "daemon-reload")
TITLE = "Mend $HOME %h; \\"
"""What a unit file would expand, cut or continue on its next line."""


def disturb(scene: Scene) -> None:
    """Have the manager read its units anew, by every way there is."""
    for verb in AGAIN:
        scene.box.run("systemctl", "--user", verb, account=scene.account)


def survives_in_the_middle(box: Box) -> None:
    """Nothing is said to be finished before it is, and then the truth: result, code, one of each marker."""
    scene = Scene(box)
    scene.runs_shell(WAITS)
    issue = scene.issue(TITLE)
    unit = f"task-{issue}.service"
    waiting = box.spawn("gtrun", "dispatch", "me", issue, "--wait", account=scene.account)
    program = scene.appears(f"{scene.home}/ready").strip()
    names = ("Description", "InvocationID", "MainPID", "ExecMainStartTimestampMonotonic", "TimeoutStopUSec")
    before = scene.properties(unit, *names)
    disturb(scene)
    assert scene.kinds(issue) == ["started"]
    assert scene.properties(unit, *names) == before, scene.sh(f"systemctl --user cat {unit}").out
    assert before["MainPID"] == program
    again = scene.gtrun("dispatch", "me", issue, check=None)
    assert again.code == 11, f"exit code {again.code}: {again.err}"
    scene.sh("touch ~/go")
    done = answer(waiting)
    kinds = scene.kinds(issue)
    assert kinds == ["started", "finished"], f"markers {kinds}"
    assert done.code == 7, f"exit code {done.code}: {done.err}"
    (run,) = scene.runs(issue)
    assert (run["ending"]["result"], run["ending"]["exit_code"]) == ("failed", 7)
    assert not scene.open_records()


def test_in_the_middle(box: Box) -> None:
    survives_in_the_middle(box)


def in_the_closeout(box: Box) -> None:
    """With IN_CLOSEOUT in place."""
    scene = Scene(box)
    scene.runs_shell("exit 5")
    issue = scene.issue(TITLE)
    IN_CLOSEOUT.close(scene)
    waiting = box.spawn("gtrun", "dispatch", "me", issue, "--wait", account=scene.account)
    IN_CLOSEOUT.wait_for(scene)
    disturb(scene)
    assert scene.kinds(issue) == ["started"]
    scene.gtrun("dispatch", "me", issue, check=11)
    IN_CLOSEOUT.open(scene)
    done = answer(waiting)
    assert done.code == 5, f"exit code {done.code}: {done.err}"
    scene.idle()
    assert scene.kinds(issue) == ["started", "finished"]
    assert scene.results(issue) == ["failed"]
    assert not scene.open_records()


def test_in_the_closeout(box: Box) -> None:
    prepare(box, [IN_CLOSEOUT.edit])
    in_the_closeout(box)


def test_dispatching_while_the_manager_re_executes_itself(box: Box) -> None:
    """Each dispatch starts its run, or says that it does not know (69): never a failed launch of a run that lives."""
    scene = Scene(box)
    scene.runs_shell("exec sleep 60")
    issues = [scene.issue() for _ in range(8)]
    units = [f"task-{issue}.service" for issue in issues]
    restless = box.spawn(
        "bash", "-c", "until [ -e ~/go ]; do systemctl --user daemon-reexec; done", account=scene.account
    )
    codes = {unit: scene.gtrun("dispatch", "me", issue, check=None) for issue, unit in zip(issues, units, strict=True)}
    scene.sh("touch ~/go")
    assert answer(restless).code == 0
    for unit, done in codes.items():
        assert done.code in {0, 69}, f"{unit}: exit code {done.code}: {done.err}"
        assert done.code == 69 or unit in scene.units(), f"{unit}: exit code 0 and no unit"
    scene.gtrun("reconcile")
    for issue, unit in zip(issues, units, strict=True):
        outcome = "started" if unit in scene.units() else "failed"
        assert [attempt[0] for attempt in scene.attempts(issue)] == [outcome]
    scene.gtrun("stop", "--all")
    assert not scene.open_records()


def main_job(box: Box) -> None:
    """Dispatch, refusal, stop, kill: what a person does on a day."""
    scene = Scene(box)
    scene.runs_shell("echo ready > ~/works; exec sleep 60")
    issue = scene.issue()
    unit = f"task-{issue}.service"
    scene.gtrun("dispatch", "me", issue)
    scene.appears(f"{scene.home}/works")
    scene.gtrun("dispatch", "me", issue, check=11)
    scene.gtrun("stop", issue)
    scene.gtrun("dispatch", "me", issue)
    box.run("systemctl", "--user", "kill", "-s", "KILL", unit, account=scene.account)
    scene.idle()
    scene.runs_shell("exit 3")
    scene.gtrun("dispatch", "me", issue, "--wait", check=3)
    assert scene.results(issue) == ["stopped", "killed", "failed"]
    assert scene.kinds(issue) in (["started", "finished"] * 3, ["started", "finished"] * 2)  # killed before its marker
    (second,) = [run for run in scene.runs(issue) if run["ending"]["result"] == "killed"]
    assert second["markers_owed"] == second["markers_posted"]
    assert second["ending"]["signal"] == "KILL"
    assert not scene.open_records()


@pytest.mark.parametrize("suite", ["trixie", "sid"])
def test_on_another_systemd(make_box: MakeBox, suite: Suite) -> None:
    tree = root_of(suite)
    box = make_box(tree=tree.path, venv=tree.venv)
    prepare(box, [IN_CLOSEOUT.edit])
    for scenario in (main_job, survives_in_the_middle, in_the_closeout):
        scenario(box)


def test_main_job(box: Box) -> None:
    main_job(box)


EX = [
    Edit("systemd/transient.py", '("ExecStopPost", "a(sasb)", [closeout, closeout])',
         '("ExecStopPostEx", "a(sasas)", [(c[0], c[1], ["ignore-failure"]) for c in (closeout, closeout)])'),
]  # fmt: skip
MUTANTS = [
    # of systemd 252: newer ones know the key when they read it
    Mutant("close-out by ExecStopPostEx", EX, survives_in_the_middle, r"markers \['started'\]"),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
