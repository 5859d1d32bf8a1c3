"""Plugins: a module or an executable in place of an issue, byte for byte what was checked, within its bounds."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from wasmtime import wat2wasm

import gtrun
from harness.barrier import Barrier
from harness.box import Box
from harness.control import Edit, Mutant, kill, prepare
from harness.fleet import FleetBox, root_of
from harness.scenarios.test_far import GTRUN
from harness.scenarios.test_forward import people
from harness.scenarios.test_start import answer
from harness.scenarios.test_sweep import BEFORE_LOCK, LATE
from harness.scene import Scene

EXAMPLES = Path(gtrun.__file__).parent / "plugins/examples"
BEFORE_READING = Barrier("before-reading", "runner/run.py", "        payload = records.read_payload(path)")
SLEEPS = "#!/bin/sh\necho ready > ~/ready\nexec sleep 60\n"

LOOPS = '(module (func (export "_start") (loop $again (br $again))))'
GROWS = """(module (memory (export "memory") 1) (func (export "_start")
  (loop $again (br_if $again (i32.ne (memory.grow (i32.const 15)) (i32.const -1)))) unreachable))"""
# exits with the errno of opening a path below its work folder
OPENS = """(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1) (data (i32.const 8) "{path}")
  (func (export "_start") (call $exit (call $open (i32.const 3) (i32.const 1) (i32.const 8) (i32.const {length})
    (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 0)))))"""
PERMITTED_NOT = 63  # EPERM of WASI preview 1


def put(scene: Scene, name: str, data: bytes | str) -> str:
    """Put a plugin into the account's home; a .wasm given as text is assembled."""
    if isinstance(data, str) and name.endswith(".wasm"):
        data = bytes(wat2wasm(data))
    path = f"{scene.home}/{name}"
    scene.box.write(path, data, owner=scene.account)
    return path


def started(scene: Scene, file: str, target: str = "me") -> None:
    """Start it and wait for its end."""
    scene.gtrun("dispatch", target, "--plugin", file)
    scene.idle()


def last(scene: Scene, name: str) -> dict[str, object]:
    """How its last run ended."""
    ending: dict[str, object] = scene.runs(f"plugin:{name}")[-1]["ending"]
    return ending


def payloads(scene: Scene) -> list[Path]:
    """The bytes of plugins that lie in the account's state."""
    return list(scene.box.path(f"{scene.state}/runs").glob("*/*.plugin"))


def the_examples(box: Box) -> None:
    """One of each kind does its work, and is seen by every command that looks."""
    scene = Scene(box)
    scene.runs_shell("true", f'[plugins.stale]\narguments = ["14"]\ndirectories = ["{scene.home}/in"]\n')
    scene.sh("mkdir in; touch in/new; touch -d 2020-01-01 in/old 'in/two words'")
    stale = put(scene, "stale.wasm", (EXAMPLES / "stale.wat").read_text())
    planned = scene.asks("dispatch", "here", "--plugin", stale, "--dry-run")
    assert (planned["unit"], planned["agent"], planned["issue"]) == ("plugin-stale.service", "me", "plugin:stale")
    assert scene.runs("plugin:stale") == []
    done = scene.gtrun("dispatch", "here", "--plugin", stale, "--wait", "--json", check=None)
    told = json.loads(done.out)
    assert (done.code, told["unit"], told["result"], told["exit_code"]) == (1, "plugin-stale.service", "failed", 1)
    lines = scene.asks("logs", "plugin:stale")["lines"]
    assert sorted(line for line in lines if line.startswith("/")) == [
        f"{scene.home}/in/old",
        f"{scene.home}/in/two words",
    ]
    (run,) = scene.runs("plugin:stale")
    assert run["digest"] == scene.sh("sha256sum ~/stale.wasm").out.split()[0]
    assert run["markers_owed"] == run["markers_posted"] == []
    assert "plugin stale\n" in scene.gtrun("show", "plugin:stale").out

    started(scene, put(scene, "room.sh", (EXAMPLES / "room.sh").read_text()))
    assert last(scene, "room")["result"] == "success", last(scene, "room")
    assert any("KiB left" in line for line in scene.asks("logs", "plugin:room")["lines"])
    assert payloads(scene) == []

    scene.gtrun("dispatch", "me", "--plugin", put(scene, "waits.sh", SLEEPS))
    scene.appears(f"{scene.home}/ready")
    (live,) = scene.asks("ps")["runs"]
    assert (live["unit"], live["issue"], live["started_by_gtrun"]) == ("plugin-waits.service", "plugin:waits", True)
    assert scene.asks("live", "plugin:waits")["runs"] == [live]
    (lying,) = payloads(scene)
    assert oct(lying.stat().st_mode) == "0o100400"
    assert scene.asks("rigs")["agents"][0]["state"] == "full"  # it is a run of that agent
    scene.gtrun("stop", "plugin:waits")
    assert last(scene, "waits")["result"] == "stopped"
    assert payloads(scene) == []
    assert box.run("sh", "-c", "ls -d /run/user/*/gtrun-plugin* || true").out == ""


