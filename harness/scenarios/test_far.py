"""Agents that the dispatching account is not: reached through ssh, and gone again, whatever the way there does."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time

import pytest

from gtrun.reach.route import PATIENCE
from harness.barrier import Barrier
from harness.box import CHECKOUT, Box, Completed
from harness.conftest import MakeBox
from harness.control import Edit, Mutant, kill, prepare
from harness.scenarios.test_arguments import NASTY, TELLS, toml
from harness.scenarios.test_killed_dispatcher import IN_WORKER_AFTER_START
from harness.scenarios.test_start import answer
from harness.scene import Scene

BOARD = "/srv/gtrun/board"
ACCOUNTS = ("ops", "alice", "bob")
GTRUN = "/opt/gtrun/bin/gtrun"
UNDER_LOCK = Barrier("under-lock", "dispatch.py", "            asked.problem = claim.problem")
MANY = 30  # dispatchers at once


def boot() -> Box:
    """A box whose account `ops` dispatches, and whose agents are alice and bob."""
    return Box(accounts=ACCOUNTS, group="gtrun")


def furnish(box: Box, script: str = "exec sleep 60", *, more: str = "", alice: str = "", rig: str = "") -> Scene:
    """Keys from ops to both agents, and the fleet; alice and bob are reached by ssh. Gives the scene of ops."""
    box.run("install", "-d", "-m", "2770", "-g", "gtrun", BOARD)
    for name in ("alice", "bob"):
        box.allow_ssh("ops", name)
    ops = Scene(box, "ops")
    ops.configure(
        f'[board]\npath = "{BOARD}/board.db"\n[run]\ncommand = {json.dumps(["sh", "-c", script])}\n{more}\n'
        f'[rigs.box]\ngtrun = "{GTRUN}"\n{rig}\n'
        f'[agents.alice]\naccount = "alice"\nreach = "ssh"\n{alice}\n'
        '[agents.bob]\naccount = "bob"\nreach = "ssh"\n'
    )
    return ops


@pytest.fixture
def far(make_box: MakeBox) -> Box:
    """A box with ops, alice and bob, not furnished yet."""
    return make_box(accounts=ACCOUNTS, group="gtrun")


@pytest.fixture
def ops(far: Box) -> Scene:
    """The scene of the account that dispatches."""
    return furnish(far)


def append(box: Box, path: str, text: str) -> None:
    """Add to a file of root's."""
    box.write(path, box.path(path).read_text() + text)


def configure_sshd(box: Box, text: str) -> None:
    """Further settings of sshd, in front: the first of each counts."""
    path = "/etc/ssh/sshd_config"
    box.write(path, text + box.path(path).read_text())
    box.run("systemctl", "restart", "ssh")


def processes(box: Box, account: str) -> list[str]:
    """The commands that an account runs, but for its manager and its bus."""
    listed = box.run("ps", "-U", account, "-o", "pid=,comm=,args=").out.splitlines()
    return [line for line in listed if line.split()[1] not in {"systemd", "(sd-pam)", "dbus-daemon"}]


def is_left_alone(box: Box, account: str = "ops", *, timeout: float = 20.0) -> None:
    """Wait until nothing of an account's runs any more."""
    box.wait_for(f"nothing of {account}'s", lambda: not processes(box, account), timeout=timeout)


def spawn(ops: Scene, *argv: str) -> subprocess.Popen[bytes]:
    """Type a command of gtrun's."""
    return ops.box.spawn("gtrun", *argv, account="ops")


def test_a_run_in_an_account_behind_ssh(ops: Scene) -> None:
    issue = ops.issue()
    done = ops.gtrun("dispatch", "alice", issue)
    assert done.err == ""
    ops.gtrun("dispatch", "alice", issue, check=11)
    ops.gtrun("dispatch", "bob", issue, check=14)
    (run,) = ops.asks("ps")["runs"]
    assert (run["agent"], run["account"], run["issue"]) == ("alice", "alice", issue)
    assert ops.asks("live", issue)["runs"] == [run]
    assert ops.asks("stop", "--all")["failed"] is False
    assert ops.kinds(issue) == ["started", "finished"]
    assert ops.results(issue) == ["stopped"]
    assert processes(ops.box, "ops") == []


