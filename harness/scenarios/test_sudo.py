"""Agents in other accounts of this box that sudo reaches: one rule in sudoers each, as the README has it, is enough."""

from __future__ import annotations

import re
import signal

import pytest

from harness.barrier import Barrier
from harness.box import CHECKOUT, Box
from harness.conftest import MakeBox
from harness.control import Edit, Mutant, kill, prepare
from harness.scenarios.test_far import is_left_alone, processes
from harness.scenarios.test_start import answer
from harness.scene import Scene

BOARD = "/srv/gtrun/board"
ACCOUNTS = ("ops", "alice", "bob")
(RULE,) = re.findall(r"`(ops ALL=.* worker alice)`", (CHECKOUT / "README.md").read_text())
DEFAULTS = "Defaults env_reset\nDefaults use_pty\n"
FLEET = f"""
[board]
path = "{BOARD}/board.db"
[run]
command = ["sleep", "60"]
[rigs.box]
gtrun = "/opt/gtrun/bin/gtrun"
[agents.alice]
account = "alice"
reach = "sudo"
[agents.bob]
account = "bob"
reach = "sudo"
"""
ASKS_MANAGER = Barrier(
    "asks-manager", "reach/operations/starting.py", "    wanted = transient.properties(run, command,"
)
UNDER_LOCK = Barrier("under-lock", "dispatch.py", "            asked.problem = claim.problem")


def boot() -> Box:
    """A box whose account `ops` dispatches, and whose agents are alice and bob."""
    return Box(accounts=ACCOUNTS, group="gtrun")


@pytest.fixture
def fleet(make_box: MakeBox) -> Box:
    """The same for a scenario."""
    return make_box(accounts=ACCOUNTS, group="gtrun")


def furnish(box: Box, sudoers: str = "") -> Scene:
    """The fleet and the rules, both agents' by default. Gives the scene of ops."""
    box.run("install", "-d", "-m", "2770", "-g", "gtrun", BOARD)
    allow(box, sudoers or f"{DEFAULTS}{RULE}\n{RULE.replace('alice', 'bob')}\n")
    ops = Scene(box, "ops")
    ops.configure(FLEET)
    return ops


def allow(box: Box, sudoers: str) -> None:
    """This is all that sudoers has from now on."""
    box.write("/etc/sudoers", sudoers, mode=0o440)
    box.run("visudo", "--check", "--strict")


def test_one_rule_is_enough(fleet: Box) -> None:
    """Everything that is done with an agent is `gtrun worker` of it."""
    box, ops, issue = fleet, furnish(fleet), ""
    for each in ("alice", "bob"):
        issue = ops.issue()
        assert ops.gtrun("dispatch", each, issue).err == ""
    ops.gtrun("dispatch", "bob", issue, check=11)
    refused = ops.gtrun("dispatch", "alice", issue, check=14)
    assert refused.err.startswith(f"gtrun: refused: issue {issue} is live on agent bob: ")
    assert {(one["agent"], one["account"]) for one in ops.asks("ps")["runs"]} == {("alice", "alice"), ("bob", "bob")}
    ops.gtrun("preflight", "claim", issue, check=14)
    ops.gtrun("quota", "set", "alice", "--until", "2h")
    assert box.path("/home/alice/.local/state/gtrun/quota.json").stat().st_uid == box.account("alice").uid
    assert {one["agent"]: one["state"] for one in ops.asks("quota")["agents"]} == {"alice": "dark", "bob": "ready"}
    ops.gtrun("dispatch", "alice", ops.issue(), check=9)
    assert ops.asks("stop", "--agent", "bob")["failed"] is False
    assert [run["agent"] for run in ops.asks("ps")["runs"]] == ["alice"]
    ops.gtrun("stop", "--all")
    assert ops.results(issue) == ["stopped"]
    assert ops.kinds(issue) == ["started", "finished"]
    assert ops.gtrun("reconcile").out == "nothing is owed any more\n"
    assert processes(box, "ops") == []
    ran = set(re.findall(r"USER=(.*) ; COMMAND=(.*)", box.journal("-t", "sudo", "-o", "cat")))
    assert ran == {(each, f"/opt/gtrun/bin/gtrun worker {each}") for each in ("alice", "bob")}


def never_asks(box: Box) -> None:
    """Without a rule, or with one that wants a password: nobody is asked, and the rule that is said does it."""
    ops = furnish(box, DEFAULTS)
    box.write("/home/ops/ask", "#!/bin/sh\ntouch ~/was-asked\necho secret\n", owner="ops", mode=0o755)
    issue, asks = ops.issue(), {"SUDO_ASKPASS": "/home/ops/ask", "DISPLAY": ":0"}
    wanted = {
        "gtrun: alice cannot be reached: sudo: a password is required",
        f"gtrun: hint: add to sudoers: {RULE}",
    }
    for sudoers in (DEFAULTS, DEFAULTS + RULE.replace("NOPASSWD: ", "") + "\n"):
        allow(box, sudoers)
        done = ops.gtrun("dispatch", "alice", issue, check=None, env=asks)
        assert not box.path("/home/ops/was-asked").exists(), f"somebody was asked for a password: {done.err}"
        assert (done.code, set(done.err.splitlines())) == (69, wanted)
    assert Scene(box, "alice").units() == []
    assert [one["agent"] for one in ops.asks("ps")["unreachable"]] == ["alice", "bob"]
    is_left_alone(box)
    (line,) = [line for line in done.err.splitlines() if "hint" in line]
    rule = line.rpartition("sudoers: ")[2]
    allow(box, f"{DEFAULTS}{rule}\n{rule.replace('alice', 'bob')}\n")
    assert ops.gtrun("dispatch", "alice", issue).err == ""
    ops.gtrun("stop", issue)