def bounds(box: Box) -> None:
    """What loops for ever, grows or looks outside is ended or refused by what runs it, and nothing else is touched."""
    scene = Scene(box)
    scene.configure(
        '[plugins.loops]\ntime_limit = "1s"\n[plugins.burns]\nfuel = 100000\n[plugins.grows]\nmemory_max = "16M"\n'
    )
    scene.gtrun("dispatch", "me", "--plugin", put(scene, "waits.sh", SLEEPS))
    scene.appears(f"{scene.home}/ready")
    names = ("loops", "burns", "grows", "up", "link")
    scene.sh("echo secret > /run/user/$(id -u)/secret")
    for name, text in zip(
        names,
        (LOOPS, LOOPS, GROWS, OPENS.format(path="../secret", length=9), OPENS.format(path="/etc/passwd", length=11)),
        strict=True,
    ):
        scene.gtrun("dispatch", "me", "--plugin", put(scene, f"{name}.wasm", text))
    box.wait_for("one left", lambda: scene.units() == ["plugin-waits.service"], timeout=30)
    ends = {name: last(scene, name) for name in names}
    assert ends["loops"]["result"] == "timeout", ends["loops"]
    assert ends["burns"]["result"] == "failed"
    assert str(ends["burns"]["reason"]).startswith("it used up its fuel of 100000")
    assert ends["grows"]["result"] == "failed"
    assert "with 16M of memory, of 16M that it may have" in str(ends["grows"]["reason"]), ends["grows"]
    assert [ends[name]["exit_code"] for name in ("up", "link")] == [PERMITTED_NOT, PERMITTED_NOT]
    scene.gtrun("stop", "plugin:waits")


def what_is_none(box: Box) -> None:
    """What cannot be run is refused before anything starts, and without a trace."""
    scene = Scene(box)
    scene.configure('[plugins.fueled]\nfuel = 10\n[plugins.blind]\ndirectories = ["~/nowhere"]\n')
    good = bytes(wat2wasm('(module (func (export "_start")))'))
    cases: dict[str, tuple[bytes | str, str]] = {
        "text.wasm": (b"hello\n", "neither a WebAssembly module nor an executable file"),
        "cut.wasm": (good[:-3], "no valid WebAssembly module"),
        "head.wasm": (good[:6], "it is cut off, or damaged"),
        "component.wasm": (b"\0asm\x0d\0\1\0", "a WebAssembly component, and a module is needed"),
        "library.wasm": ("(module)", "no function _start"),
        "takes.wasm": ('(module (func (export "_start") (param i32)))', "no function _start"),
        "foreign.wasm": ('(module (import "env" "f" (func)) (func (export "_start")))', "imports env.f"),
        "newer.wasm": (
            '(module (import "wasi_snapshot_preview1" "f" (func)) (func (export "_start")))',
            "cannot be linked: unknown import: `wasi_snapshot_preview1::f`",
        ),
        "windows.sh": ("#!/bin/sh\r\nexit 0\r\n", "end as on Windows"),
        "nobody.sh": ("#!/nowhere/sh\n", "not to be executed: '/nowhere/sh'"),
        "cut.bin": (Path("/bin/true").read_bytes()[:40], "it is cut off, or an object file"),
        "large.wasm": (good + bytes(16 << 20), "more than 16 MiB"),
        "blind.wasm": (good, "~/nowhere".replace("~", scene.home)),
    }
    for name, (data, why) in cases.items():
        refused = scene.gtrun("dispatch", "me", "--plugin", put(scene, name, data), check=None)
        assert (refused.code, why in refused.err) == (1, True), f"{name}: {refused.code}: {refused.err}"
    scene.sh("mkfifo pipe.sh; mkdir folder.sh; touch secret.sh; chmod 0 secret.sh")
    for name, why in (
        ("pipe.sh", "is not a regular file"),
        ("folder.sh", "Is a directory"),
        ("secret.sh", "Permission denied"),
        ("gone.sh", "No such file"),
    ):
        refused = scene.gtrun("dispatch", "me", "--plugin", f"{scene.home}/{name}", check=None)
        assert (refused.code, why in refused.err) == (1, True), f"{name}: {refused.code}: {refused.err}"
    fueled = scene.gtrun("dispatch", "me", "--plugin", put(scene, "fueled.sh", SLEEPS), check=78)
    assert "plugins.fueled.fuel: it bounds modules alone, and fueled is an executable" in fueled.err
    for typed in (["Bad Name.sh"], ["x-dup1.sh"], ["waits.sh", "1"], ["waits.sh", "--prefer-skill", "go"]):
        put(scene, typed[0], SLEEPS)
        scene.gtrun("dispatch", "me", *typed[1:], "--plugin", f"{scene.home}/{typed[0]}", check=2)
    assert (scene.units(), payloads(scene), scene.open_records()) == ([], [], [])
    assert all(scene.runs(f"plugin:{name.partition('.')[0]}") == [] for name in cases)