def test_looking_goes_there(ops: Scene) -> None:
    """Quota, preflight, doctor, reconcile and --wait, as for an own account."""
    box, issue = ops.box, ops.issue()
    ops.gtrun("quota", "set", "bob", "--until", "2h")
    assert {one["agent"]: one["state"] for one in ops.asks("quota")["agents"]} == {"alice": "ready", "bob": "dark"}
    assert box.path("/home/bob/.local/state/gtrun/quota.json").stat().st_uid == box.account("bob").uid
    ops.gtrun("preflight", "quota", "bob", check=9)
    ops.gtrun("dispatch", "bob", issue, check=9)
    ops.gtrun("quota", "clear", "bob")
    ops.gtrun("preflight", "duplicate", "bob", issue)
    ops.gtrun("preflight", "claim", issue)
    subjects = {one["subject"] for one in ops.asks("doctor", check=None)["findings"] if one["is_fine"]}
    assert {"alice", "bob"} <= subjects
    told = ops.asks("reconcile")
    assert (told["lost"], told["owing"], told["problems"]) == ([], 0, [])
    furnish(box, "exit 5")
    done = ops.gtrun("dispatch", "bob", issue, "--wait", check=5)
    assert done.err == "gtrun: it has ended: failed, exit code 5\n"


def test_doctor_tells_who_does_not_reach_the_board(ops: Scene) -> None:
    """It lies in a folder of ops's own, where nobody else may even look."""
    config = f"{ops.home}/.config/gtrun/fleet.toml"
    ops.box.replace(config, f"{BOARD}/board.db", f"{ops.home}/board/board.db")
    ops.issue()
    bad = {one["subject"]: one["what"] for one in ops.asks("doctor", check=1)["findings"] if not one["is_fine"]}
    for agent in ("alice", "bob"):
        assert bad[agent].startswith(f"the board {ops.home}/board/board.db cannot be used: Permission denied"), bad
        assert bad[agent].endswith(": what its runs have to say waits for `gtrun reconcile`"), bad


def test_logs_of_a_far_run(far: Box) -> None:
    """What a run printed, also its last words, also while it prints; -f ends with the run."""
    nasty = r"a$HOME %h \033[31m; `id`"
    ops = furnish(far, f"echo first; until [ -e ~/go ]; do sleep 0.05; done; printf '%b\\n' '{nasty}'; echo last")
    issue = ops.issue()
    ops.gtrun("dispatch", "alice", issue)
    following = far.spawn("gtrun", "logs", "-f", issue, account="ops")
    assert following.stdout is not None
    assert following.stdout.readline() == b"first\n"
    far.write("/home/alice/go", "", owner="alice")
    out, err = following.communicate(timeout=30)
    assert following.returncode == 0, err
    wanted = ["first", "a$HOME %h ; `id`", "last"]
    assert out.decode().splitlines() == wanted[1:]
    assert ops.asks("logs", issue)["lines"] == wanted
    assert ops.asks("logs", "-n", "1", issue)["lines"] == wanted[2:]
    is_left_alone(far)


def test_arguments_arrive_byte_for_byte(far: Box) -> None:
    ops = furnish(far)
    issue = ops.issue()
    far.write("/home/alice/tells", TELLS, owner="alice", mode=0o755)
    doubled = [text.replace("{", "{{").replace("}", "}}") for text in NASTY]
    prompt = "\n".join(doubled) + "no line end"
    far.write("/home/alice/prompt", prompt, owner="alice", mode=0o600)
    variables = "".join(f"NASTY_{number} = {toml(text)}\n" for number, text in enumerate(NASTY))
    command = ", ".join(map(toml, ["~/tells", *doubled]))
    ops.configure(
        f'[board]\npath = "{BOARD}/board.db"\n[rigs.box]\ngtrun = "{GTRUN}"\n'
        f'[run]\ncommand = [{command}]\nprompt = "~/prompt"\n[run.environment]\n{variables}\n'
        '[agents.alice]\naccount = "alice"\nreach = "ssh"\n'
    )
    done = ops.gtrun("dispatch", "alice", issue, "--wait")
    assert done.err == "gtrun: it has ended: success, exit code 0\n"
    told = json.loads(Scene(far, "alice").appears("/home/alice/told"))
    assert [bytes.fromhex(each).decode() for each in told["argv"]] == NASTY
    assert bytes.fromhex(told["stdin"]).decode() == "\n".join(NASTY) + "no line end"
    for number, text in enumerate(NASTY):
        wanted = "/home/alice" + text[1:] if text in {"~", "~/x"} else text
        assert bytes.fromhex(told["environment"][f"NASTY_{number}"]).decode() == wanted


