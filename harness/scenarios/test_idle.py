"""A run that does nothing is ended, by nothing that stays in memory; one that computes or speaks is left alone."""

from __future__ import annotations

import pytest

from harness.barrier import Barrier
from harness.box import Box
from harness.conftest import MakeBox
from harness.control import Edit, Mutant, kill, prepare
from harness.scene import Scene
from harness.trees import Suite, root_of

IN_LOOK = Barrier("in-look", "runner/idle.py", '    memory = Path(account.runtime, name, "reading")')
BEFORE_END = Barrier("before-end", "runner/idle.py", "        _end(run, account, now.at - now.since)")
# issue 1 computes and is silent, 2 speaks and hardly computes; all others do nothing
SCRIPT = (
    "echo $$ > ~/ready-$GTRUN_ISSUE; case $GTRUN_ISSUE in "
    "1) while :; do :; done;; "
    "2) mkfifo ~/fifo; exec 3<>~/fifo; while :; do echo tick; read -t 0.5 <&3; done;; "
    "*) echo begun; sleep 600 & wait;; esac"
)


SLEEPS = "echo $$ > ~/ready-$GTRUN_ISSUE; exec sleep 600"


def scene_of(box: Box, script: str, limit: str) -> Scene:
    scene = Scene(box)
    scene.configure(f"[run]\ncommand = ['bash', '-c', '''{script}''']\nidle_limit = \"{limit}\"\n")
    return scene


def dispatch(scene: Scene) -> str:
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    scene.appears(f"{scene.home}/ready-{issue}", timeout=20)
    return issue


def watchers(scene: Scene) -> list[str]:
    """The units that look after runs, whatever their state."""
    listed = scene.sh("systemctl --user list-units --all --plain --no-legend 'gtrun-idle-*'").out
    return sorted(line.split()[0] for line in listed.splitlines())


def only_the_idle_one_is_ended(box: Box) -> None:
    """By the time that a run which does nothing is ended, each of the others was looked at as often."""
    scene = scene_of(box, SCRIPT, "3s")
    busy, loud, idle = dispatch(scene), dispatch(scene), dispatch(scene)
    for verb in ("daemon-reload", "daemon-reexec"):
        box.run("systemctl", "--user", verb, account="alice")
    scene.ends(idle, timeout=60)
    results = [scene.results(issue) for issue in (busy, loud, idle)]
    assert results == [[None], [None], ["idle"]], f"results are {results}"
    (run,) = scene.runs(idle)
    assert run["ending"]["signal"] == "TERM"
    told = scene.asks("board", "show", idle)["comments"][-1]["body"]
    assert "idle, signal TERM (no output and no CPU for " in told, told
    box.wait_for("the timers of the other two", lambda: len(timers(scene)) == 2, timeout=20)
    scene.gtrun("stop", "--all")
    assert [scene.results(issue) for issue in (busy, loud)] == [["stopped"], ["stopped"]]
    box.wait_for("no watcher", lambda: not watchers(scene), timeout=20)
    assert box.run("sh", "-c", "ls /run/user/1000 | grep gtrun", check=1).out == ""


def a_look_is_killed(box: Box) -> None:
    """With IN_LOOK in place: the next one does it."""
    scene = scene_of(box, SLEEPS, "1s")
    IN_LOOK.close(scene)
    issue = dispatch(scene)
    box.run("kill", "-9", *map(str, IN_LOOK.wait_for(scene, timeout=60)))
    IN_LOOK.open(scene)
    scene.ends(issue, timeout=60)
    assert scene.results(issue) == ["idle"]
    box.wait_for("no watcher", lambda: not watchers(scene), timeout=20)


def timers(scene: Scene) -> list[str]:
    return [unit for unit in watchers(scene) if unit.endswith(".timer")]


def test_only_the_idle_one_is_ended(box: Box) -> None:
    only_the_idle_one_is_ended(box)


def successor_is_left_alone(box: Box) -> None:
    """With BEFORE_END in place. A look found a run idle; that has ended meanwhile, and the issue has another run."""
    scene = scene_of(box, SLEEPS, "1s")
    BEFORE_END.close(scene)
    issue = dispatch(scene)
    BEFORE_END.wait_for(scene, timeout=60)
    scene.gtrun("stop", issue)
    assert scene.results(issue) == ["stopped"], f"results are {scene.results(issue)}"
    scene.runs_shell(SLEEPS)
    scene.gtrun("dispatch", "me", issue)
    BEFORE_END.open(scene)
    box.wait_for("no watcher", lambda: not watchers(scene), timeout=20)
    assert scene.results(issue) == ["stopped", None], f"results are {scene.results(issue)}"
    scene.gtrun("stop", issue)


def test_successor_is_left_alone(box: Box) -> None:
    prepare(box, [BEFORE_END.edit, IN_LOOK.edit])
    a_look_is_killed(box)
    successor_is_left_alone(box)
    nothing_stays(box)


def nothing_stays(box: Box) -> None:
    """No watcher before it is time, none after a run; without a manager there is nothing to do; the name is free."""
    scene = scene_of(box, SLEEPS, "1h")
    issue = dispatch(scene)
    (timer,) = timers(scene)
    assert timer.startswith(f"gtrun-idle-task-{issue}."), timer
    shown = scene.properties(timer, "TimersMonotonic", "AccuracyUSec")
    assert "OnActiveUSec=6min" in shown["TimersMonotonic"], shown
    box.run("kill", "-9", scene.properties(f"task-{issue}.service", "MainPID")["MainPID"])
    scene.ends(issue)
    assert scene.gtrun("dispatch", "me", issue).code == 0
    scene.gtrun("stop", issue)
    assert scene.results(issue)[-2:] == ["killed", "stopped"]
    box.wait_for("no watcher", lambda: not watchers(scene), timeout=20)


@pytest.mark.parametrize("suite", ["trixie", "sid"])
def test_on_another_systemd(make_box: MakeBox, suite: Suite) -> None:
    tree = root_of(suite)
    box = make_box(tree=tree.path, venv=tree.venv)
    prepare(box, [IN_LOOK.edit])
    a_look_is_killed(box)


MUTANTS = [
    Mutant(
        "a look that ignores CPU",
        [
            Edit(
                "runner/idle.py", "if before is None or cpu - before.cpu > (at - before.at) * _SHARE:", "if not before:"
            )
        ],
        only_the_idle_one_is_ended,
        r"results are \[\['idle'\], \[None\], \['idle'\]\]",
    ),
    Mutant(
        "a look that ignores output",
        [Edit("runner/idle.py", "since=max(before.since, last)", "since=before.since")],
        only_the_idle_one_is_ended,
        r"results are \[\[None\], \['idle'\], \['idle'\]\]",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