def changed_in_between(box: Box) -> None:
    """Bytes that are not those that were checked are never executed, though they lie where those lay."""
    scene = Scene(box)
    scene.configure("")
    BEFORE_READING.close(scene)
    checked = put(scene, "checked.sh", "#!/bin/sh\ntouch ~/checked\n")
    scene.gtrun("dispatch", "me", "--plugin", checked)
    BEFORE_READING.wait_for(scene)
    (lying,) = payloads(scene)
    lying.chmod(0o600)
    lying.write_text("#!/bin/sh\ntouch ~/other\n")
    BEFORE_READING.open(scene)
    scene.idle()
    assert not box.path(f"{scene.home}/other").exists(), "other bytes were executed than those that were checked"
    ending = last(scene, "checked")
    assert (ending["result"], ending["exit_code"]) == ("failed", 126)
    assert "the plugin is not the one that was checked: its digest is " in str(ending["reason"])
    # the file that was read at the beginning may change as it likes
    BEFORE_READING.close(scene)
    scene.gtrun("dispatch", "me", "--plugin", checked)
    BEFORE_READING.wait_for(scene)
    put(scene, "checked.sh", "#!/bin/sh\ntouch ~/other\n")
    BEFORE_READING.open(scene)
    scene.idle()
    assert last(scene, "checked")["result"] == "success"
    assert [box.path(f"{scene.home}/{name}").exists() for name in ("checked", "other")] == [True, False]


def two_dispatchers(box: Box) -> None:
    """One plugin for two agents at once: it is one in the fleet, as an issue is, whatever its bytes are."""
    root, alice, bob = root_of(box), Scene(box, "alice"), Scene(box, "bob")
    fleet = box.path("/etc/gtrun/fleet.toml")
    fleet.write_text(f'{fleet.read_text()}[schedule]\nsettle = "0s"\n')
    one, other = put(root, "waits.sh", SLEEPS), put(root, "more/waits.sh", f"{SLEEPS}# other bytes\n")
    BEFORE_LOCK.close(root)
    dispatches = [
        box.spawn("gtrun", "dispatch", agent, "--plugin", file) for agent, file in (("alice", one), ("bob", other))
    ]
    BEFORE_LOCK.wait_for(root, 2)
    BEFORE_LOCK.open(root)
    answers = [answer(each) for each in dispatches]
    codes = Counter(done.code for done in answers)
    assert codes == {0: 1, 14: 1}, f"exit codes {dict(codes)}: {[done.err for done in answers]}"
    (refused,) = [done.err for done in answers if done.code == 14]
    assert "plugin waits is live on agent" in refused
    assert len(alice.units() + bob.units()) == 1
    (winner,) = [name for name, done in zip(("alice", "bob"), answers, strict=True) if done.code == 0]
    again = root.gtrun("dispatch", winner, "--plugin", one, check=11)
    assert "plugin-waits.service is already live" in again.err
    assert root.gtrun("preflight", "quota", winner).code == 0
    full = root.gtrun("dispatch", "box", "--plugin", put(root, "next.sh", SLEEPS))  # to the one that is free
    assert f" on {'bob' if winner == 'alice' else 'alice'}, " in full.out
    assert (
        "is full: 1 of 1 run" in root.gtrun("dispatch", "box", "--plugin", put(root, "third.sh", SLEEPS), check=10).err
    )
    root.gtrun("stop", "--all")
    # a pause and a used-up quota: the one keeps a plugin off that is not meant for an agent, the other does not
    root.gtrun("quota", "set", "alice", "--until", "2h")
    root.gtrun("pause", "bob")
    assert " on alice, " in root.gtrun("dispatch", "box", "--plugin", one).out
    root.gtrun("stop", "--all")
    digests = {attempt["digest"] for attempt in root.asks("show", "plugin:waits")["attempts"]}
    assert len(digests) == 2