def banners_are_skipped(box: Box) -> None:
    """What start-up files of the shells print, on both streams and without a line's end, is nobody's answer."""
    ops = furnish(box)
    for name in ("alice", "bob"):
        box.write(f"/home/{name}/.bashrc", "echo hello; echo oops >&2; printf 'no line end'\n", owner=name)
    issue = ops.issue()
    done = ops.gtrun("dispatch", "alice", issue, check=None)
    assert (done.code, done.err) == (0, ""), f"exit code {done.code}: {done.err}"
    ops.gtrun("dispatch", "bob", issue, check=14)
    ops.gtrun("stop", "--all")


def test_banners_are_skipped(far: Box) -> None:
    banners_are_skipped(far)


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/dash"])
def test_another_login_shell(ops: Scene, shell: str) -> None:
    for name in ("alice", "bob"):
        ops.box.run("usermod", "--shell", shell, name)
    issue = ops.issue()
    assert ops.gtrun("dispatch", "alice", issue).err == ""
    ops.gtrun("stop", "--all")


def broken(ops: Scene, said: str, hint: str, *, agent: str = "alice") -> Completed:
    """The agent cannot be reached: one clear line and what to do, nothing started, and one row in the tables."""
    issue = ops.issue()
    done = ops.gtrun("dispatch", agent, issue, check=69)
    first, second = done.err.splitlines()
    assert said in first, done.err
    assert second.startswith("gtrun: hint: "), done.err
    assert hint in second, done.err
    told = ops.asks("ps")
    assert [one["agent"] for one in told["unreachable"]] == [agent]
    assert said in told["unreachable"][0]["problem"]
    assert Scene(ops.box, "alice").units() == []
    is_left_alone(ops.box)
    return done


def never_asks(box: Box) -> None:
    """An ssh that wants a password, and could even ask for it in a window, fails at once."""
    ops = furnish(box)
    configure_sshd(box, "PasswordAuthentication yes\n")
    box.path("/home/alice/.ssh/authorized_keys").unlink()
    box.write("/home/ops/ask", "#!/bin/sh\ntouch ~/was-asked\necho secret\n", owner="ops", mode=0o755)
    asks = {"SSH_ASKPASS": "/home/ops/ask", "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0"}
    done = ops.gtrun("dispatch", "alice", ops.issue(), check=None, env=asks)
    assert not box.path("/home/ops/was-asked").exists(), f"somebody was asked for a password: {done.err}"
    assert done.code == 69
    assert "alice@localhost cannot be reached: alice@localhost: Permission denied (publickey,password)." in done.err


def test_ssh_never_asks(far: Box) -> None:
    never_asks(far)


def test_no_key(ops: Scene) -> None:
    ops.box.path("/home/alice/.ssh/authorized_keys").unlink()
    broken(ops, "alice@localhost: Permission denied (publickey).", "let a key of this account in there")


def test_an_unknown_host_key(ops: Scene) -> None:
    ops.box.path("/etc/ssh/ssh_known_hosts").unlink()
    done = ops.gtrun("dispatch", "alice", ops.issue(), check=69)
    assert "alice@localhost cannot be reached: Host key verification failed." in done.err
    assert "hint: connect once by hand and compare the host's key: ssh alice@localhost true" in done.err
    assert not ops.box.path("/home/ops/.ssh/known_hosts").exists()


def on_another_box(box: Box, host: str, gtrun: str = GTRUN) -> Scene:
    """As `furnish`, but bob's rig is reached as `host`."""
    ops = furnish(box)
    ops.configure(
        f'[board]\npath = "{BOARD}/board.db"\n[run]\ncommand = ["sleep", "60"]\n[rigs.box]\n'
        f'[rigs.other]\nhost = "{host}"\ngtrun = "{gtrun}"\n'
        '[agents.alice]\nrig = "box"\naccount = "alice"\nreach = "ssh"\n[agents.bob]\nrig = "other"\naccount = "bob"\n'
    )
    return ops


