"""The timer of the sweep: passes that nobody types, and runs that outlive them, however they end."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from harness.box import CHECKOUT, Box
from harness.conftest import MakeBox
from harness.control import Edit, Mutant, kill, prepare
from harness.fleet import WORKS
from harness.scenarios.test_closeout import board_of
from harness.scenarios.test_start import answer
from harness.scenarios.test_sweep import AFTER_AN_ITEM, BEFORE_LOCK
from harness.scene import Scene

SERVICE, TIMER = "gtrun-sweep.service", "gtrun-sweep.timer"
CONFIG = '/home/alice/it\'s "my" 100%h $HOME ${HOME} \\x41 \t;#\n= ü/fleet.toml'
FLEET = f"""
[run]
command = ["sh", "-c", "{WORKS}"]
[schedule]
settle = "0s"
every = "300ms"
[agents.me]
max_runs = """
BARRIERS = [AFTER_AN_ITEM, BEFORE_LOCK]


def has_timer(box: Box, slots: int = 2) -> Scene:
    """An account whose fleet.toml is in no usual place, with the timer installed from there, narrowed as docs say."""
    scene = Scene(box)
    box.write(CONFIG, f"{FLEET}{slots}\n", owner=scene.account, mode=0o600)
    page = (CHECKOUT / "docs/timers.md").read_text()
    narrower = re.findall(r"```ini\n(\[Service\]\nNoNewPrivileges=.*?)```", page, re.DOTALL)[0]
    folder = f"{scene.home}/.config/systemd/user"
    box.write(f"{folder}/{SERVICE}.d/narrower.conf", narrower, owner=scene.account)
    box.write(f"{folder}/{TIMER}.d/soon.conf", "[Timer]\nOnActiveSec=1ms\nAccuracySec=1ms\n", owner=scene.account)
    installed = scene.gtrun("--config", CONFIG, "units", "install", "sweep").out
    assert installed.splitlines() == [
        f"wrote {folder}/{SERVICE}",
        f"wrote {folder}/{TIMER}",
        f"enabled, by the link {folder}/timers.target.wants/{TIMER}",
        f"started {TIMER}",
    ]
    return scene


def state(scene: Scene) -> tuple[str, str, str]:
    """The state of the service, why it is in that, and the exit code of the last pass."""
    told = scene.properties(SERVICE, "ActiveState", "Result", "ExecMainStatus")
    return told["ActiveState"], told["Result"], told["ExecMainStatus"]


def said(box: Box) -> list[str]:
    """What the passes have said, as it is in the journal."""
    box.run("journalctl", "--sync")
    return box.journal("-o", "cat", "-t", "gtrun", "_UID=1000").splitlines()


def comes_about(box: Box, what: str, probe: Callable[[], object]) -> None:
    box.wait_for(what, lambda: bool(probe()), timeout=30)


def runs_outlive_their_pass(box: Box) -> None:
    """CASE 13. A pass that the timer began is stopped, and the next one is killed, each right after its first start."""
    scene = Scene(box)
    first, second = scene.issue(), scene.issue()
    AFTER_AN_ITEM.close(scene)
    has_timer(box)
    # a pass that reads another fleet.toml has nothing to start, and ends
    comes_about(box, "a pass", lambda: AFTER_AN_ITEM.held(scene) or "Dispatched 0 " in " ".join(said(box)))
    assert len(AFTER_AN_ITEM.held(scene)) == 1, f"nothing was started: {said(box)}"
    (passing,) = AFTER_AN_ITEM.held(scene)
    limits = box.path(f"/proc/{passing}/status").read_text()
    assert "\nNoNewPrivs:\t1\n" in limits
    scene.sh(f"systemctl --user stop {TIMER}; systemctl --user stop {SERVICE}")
    assert state(scene) == ("inactive", "success", "130"), state(scene)
    scene.sh(f"systemctl --user start {TIMER}")
    AFTER_AN_ITEM.wait_for(scene, 2)  # the next pass, at its own first
    results = [scene.results(one) for one in (first, second)]
    assert results == [[None], [None]], f"results are {results}"
    units = scene.units()
    assert units == [f"task-{one}.service" for one in (first, second)], f"units are {units}"
    assert "Dispatched 1 of 2 planned" in said(box), f"the passes said {said(box)}"
    scene.sh(f"systemctl --user stop {TIMER}")
    scene.sh(f"systemctl --user kill -s KILL {SERVICE}")
    comes_about(box, "the end of the pass", lambda: state(scene)[0] == "failed")
    assert state(scene) == ("failed", "signal", "9"), state(scene)
    units = scene.units()
    assert units == [f"task-{one}.service" for one in (first, second)], f"units are {units}"
    for one in (first, second):
        assert scene.properties(f"task-{one}.service", "ActiveState")["ActiveState"] == "active"
        assert len(scene.runs(one)) == 1
    AFTER_AN_ITEM.open(scene)
    scene.gtrun("stop", "--all")


def test_runs_outlive_their_pass(box: Box) -> None:
    prepare(box, [barrier.edit for barrier in BARRIERS])
    runs_outlive_their_pass(box)
    it_goes_on_by_itself(box)
    scene = Scene(box)
    left = scene.gtrun("units", "uninstall").out.splitlines()
    folder = f"{scene.home}/.config/systemd/user"
    assert left == [
        f"disabled, without the link {folder}/timers.target.wants/{TIMER}",
        f"removed {folder}/{SERVICE}",
        f"removed {folder}/{TIMER}",
    ]
    comes_about(box, "the end of the last pass", lambda: state(scene)[0] == "inactive")
    scene.sh(f"rm -r {folder}/*.d && systemctl --user daemon-reload")
    assert scene.sh("systemctl --user list-units --all --no-legend 'gtrun*'").out == ""
    assert scene.sh("systemctl --user list-unit-files --no-legend 'gtrun*'", check=1).out == ""
    assert not [path for path in box.path(folder).rglob("*") if not path.is_dir()]


def it_goes_on_by_itself(box: Box) -> None:
    """A board that is down makes the service fail until it is back; a pass by hand beside one is another dispatcher."""
    scene = Scene(box)
    scene.sh(f"mv {board_of(scene)} ~/away.db; systemctl --user start {TIMER}")
    comes_about(box, "a pass without a board", lambda: state(scene) == ("failed", "exit-code", "75"))
    assert SERVICE in scene.sh("systemctl --user --failed --plain --no-legend").out
    scene.sh(f"mv ~/away.db {board_of(scene)}")
    comes_about(box, "a pass with a board", lambda: state(scene) == ("inactive", "success", "0"))
    assert "Dispatched 0 of 0 planned" in said(box)

    BEFORE_LOCK.close(scene)
    issues = [scene.issue() for _ in range(3)]
    BEFORE_LOCK.wait_for(scene, 1)
    by_hand = box.spawn("gtrun", "--config", CONFIG, "sweep", account=scene.account)
    BEFORE_LOCK.wait_for(scene, 2)
    BEFORE_LOCK.open(scene)
    done = answer(by_hand)
    assert done.code == 0, f"exit code {done.code}: {done.err}"
    comes_about(box, "two runs", lambda: len(scene.units()) == 2)
    comes_about(
        box,
        "another pass",
        lambda: said(box)[-1] == "Dispatched 0 of 0 planned; 1 more ready, which wait for the next free agent",
    )
    assert scene.units() == [f"task-{one}.service" for one in issues[:2]]
    assert [len(scene.runs(one)) for one in issues] == [1, 1, 0]
    scene.gtrun("pause")
    scene.gtrun("stop", "--all")


def test_it_belongs_to_who_makes_the_claims(make_box: MakeBox) -> None:
    """Elsewhere only the other unit is put in. What is installed is verified, also of an account that is no agent's."""
    box = make_box(accounts=["ops", "carol"])
    ops, carol = Scene(box, "ops"), Scene(box, "carol")
    carol.configure('[claim]\nhost = "ops@localhost"\n')
    done = carol.gtrun("units", "install")
    assert "the sweep is left out: work is handed out by ops@localhost, so install it there" in done.err
    assert "gtrun-sweep" not in done.out
    carol.gtrun("units", "uninstall")
    unknown = carol.gtrun("units", "install", "sweeper", check=2)
    assert "there is no 'sweeper' to install; there are reconcile, sweep and catalog" in unknown.err
    ops.configure('[run]\ncommand = ["true"]\n[agents.carol]\naccount = "carol"\n')
    ops.gtrun("units", "install", env={"XDG_STATE_HOME": "/home/ops/state"})
    verified = ops.gtrun("units", "verify", check=1)
    assert re.search(r"^BAD  carol: agent carol is another account", verified.out, re.MULTILINE), verified.out
    units = re.findall(r"^ok   ops: (\S+)$", verified.out, re.MULTILINE)
    assert units == ["gtrun-reconcile.service", SERVICE, TIMER], verified.out
    shown = ops.properties(SERVICE, "Environment", "KillSignal", "TimeoutStartUSec", "UMask")
    assert shown == {
        "Environment": "XDG_STATE_HOME=/home/ops/state",
        "KillSignal": "2",
        "TimeoutStartUSec": "15min",
        "UMask": "0077",
    }
    ours = box.path(f"{ops.home}/.config/systemd/user/{TIMER}")
    ours.write_text(ours.read_text().replace("OnUnitInactiveSec=120s", "OnUnitInactiveSec=often"))
    verified = ops.gtrun("units", "verify", check=1)
    assert re.search(rf"^BAD  ops: {TIMER}\n +.*timer value, ignoring: often", verified.out, re.MULTILINE), verified.out
    ops.gtrun("units", "uninstall")


MUTANTS = [
    Mutant(
        "a run is part of the pass that started it",
        [
            Edit(
                "systemd/transient.py",
                '("CollectMode", "s", "inactive-or-failed"),',
                '("CollectMode", "s", "inactive-or-failed"), ("PartOf", "as", ["gtrun-sweep.service"]),',
            )
        ],
        runs_outlive_their_pass,
        r"results are \[\['stopped'",
        setup=[barrier.edit for barrier in BARRIERS],
    ),
    Mutant(
        "the configuration is not carried",
        [Edit("unit_files.py", '        found["GTRUN_CONFIG"] = str(path)\n', "        pass\n")],
        runs_outlive_their_pass,
        r"nothing was started",
        setup=[barrier.edit for barrier in BARRIERS],
    ),
    Mutant(
        "a pass that is stopped says nothing",
        [Edit("units/gtrun-sweep.service", "KillSignal=SIGINT\n", "")],
        runs_outlive_their_pass,
        r"\('failed', 'signal', '15'\)",
        setup=[barrier.edit for barrier in BARRIERS],
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