def rests_after_success(box: Box) -> None:
    """A run that succeeded is followed by none for a while, by hand neither; one that failed does not count."""
    scene = Scene(box)
    rests = '[plugins.tidy]\ncooldown = "1h"\n'
    scene.configure(rests)
    fails = put(scene, "more/tidy.sh", "#!/bin/sh\nexit 3\n")
    tidy = put(scene, "tidy.sh", "#!/bin/sh\nexit 0\n")
    for file in (fails, fails, tidy):
        started(scene, file)
    assert scene.results("plugin:tidy") == ["failed", "failed", "success"]
    for how in ((), ("--dry-run",)):
        refused = scene.gtrun("dispatch", "me", "--plugin", fails, *how, check=None)
        assert refused.code == 10, f"exit code {refused.code}: {refused.err}"
        assert "plugin tidy succeeded " in refused.err
        assert " ago: it rests for 59m " in refused.err or " ago: it rests for 1h 0m " in refused.err
    assert scene.gtrun("dispatch", "here", "--plugin", tidy, check=10).err.count("refused:") == 1
    assert scene.attempts("plugin:tidy")[-1][:2] == ("refused", 10)
    assert scene.asks("rigs")["agents"][0]["failures"] == 0  # how a plugin ends tells of the plugin
    scene.configure(rests.replace("1h", "1ms"))
    started(scene, tidy)
    assert scene.results("plugin:tidy")[-1] == "success"


def overtaken(box: Box) -> None:
    """Whoever has asked before another's run succeeded asks again under the lock."""
    scene = Scene(box)
    scene.configure('[plugins.tidy]\ncooldown = "1h"\n')
    tidy = put(scene, "tidy.sh", "#!/bin/sh\nexit 0\n")
    LATE.close(scene)
    late = box.spawn("gtrun", "dispatch", "me", "--plugin", tidy, account=scene.account, env={"LATE": "1"})
    LATE.wait_for(scene)
    started(scene, tidy)
    LATE.open(scene)
    done = answer(late)
    scene.idle()
    assert len(scene.runs("plugin:tidy")) == 1, "it ran again while it rests"
    assert done.code == 10, f"exit code {done.code}: {done.err}"
    assert "was started by another dispatch meanwhile" in done.err


def test_the_examples(box: Box) -> None:
    the_examples(box)


def test_bounds(box: Box) -> None:
    bounds(box)


def test_what_is_none(box: Box) -> None:
    what_is_none(box)


def test_changed_in_between(box: Box) -> None:
    prepare(box, [BEFORE_READING.edit])
    changed_in_between(box)


def test_two_dispatchers() -> None:
    with FleetBox() as box:
        prepare(box, [BEFORE_LOCK.edit])
        two_dispatchers(box)


def test_rests_after_success(box: Box) -> None:
    rests_after_success(box)


def test_overtaken(box: Box) -> None:
    prepare(box, [LATE.edit])
    overtaken(box)