def second_sshd(box: Box) -> None:
    """An sshd at another address, and its name in ops's ssh_config."""
    sshd = ["/usr/sbin/sshd", "-D", "-oListenAddress=127.0.0.2:2222", "-oPidFile=none"]
    box.run("systemd-run", "--quiet", "--unit=other-sshd", *sshd)
    box.run("sh", "-c", "until ssh-keyscan -p 2222 127.0.0.2 2>/dev/null | grep -q ed25519; do sleep 0.1; done")
    config = "Host other\n HostName 127.0.0.2\n Port 2222\n HostKeyAlias localhost\n"
    box.write("/home/ops/.ssh/config", config, owner="ops", mode=0o600)


def test_another_box_by_its_name_in_ssh_config(far: Box) -> None:
    ops = on_another_box(far, "other")
    second_sshd(far)
    issue = ops.issue()
    assert ops.gtrun("dispatch", "bob", issue).err == ""
    (run,) = ops.asks("ps")["runs"]
    assert (run["agent"], run["rig"]) == ("bob", "other")
    ops.gtrun("dispatch", "alice", issue, check=14)
    ops.gtrun("stop", issue)
    assert ops.kinds(issue) == ["started", "finished"]


@pytest.mark.parametrize(
    ("host", "gtrun", "said", "hint"),
    [
        ("other", "/opt/none", "bob@other cannot execute /opt/none: ", "install gtrun there, or name its path there"),
        ("other", "/etc/passwd", "bob@other cannot execute /etc/passwd: ", "install gtrun there"),
        ("other", "/usr/local/bin/old", "No such command 'worker'", "the gtrun there is too old"),
        ("other", "/usr/local/bin/former", "speaks protocol 1, and this one speaks 2", "install the same version"),
        ("other", "/usr/local/bin/yes", "bob@other prints without end", "look at the start-up files"),
        ("nowhere.invalid", GTRUN, "Could not resolve hostname nowhere.invalid", "correct `host` of the rig"),
    ],
)
def test_a_gtrun_there_that_does_not_do(far: Box, host: str, gtrun: str, said: str, hint: str) -> None:
    ops = on_another_box(far, host, gtrun)
    second_sshd(far)
    scripts = {
        "old": "echo \"gtrun: No such command 'worker'\" >&2; exit 2",
        "former": "echo gtrun-worker 1; cat",
        "yes": "exec /usr/bin/yes",
    }
    for name, script in scripts.items():
        far.write(f"/usr/local/bin/{name}", f"#!/bin/sh\n{script}\n", mode=0o755)
    broken(ops, said, hint, agent="bob")


def test_a_systemd_there_that_is_too_old(far: Box) -> None:
    """For a credential of the profile, and for a property that systemd 256 brought: 1, said by name, nothing left."""
    ops, alice = furnish(far), Scene(far, "alice")
    issue = ops.issue()
    far.write("/home/alice/token.cred", "sealed\n", owner="alice", mode=0o600)
    encrypted = '[agents.alice.run]\ncredentials = { token = { encrypted = "~/token.cred" } }'
    furnish(far, alice=encrypted)
    done = ops.gtrun("dispatch", "alice", issue, check=1)
    assert "a user manager of systemd 252 cannot decrypt it: that takes 258" in done.err, done.err
    furnish(far)
    edit = Edit(
        "systemd/transient.py", '("AddRef", "b", True),', '("AddRef", "b", True), ("MemoryZSwapWriteback", "b", True),'
    )
    prepare(far, [edit])
    done = ops.gtrun("dispatch", "alice", issue, check=1)
    refused = f"gtrun: the manager of alice refused task-{issue}.service: "
    assert re.match(rf"{refused}.*MemoryZSwapWriteback", done.err), done.err
    assert [attempt[:2] for attempt in ops.attempts(issue)] == [("failed", 1)] * 2
    assert (alice.units(), alice.open_records(), ops.kinds(issue)) == ([], [], [])
    is_left_alone(far)