def test_sudo_never_asks(fleet: Box) -> None:
    never_asks(fleet)


def variables_are_the_agents_own(box: Box) -> None:
    """Sudoers that keep all variables, among them those that name the caller's folders and manager."""
    ops = furnish(box, f"Defaults !env_reset\n{RULE}\n{RULE.replace('alice', 'bob')}\n")
    issue = ops.issue()
    kept = {"XDG_STATE_HOME": "/home/ops/elsewhere", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/1000/bus"}
    done = ops.gtrun("dispatch", "alice", issue, check=None, env=kept)
    assert (done.code, done.err) == (0, ""), f"exit code {done.code}: {done.err}"
    assert Scene(box, "alice").units() == [f"task-{issue}.service"]
    assert len(Scene(box, "alice").open_records()) == 1
    ops.gtrun("stop", issue)


def test_variables_are_the_agents_own(fleet: Box) -> None:
    variables_are_the_agents_own(fleet)


def test_what_else_sudoers_can_say(fleet: Box) -> None:
    """There has to be a terminal, or it is another command that is allowed: what is said to be added mends it."""
    rules = f"{RULE}\n{RULE.replace('alice', 'bob')}\n"
    ops = furnish(fleet, f"Defaults requiretty\n{rules}")
    issue = ops.issue()
    what, hint = ops.gtrun("dispatch", "alice", issue, check=69).err.splitlines()
    assert what == "gtrun: alice cannot be reached: sudo: sorry, you must have a tty to run sudo"
    assert hint == "gtrun: hint: add to sudoers: Defaults:ops !requiretty"
    allow(fleet, f"Defaults requiretty\n{hint.rpartition('sudoers: ')[2]}\n{rules}")
    assert ops.gtrun("dispatch", "alice", issue).err == ""
    ops.gtrun("stop", issue)
    allow(fleet, f"Defaults !authenticate\n{rules.replace('worker alice', 'worker nobody')}")
    what, hint = ops.gtrun("dispatch", "alice", issue, check=69).err.splitlines()
    assert "user ops is not allowed to execute '/opt/gtrun/bin/gtrun worker alice' as alice" in what
    assert hint == f"gtrun: hint: add to sudoers: {RULE}"


def test_a_manager_that_falls_silent_behind_sudo(fleet: Box) -> None:
    """Bob's, during the probe: ^C and SIGKILL end a dispatch, though nobody here may kill what sudo runs."""
    prepare(fleet, [UNDER_LOCK.edit])
    ops = furnish(fleet)
    manager = fleet.run("pgrep", "-u", "bob", "-x", "systemd").out.strip()
    for number, codes in ((signal.SIGINT, {130}), (signal.SIGKILL, {-signal.SIGKILL, 128 + signal.SIGKILL})):
        UNDER_LOCK.close(ops)
        typed = fleet.spawn("gtrun", "dispatch", "alice", ops.issue(), account="ops")
        UNDER_LOCK.wait_for(ops)
        fleet.run("kill", "-STOP", manager)
        UNDER_LOCK.open(ops)
        fleet.signal(typed, number)
        done = answer(typed)
        assert done.code in codes, f"exit code {done.code}: {done.err}"
        is_left_alone(fleet)
        fleet.run("kill", "-CONT", manager)
        for agent in ("alice", "bob"):
            is_left_alone(fleet, agent)
    assert Scene(fleet, "alice").units() == []
    assert not Scene(fleet, "alice").open_records()


def test_dispatcher_is_killed_with_its_start_on_the_way(fleet: Box) -> None:
    """Whoever passes it on to sudo keeps the lock until it is carried out; killed as well, it is not carried out."""
    prepare(fleet, [ASKS_MANAGER.edit])
    ops, alice = furnish(fleet), Scene(fleet, "alice")
    issue = ops.issue()
    ASKS_MANAGER.close(alice)
    first = fleet.spawn("gtrun", "dispatch", "alice", issue, account="ops")
    ASKS_MANAGER.wait_for(alice)
    fleet.signal(first, signal.SIGKILL)
    first.wait(timeout=20)
    second = fleet.spawn("gtrun", "dispatch", "bob", issue, account="ops")
    waits = ["pgrep", "--count", "-u", "ops", "-f", "gtrun dispatch bob"]  # itself, two workers, and who waits
    fleet.wait_for("one who waits", lambda: fleet.run(*waits, check=None).out.strip() == "4", timeout=20)
    ASKS_MANAGER.open(alice)
    assert (answer(second).code, answer(first).code) == (14, first.returncode)
    ops.gtrun("stop", issue)
    ASKS_MANAGER.close(alice)
    first = fleet.spawn("gtrun", "dispatch", "alice", issue, account="ops")
    ASKS_MANAGER.wait_for(alice)
    fleet.run("pkill", "-9", "-u", "ops", "-f", "gtrun dispatch alice")
    answer(first)
    for account in ("alice", "ops"):
        is_left_alone(fleet, account)
    ASKS_MANAGER.open(alice)
    assert alice.units() == []
    ops.gtrun("reconcile")
    assert [attempt[0] for attempt in ops.attempts(issue)] == ["started", "refused", "failed"]


MUTANTS = [
    Mutant(
        "the caller's variables count",
        [Edit("reach/worker.py", '    if "SUDO_USER" in os.environ:', "    if False:")],
        variables_are_the_agents_own,
        r"exit code 69: gtrun: XDG_RUNTIME_DIR is /run/user/1000, which belongs to user ID 1000, and this is alice",
        boot=boot,
    ),
    Mutant(
        "sudo may ask",
        [Edit("reach/transport.py", '"sudo", "--non-interactive", ', '"sudo", ')],
        never_asks,
        r"somebody was asked for a password",
        boot=boot,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