def test_inside_a_sandbox(box: Box) -> None:
    """The bytes come in with the run, though no file of the account can be seen there."""
    scene = Scene(box)
    hidden = f'inaccessible_paths = ["{scene.home}"]'
    sandbox = f'[run.sandbox]\nprivate_tmp = true\nprotect_system = "strict"\n{hidden}\n'
    scene.configure(sandbox)
    sees = put(scene, "sees.sh", "#!/bin/sh\nls ~ 2>/dev/null && exit 9\ntouch here && echo works\n")
    module = put(scene, "does.wasm", OPENS.format(path="none", length=4))
    for file, code in ((sees, 0), (module, 44)):  # ENOENT of WASI preview 1
        done = scene.gtrun("dispatch", "me", "--plugin", file, "--wait", check=None)
        assert done.code == code, (
            f"{file}: {done.code}: {done.err} {scene.gtrun('logs', 'plugin:' + Path(file).stem).out}"
        )
    scene.idle()
    scene.configure("[run.sandbox]\nprotect_home = true\n")
    refused = scene.gtrun("dispatch", "me", "--plugin", sees, check=1)
    assert "sandbox.protect_home hides the workdir: /run/user/" in refused.err


def test_killed(box: Box) -> None:
    """A dispatcher that is killed before the start leaves nothing; a module that is killed is said to be."""
    prepare(box, [BEFORE_LOCK.edit])
    scene = Scene(box)
    scene.configure("")
    BEFORE_LOCK.close(scene)
    loops = put(scene, "loops.wasm", LOOPS)
    dispatch = box.spawn("gtrun", "dispatch", "me", "--plugin", loops, account=scene.account)
    (process,) = BEFORE_LOCK.wait_for(scene)
    assert len(payloads(scene)) == 1
    box.run("kill", "-KILL", str(process))
    assert answer(dispatch).code < 0
    BEFORE_LOCK.open(scene)
    box.wait_for("its worker, which takes it back", lambda: not payloads(scene))
    assert (scene.units(), scene.open_records()) == ([], [])
    scene.gtrun("reconcile")
    scene.gtrun("dispatch", "me", "--plugin", loops)
    pid = scene.properties("plugin-loops.service", "MainPID")["MainPID"]
    box.wait_for("wasmtime", lambda: b"\0wasi\0" in box.path(f"/proc/{pid}/cmdline").read_bytes())
    box.run("kill", "-KILL", pid)
    scene.idle()
    assert last(scene, "loops")["result"] == "killed"
    assert payloads(scene) == []


def test_typed_elsewhere() -> None:
    """The bytes travel with the command and from there by ssh, every one as it is; what the claim host says counts."""
    with Box(accounts=("ops", "carol", "bob")) as box:
        ops, carol = people(box)
        config = box.path(f"{ops.home}/.config/gtrun/fleet.toml")
        agents = f'[rigs.box]\ngtrun = "{GTRUN}"\n[agents.me]\n[agents.bob]\naccount = "bob"\nreach = "ssh"\n'
        config.write_text(config.read_text() + agents)
        box.allow_ssh("ops", "bob")
        text = b'#!/bin/sh\nsha256sum < "$0"\nexit 0\n' + os.urandom(3 << 20)
        file = put(carol, "sums.sh", text)
        digest = carol.sh("sha256sum < ~/sums.sh").out.split()[0]
        for agent in ("me", "bob"):
            done = carol.gtrun("dispatch", agent, "--plugin", file, "--wait", check=None)
            assert done.code == 0, f"exit code {done.code}: {done.err}"
            assert f"{digest}  -" in ops.asks("logs", "plugin:sums", "--agent", agent)["lines"]
        assert [run["digest"] for run in ops.runs("plugin:sums")] == [digest, digest]
        refused = carol.gtrun("dispatch", "me", "--plugin", put(carol, "text.sh", "hello"), check=1)
        assert "neither a WebAssembly module nor an executable file" in refused.err
        assert ops.asks("show", "plugin:text", check=1)["attempts"] == []


MUTANTS = [
    Mutant(
        "digest not checked",
        [
            Edit(
                "plugins/program.py",
                "    payload.refuse_changed(data, plugin.digest)\n    check_workdir",
                "    check_workdir",
            )
        ],
        changed_in_between,
        "other bytes were executed",
        setup=[BEFORE_READING.edit],
    ),
    Mutant(
        "cooldown not asked under the lock",
        [Edit("guards/__init__.py", "        return [CLAIM, *_cooldown(question)]", "        return [CLAIM]")],
        overtaken,
        "it ran again while it rests",
        setup=[LATE.edit],
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    kill(mutant)