def test_a_wrong_account_there(far: Box) -> None:
    """A key that leads to somebody else than it is said to."""
    ops = on_another_box(far, "other")
    second_sshd(far)
    key = far.path("/home/bob/.ssh/authorized_keys").read_text()
    far.write("/home/bob/.ssh/authorized_keys", f'command="{GTRUN} worker alice" {key}', owner="bob", mode=0o600)
    broken(ops, "it was alice who was to be reached, and this is bob", "", agent="bob")


def test_a_key_that_is_bound_to_the_worker(far: Box) -> None:
    """`restrict,command=` as the README has it leaves nothing but gtrun, which is enough."""
    ops = furnish(far)
    (restriction,) = re.findall(r"`(restrict,command=.* worker alice\")`", (CHECKOUT / "README.md").read_text())
    for name in ("alice", "bob"):
        keys = f"/home/{name}/.ssh/authorized_keys"
        text = far.path(keys).read_text()
        far.write(keys, f"{restriction.replace('alice', name)} {text}", owner=name, mode=0o600)
    issue = ops.issue()
    assert ops.gtrun("dispatch", "alice", issue).err == ""
    ops.gtrun("dispatch", "bob", issue, check=14)
    ops.gtrun("stop", issue)


SILENT = """
import socket
server = socket.create_server(("127.0.0.3", 2223))
kept = []
while True:
    kept.append(server.accept())
"""


@pytest.mark.expects_fail_open
def test_a_rig_that_takes_connections_and_never_answers(far: Box) -> None:
    """It costs its own deadline; the run on another rig starts, and it is said that the claim is open."""
    ops = on_another_box(far, "silent")
    far.write("/home/ops/.ssh/config", "Host silent\n HostName 127.0.0.3\n Port 2223\n", owner="ops", mode=0o600)
    far.run("systemd-run", "--quiet", "--unit=silent", "python3", "-c", SILENT)
    issue = ops.issue()
    done = ops.gtrun("dispatch", "alice", issue)
    assert "claim guard failed open: not every agent could be asked: bob: bob@silent cannot be reached: " in done.err
    assert "timed out" in done.err
    told = ops.asks("ps")
    assert [one["agent"] for one in told["runs"]] == ["alice"]
    assert [one["agent"] for one in told["unreachable"]] == ["bob"]
    interrupted = spawn(ops, "dispatch", "bob", ops.issue())
    far.wait_for("its ssh", lambda: any(" ssh " in line for line in processes(far, "ops")))
    far.signal(interrupted, signal.SIGINT)
    done = answer(interrupted)
    assert done.code == 130, done.err
    is_left_alone(far)
    ops.gtrun("stop", "--agent", "alice")


@pytest.mark.expects_fail_open
def test_a_rig_where_nobody_listens(far: Box) -> None:
    """Its sshd is down: that costs a moment in which it may be restarting, not the patience for one that is busy."""
    ops = on_another_box(far, "down")
    far.write("/home/ops/.ssh/config", "Host down\n HostName 127.0.0.3\n Port 2223\n", owner="ops", mode=0o600)
    began = time.monotonic()
    done = ops.gtrun("dispatch", "alice", ops.issue(), check=None)
    assert done.code == 0, f"exit code {done.code}: {done.err}"
    refused = "claim guard failed open: not every agent could be asked: bob: bob@down cannot be reached: "
    assert refused in done.err, done.err
    assert "Connection refused" in done.err, done.err
    assert time.monotonic() - began < PATIENCE / 2
    ops.gtrun("stop", "--agent", "alice")


def stop_manager(box: Box) -> str:
    """Bob's manager answers nothing any more; gives its pid."""
    pid = box.run("pgrep", "-u", "bob", "-x", "systemd").out.strip()
    box.run("kill", "-STOP", pid)
    return pid


def stop_sshd(box: Box) -> str:
    """Bob's connections answer nothing any more; gives their pids."""
    pids = " ".join(box.run("pgrep", "-f", "sshd: bob").out.split())
    assert pids
    box.run("sh", "-c", f"kill -STOP {pids}")
    return pids


@pytest.mark.expects_fail_open
@pytest.mark.parametrize("stop", [stop_manager, stop_sshd])
def test_one_that_falls_silent_during_the_probe(far: Box, stop: object) -> None:
    """The deadline is its own: alice's run starts, and ^C ends another dispatch, with nothing left."""
    assert callable(stop)
    prepare(far, [UNDER_LOCK.edit])
    ops = furnish(far)
    issues = [ops.issue() for _ in range(3)]
    for issue, number in zip(issues, (None, signal.SIGINT, signal.SIGKILL), strict=True):
        UNDER_LOCK.close(ops)
        typed = spawn(ops, "dispatch", "alice", issue)
        UNDER_LOCK.wait_for(ops)
        pids = stop(far)
        UNDER_LOCK.open(ops)
        if number is not None:
            far.signal(typed, number)
        done = answer(typed)
        if number is None:
            assert done.code == 0, done.err
            assert "claim guard failed open: not every agent could be asked: bob: " in done.err
            assert "did not answer within 5 s" in done.err
        else:
            killed = {-signal.SIGKILL, 128 + signal.SIGKILL}  # as the nsenter before it passes it on
            assert done.code in (killed if number == signal.SIGKILL else {130}), done.err
        is_left_alone(far)
        far.run("sh", "-c", f"kill -CONT {pids}")
        is_left_alone(far, "bob")
    ops.gtrun("stop", "--agent", "alice")
    assert Scene(far, "alice").open_records() == []


def unknown_outcome_is_not_repeated(box: Box) -> None:
    """The connection is lost while the manager is asked for the unit: it runs, once, and that is found out later."""
    prepare(box, [IN_WORKER_AFTER_START.edit, Edit("reach/route.py", "LEASE = 15.0", "LEASE = 5.0")])
    ops, alice = furnish(box), Scene(box, "alice")
    issue = ops.issue()
    IN_WORKER_AFTER_START.close(alice)
    typed = spawn(ops, "dispatch", "alice", issue)
    IN_WORKER_AFTER_START.wait_for(alice)
    box.run("pkill", "-9", "-u", "ops", "-x", "ssh")
    IN_WORKER_AFTER_START.open(alice)
    done = answer(typed)
    assert done.code == 69, f"exit code {done.code}: {done.err}"
    assert "the connection to alice@localhost was lost" in done.err
    assert alice.units() == [f"task-{issue}.service"]
    assert [attempt[:2] for attempt in ops.attempts(issue)] == [(None, None)]
    ops.gtrun("reconcile")
    assert [attempt[:2] for attempt in ops.attempts(issue)] == [("started", 0)]
    ops.gtrun("stop", issue)
    assert ops.kinds(issue) == ["started", "finished"]


def test_unknown_outcome_is_not_repeated(far: Box) -> None:
    unknown_outcome_is_not_repeated(far)


def test_dispatcher_is_killed_during_a_far_start(far: Box) -> None:
    """Killed while the manager is asked: the run is there, and settled by reconcile; nothing of ours stays."""
    prepare(far, [IN_WORKER_AFTER_START.edit, UNDER_LOCK.edit])
    ops, alice = furnish(far), Scene(far, "alice")
    prepared, started = ops.issue(), ops.issue()
    UNDER_LOCK.close(ops)
    typed = spawn(ops, "dispatch", "alice", prepared)
    UNDER_LOCK.wait_for(ops)
    assert len(alice.open_records()) == 1
    far.signal(typed, signal.SIGKILL)
    UNDER_LOCK.open(ops)
    answer(typed)
    far.wait_for("the record taken back", lambda: not alice.open_records())
    IN_WORKER_AFTER_START.close(alice)
    typed = spawn(ops, "dispatch", "alice", started)
    IN_WORKER_AFTER_START.wait_for(alice)
    far.signal(typed, signal.SIGKILL)
    IN_WORKER_AFTER_START.open(alice)
    answer(typed)
    is_left_alone(far)
    ops.gtrun("reconcile")
    assert [attempt[:2] for attempt in ops.attempts(started)] == [("started", 0)]
    ops.gtrun("dispatch", "bob", started, check=14)
    ops.gtrun("stop", started)
    IN_WORKER_AFTER_START.close(alice)
    answer_lost = spawn(ops, "dispatch", "alice", started)
    IN_WORKER_AFTER_START.wait_for(alice)
    far.run("pkill", "-9", "-u", "ops", "-f", "gtrun dispatch alice")  # with whoever waits for the answer
    answer(answer_lost)
    is_left_alone(far, "ops")
    worker = "gtrun worker alice"
    far.wait_for("the far end", lambda: far.run("pgrep", "-u", "alice", "-f", worker, check=None).code == 1, timeout=20)
    IN_WORKER_AFTER_START.open(alice)
    ops.gtrun("stop", started)
    ops.gtrun("reconcile")
    assert ops.results(prepared) == []


def test_a_far_end_that_hears_nothing_ends(far: Box) -> None:
    """It keeps what was prepared for as long as somebody is there, however long they have nothing to ask."""
    prepare(far, [UNDER_LOCK.edit, Edit("reach/route.py", "KEEP_ALIVE = 15.0", "KEEP_ALIVE = 0.5")])
    ops, alice = furnish(far), Scene(far, "alice")
    issue = ops.issue()
    UNDER_LOCK.close(ops)
    typed = spawn(ops, "dispatch", "alice", issue)
    UNDER_LOCK.wait_for(ops)
    far.run("sleep", "5")  # two and a half times what a far end waits for a word
    assert len(alice.open_records()) == 1
    worker = "gtrun worker alice"
    far.run("pgrep", "-u", "alice", "-f", worker)
    far.run("pkill", "-STOP", "-u", "ops", "-x", "ssh")  # as a network that is gone: nothing comes, no end either
    far.wait_for("the record taken back", lambda: not alice.open_records(), timeout=20)
    far.wait_for("its end", lambda: far.run("pgrep", "-u", "alice", "-f", worker, check=None).code == 1, timeout=20)
    far.run("pkill", "-CONT", "-u", "ops", "-x", "ssh")
    UNDER_LOCK.open(ops)
    done = answer(typed)
    assert done.code == 69, done.err
    assert "the connection to alice@localhost was lost" in done.err
    assert alice.units() == []
    is_left_alone(far)
    ops.gtrun("reconcile")


def dispatched_at_once(ops: Scene, count: int) -> list[Completed]:
    """So many dispatches of different issues, typed at the same time."""
    issues = [ops.issue() for _ in range(count)]
    typed = [spawn(ops, "dispatch", "alice", issue) for issue in issues]
    return [answer(process) for process in typed]


def refused_connections_are_made_again(box: Box) -> None:
    """An sshd that takes two at a time: everybody gets through, and no guard opens."""
    ops = furnish(box)
    configure_sshd(box, "MaxStartups 2\n")
    answers = dispatched_at_once(ops, 8)
    assert [done.code for done in answers] == [0] * 8, f"exit codes, with {[done.err for done in answers]}"
    opened = [line for done in answers for line in done.err.splitlines() if "failed open" in line]
    assert not opened, f"a guard opened: {opened}"
    dropped = box.journal("-t", "sshd", "-o", "cat").count("MaxStartups")
    assert dropped, "sshd has refused nobody"
    ops.gtrun("stop", "--all")


def test_refused_connections_are_made_again(far: Box) -> None:
    refused_connections_are_made_again(far)


def test_a_master_with_too_few_sessions(far: Box) -> None:
    """The caller's ssh_config has connections shared, and sshd lets one session into each: the others go by themselves.

    So each of these dispatches has one or two refused, and nobody is the worse for it.
    """
    ops = furnish(far)
    configure_sshd(far, "MaxSessions 1\n")
    shared = "Host localhost\n ControlPath ~/.ssh/%r\n"
    far.write("/home/ops/.ssh/config", shared, owner="ops", mode=0o600)
    only = []
    for name in ("alice", "bob"):
        far.run("ssh", "-fNM", f"{name}@localhost", account="ops")
        only.append(far.spawn("ssh", f"{name}@localhost", "exec sleep 60", account="ops"))
    far.wait_for("its only session", lambda: far.run("pgrep", "-c", "-x", "sleep", check=None).out == "2\n")
    answers = dispatched_at_once(ops, 6)
    assert [(done.code, done.err) for done in answers] == [(0, "")] * 6
    assert len(ops.asks("stop", "--all")["stopped"]) == 6
    refused = far.journal("-t", "sshd", "-o", "cat").count("no more sessions")
    assert refused >= 12, f"{refused} sessions were refused"
    far.run("pkill", "-x", "sleep|ssh")
    for session in only:
        session.communicate(timeout=20)


def test_thirty_at_once_open_no_guard(far: Box) -> None:
    """With sshd's defaults; our own load is no reason."""
    ops = furnish(far)
    answers = dispatched_at_once(ops, MANY)
    assert [(done.code, done.err) for done in answers] == [(0, "")] * MANY
    assert len(Scene(far, "alice").units()) == MANY
    Scene(far, "alice").sh("systemctl --user stop 'task-*'")


def test_a_hostile_description_moves_no_cursor(ops: Scene) -> None:
    """What a far manager says about a unit is somebody else's text."""
    bob = Scene(ops.box, "bob")
    description = "\x1b]0;owned\x07\x1b[2J"
    bob.sh(f"systemd-run --user --quiet --unit=task-1 --description='{description}' sleep 60")
    for command in (["ps"], ["live", "1"], ["stop", "1"]):
        done = ops.gtrun(*command, check=None)
        assert "\x1b" not in done.out + done.err, done.out + done.err
        assert "task-1.service" in done.out + done.err
    done = ops.gtrun("dispatch", "alice", ops.issue(), check=14)
    assert "\x1b" not in done.err
    bob.sh("systemctl --user stop task-1.service")


def record_commands(box: Box, name: str) -> None:
    """From now on what ssh is asked to run as an account is in its file `asked`."""
    keys = f"/home/{name}/.ssh/authorized_keys"
    key = box.path(keys).read_text()
    script = r"printf \"%s\n\" \"$SSH_ORIGINAL_COMMAND\" >>asked; exec sh -c \"$SSH_ORIGINAL_COMMAND\""
    box.write(keys, f'command="{script}" {key}', owner=name, mode=0o600)


def probe_runs_nothing_of_ours(box: Box) -> None:
    """Bob is only asked for his units: one connection to his bus, and no gtrun."""
    ops = furnish(box)
    record_commands(box, "bob")
    issue = ops.issue()
    done = ops.gtrun("dispatch", "alice", issue)
    assert done.err == ""
    asked = box.path("/home/bob/asked").read_text().splitlines()
    assert [line.split()[:3] for line in asked] == [["sh", "-c", "'exec"]], f"bob was asked {asked}"
    assert "gtrun" not in asked[0], f"bob was asked {asked}"
    ops.gtrun("stop", "--agent", "alice")


def test_the_probe_runs_nothing_of_ours_there(far: Box) -> None:
    probe_runs_nothing_of_ours(far)


MUTANTS = [
    Mutant(
        "a refused connection not made again",
        [Edit("reach/far.py", "    return bool(_DROPPED.search(last) or _REFUSED in last)", "    return False")],
        refused_connections_are_made_again,
        r"exit codes|a guard opened",
        boot=boot,
    ),
    Mutant(
        "a start repeated over a new connection",
        [
            Edit(
                "reach/far.py",
                "        return link.exchange(request, lease=LEASE if is_leased else 0.0)\n",
                "        try:\n"
                "            return link.exchange(request, lease=LEASE if is_leased else 0.0)\n"
                "        except GtrunError:\n"
                "            far, parent = link._far, link._parent\n"
                "            return connect(far, parent, lambda until: Link(far, parent, until)).exchange(request)\n",
            )
        ],
        unknown_outcome_is_not_repeated,
        r"exit code 1: ",
        boot=boot,
    ),
    Mutant(
        "the greeting not waited for",
        [
            Edit(
                "reach/far.py",
                "(greeted := _GREETED.search(self._received)) is None",
                '(greeted := re.match(rb"\\n\\ngtrun-worker (2)\\n", self._received)) is None',
            )
        ],
        banners_are_skipped,
        r"exit code 69: ",
        boot=boot,
    ),
    Mutant(
        "ssh may ask",
        [Edit("reach/transport.py", '    "-oBatchMode=yes",\n', "")],
        never_asks,
        r"somebody was asked for a password",
        boot=boot,
    ),
    Mutant(
        "a probe by gtrun there",
        [Edit("survey.py", "act_as(route, units_only=True)", "act_as(route)")],
        probe_runs_nothing_of_ours,
        r"bob was asked ",
        boot=boot,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
