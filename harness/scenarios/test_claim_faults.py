"""Which faults let two runs of one issue happen, and which cannot: the tables of docs/claim.md, played.

Every scenario of `FAULTS` really gets two live runs of one issue. Every one of `NO_FAULTS` does its worst, and there is
one. Root is the claim account, alice and bob are two agents, whom it becomes or, where that matters, reaches by ssh.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from _pytest.mark.structures import ParameterSet

from harness.barrier import Barrier
from harness.box import Box, Completed
from harness.conftest import MakeBox
from harness.control import Edit, Mutant, kill, prepare
from harness.scenarios.test_accounts import BOARD, FLEET
from harness.scenarios.test_start import BEFORE_START, answer
from harness.scene import PACKAGE, Scene

LOCK = "/root/.local/state/gtrun/claim.lock"
BEFORE_LOCK = Barrier("before-lock", "dispatch.py", "        with claim_lock.taken(")
AFTER_START = Barrier("after-start", "start.py", "    waited = at_agent.Job(run, reply.job, reply.path, _JOB_WAIT)")
ASKS_MANAGER = Barrier(
    "asks-manager", "reach/operations/starting.py", "    wanted = transient.properties(run, command,"
)
MANAGER_REPLIED = Barrier("manager-replied", "reach/operations/starting.py", "    return StartReply(job=job, path=")
BARRIERS = (BEFORE_LOCK, BEFORE_START, AFTER_START, ASKS_MANAGER, MANAGER_REPLIED)
IN_WORKER = (ASKS_MANAGER, MANAGER_REPLIED)  # which is alice by then

FAR = """
[rigs.far]
host = "localhost"
gtrun = "/opt/gtrun/bin/gtrun"
"""
TO_ALICE = "gtrun worker alice"

Play = Callable[[Box], None]


def boot() -> Box:
    """A box whose accounts have a group in common."""
    return Box(group="gtrun")


def set_up(box: Box, claim: str = "") -> Scene:
    """Root's fleet of alice and bob on a board of their group; `claim` is the TOML of its table."""
    box.run("install", "-d", "-m", "2770", "-g", "gtrun", BOARD)
    box.write("/etc/gtrun/fleet.toml", FLEET + claim)
    return Scene(box, "root")


def set_up_far(box: Box, *, lease: float) -> Scene:
    """As `set_up`, with both agents behind ssh, and as many seconds for a start to arrive there."""
    prepare(box, [Edit("reach/route.py", "LEASE = 15.0", f"LEASE = {lease}")])
    root = set_up(box)
    box.write("/etc/gtrun/fleet.toml", FLEET.replace('rig = "box"', 'rig = "far"') + FAR)
    for name in ("alice", "bob"):
        box.allow_ssh("root", name)
    return root


def start_to_alice(root: Scene, issue: str) -> subprocess.Popen[bytes]:
    """A dispatch whose start has come to alice's end of the connection, and has not been carried out."""
    alice = Scene(root.box, "alice")
    ASKS_MANAGER.close(alice)
    first = root.box.spawn("gtrun", "dispatch", "alice", issue)
    ASKS_MANAGER.wait_for(alice, timeout=40)
    return first


def cut_off_alice(box: Box) -> None:
    """From now on nothing that happens to a connection to alice comes through to her end."""
    box.run("pkill", "-STOP", "-f", "^sshd: alice")


def nothing_is_left(box: Box) -> None:
    """Wait until no process of a dispatch is left at either end, once alice's connections go on."""
    box.run("pkill", "-CONT", "-f", "^sshd: alice", check=None)
    box.wait_for(
        "the end of all", lambda: box.run("pgrep", "-f", "gtrun (dispatch|worker)", check=None).code == 1, timeout=20
    )


def live(root: Scene, issue: str) -> list[str]:
    """Who has a live unit of the issue, as the fleet tells it: an agent once for each."""
    told = root.asks("live", issue, check=None)
    assert told["unreachable"] == [], told
    return sorted(run["agent"] for run in told["runs"])


def assert_two(root: Scene, issue: str, agents: Sequence[str] = ("alice", "bob")) -> None:
    """The fault is real: both runs are live, each with a process of its own."""
    assert live(root, issue) == sorted(agents), f"live on {live(root, issue)}"
    root.gtrun("stop", issue)


def assert_one(root: Scene, issue: str, said: str = "") -> None:
    """Whatever happened, there is one run."""
    where = live(root, issue)
    root.gtrun("stop", issue, check=None)
    assert len(where) == 1, f"live on {where}: {said}"


def assert_said(root: Scene, issue: str, done: Completed, why: str) -> None:
    """A guard that failed open is on stderr, in the ledger and on the page."""
    assert done.code == 0, f"exit code {done.code}: {done.err}"
    assert re.search(rf"^gtrun: claim guard failed open: .*{why}", done.err, re.MULTILINE), done.err
    verdicts = [one for attempt in root.asks("show", issue)["attempts"] for one in attempt["verdicts"]]
    assert any(
        one["guard"] == "claim" and one["verdict"] == "open" and re.search(why, one["reason"]) for one in verdicts
    )
    assert re.search(rf"claim guard failed open: .*{why}", root.gtrun("show", issue).out)


def assert_silent(done: Completed) -> None:
    """Nobody could know, so nobody says anything."""
    assert (done.code, done.err) == (0, ""), f"exit code {done.code}: {done.err}"


def both_between_probe_and_start(root: Scene, issue: str, *options: Sequence[str]) -> list[Completed]:
    """One dispatch for each agent; none starts before both have looked. `options` come before each one's command."""
    box = root.box
    BEFORE_START.close(root)
    each = options or ((), ())
    first = box.spawn("gtrun", *each[0], "dispatch", "alice", issue)
    BEFORE_START.wait_for(root)
    second = box.spawn("gtrun", *each[1], "dispatch", "bob", issue)
    BEFORE_START.wait_for(root, 2, timeout=30)
    BEFORE_START.open(root)
    return [answer(first), answer(second)]


def is_at_lock(box: Box, process: subprocess.Popen[bytes], agent: str = "bob") -> None:
    """Wait until a dispatcher for the agent waits for the lock, or is over without.

    It waits in a child, so two have the file open. /proc/locks does not tell: it hides who waits for a dead holder.
    """
    box.wait_for(
        "the lock",
        lambda: process.poll() is not None or is_opened(box, f"gtrun dispatch {agent}", LOCK) > 1,
        timeout=30,
    )


def is_opened(box: Box, command: str, path: str) -> int:
    """How many of root's processes of that command line have a file open."""
    opened = f"readlink /proc/$p/fd/* 2>/dev/null | grep -qx {path} && echo"
    return int(box.run("bash", "-c", f"for p in $(pgrep -u root -f '{command}'); do {opened}; done | wc -l").out)


def manager_of(box: Box, account: str) -> int:
    """The process of an account's user manager."""
    uid = box.account(account).uid
    return int(box.run("systemctl", "show", "-P", "MainPID", f"user@{uid}.service").out)


# --- two runs


def lock_is_held_too_long(box: Box) -> None:
    """Somebody sits on the lock for longer than `wait`: whoever waited goes on without it, and says so."""
    root = set_up(box, '[claim]\nwait = "1s"\n')
    issue = root.issue()
    box.run("install", "-D", "-m", "0600", "/dev/null", LOCK)
    holder = box.spawn("flock", "--no-fork", LOCK, "sleep", "300")
    box.wait_for("a held lock", lambda: box.run("flock", "-n", LOCK, "true", check=None).code == 1)
    answers = both_between_probe_and_start(root, issue)
    box.signal(holder, signal.SIGKILL)
    holder.communicate()
    for done in answers:
        assert_said(root, issue, done, "was not to be had within 1 s")
    assert_two(root, issue)


def lock_file_is_not_usable(box: Box) -> None:
    """The lock's name is a link that somebody planted: it is not followed, so there is no lock."""
    root = set_up(box)
    issue = root.issue()
    box.run("mkdir", "-p", "-m", "0700", LOCK.rpartition("/")[0])
    box.run("ln", "-s", "/etc/passwd", LOCK)
    answers = both_between_probe_and_start(root, issue)
    for done in answers:
        assert_said(root, issue, done, "the claim lock .* is not to be had")
    assert_two(root, issue)


def lock_file_is_removed(box: Box) -> None:
    """The lock is the file, not its name: whoever comes after the removal locks another one."""
    root = set_up(box)
    issue = root.issue()
    BEFORE_START.close(root)
    first = box.spawn("gtrun", "dispatch", "alice", issue)
    BEFORE_START.wait_for(root)
    box.run("rm", LOCK)
    second = box.spawn("gtrun", "dispatch", "bob", issue)
    BEFORE_START.wait_for(root, 2)
    BEFORE_START.open(root)
    for done in (answer(first), answer(second)):
        assert_silent(done)
    assert_two(root, issue)


def agent_does_not_answer(box: Box) -> None:
    """Alice's manager is stopped under her run: what she runs cannot be known, and the fleet goes on."""
    root = set_up(box)
    issue = root.issue()
    root.gtrun("dispatch", "alice", issue)
    manager = str(manager_of(box, "alice"))
    box.run("kill", "-STOP", manager)
    done = root.gtrun("dispatch", "bob", issue, check=None)
    box.run("kill", "-CONT", manager)
    assert_said(root, issue, done, "not every agent could be asked: alice: .* did not answer within 5 s")
    assert_two(root, issue)


def agent_kills_who_asks_it(box: Box) -> None:
    """The process that asks as alice is alice's, who may kill it: her silence stops nobody else."""
    root = set_up(box)
    issue = root.issue()
    root.gtrun("dispatch", "alice", issue)
    BEFORE_LOCK.close(root)
    second = box.spawn("gtrun", "dispatch", "bob", issue)
    BEFORE_LOCK.wait_for(root)
    box.run("pkill", "-9", "-f", "gtrun dispatch", account="alice")
    BEFORE_LOCK.open(root)
    assert_said(root, issue, answer(second), "alice: the process that acts for alice went away")
    assert_two(root, issue)


def two_claim_hosts(box: Box) -> None:
    """Two locks keep nobody apart, be they on two boxes, of two accounts or, as here, of two files."""
    root = set_up(box)
    issue = root.issue()
    box.write("/etc/gtrun/other.toml", FLEET + '[claim]\nlock = "/root/other/claim.lock"\n')
    for done in both_between_probe_and_start(root, issue, (), ("--config", "/etc/gtrun/other.toml")):
        assert_silent(done)
    assert_two(root, issue)


def agent_is_not_in_the_fleet(box: Box) -> None:
    """An agent that the claim account's fleet.toml does not name is not asked."""
    root = set_up(box)
    issue = root.issue()
    box.write("/etc/gtrun/other.toml", re.sub(r"\[agents\.alice\](\n\w.*)+", "", FLEET))
    root.gtrun("dispatch", "alice", issue)
    assert_silent(root.gtrun("--config", "/etc/gtrun/other.toml", "dispatch", "bob", issue))
    assert_two(root, issue)


def hatch_is_used(box: Box) -> None:
    """DISPATCH_ALLOW_DUPLICATE=1 asks for a second run on the same agent, under a name of its own; never on another."""
    root = set_up(box)
    issue = root.issue()
    hatch = {"DISPATCH_ALLOW_DUPLICATE": "1"}
    root.gtrun("dispatch", "alice", issue)
    root.gtrun("dispatch", "bob", issue, env=hatch, check=14)
    assert_silent(root.gtrun("dispatch", "alice", issue, env=hatch))
    root.gtrun("dispatch", "bob", issue, check=14)
    assert_two(root, issue, ["alice", "alice"])


def work_is_not_in_its_unit(box: Box) -> None:
    """What runs under another name, by hand or because a run put it there, is nobody's run of the issue."""
    root = set_up(box)
    issue = root.issue()
    box.run("systemd-run", "--user", "--unit=by-hand", "sleep", "300", account="alice")
    assert_silent(root.gtrun("dispatch", "bob", issue))
    active = Scene(box, "alice").properties("by-hand.service", "ActiveState")
    assert (active, live(root, issue)) == ({"ActiveState": "active"}, ["bob"])
    box.run("systemctl", "--user", "stop", "by-hand.service", account="alice")
    root.gtrun("stop", issue)


def far_dispatch_is_wiped_out(box: Box) -> None:
    """Nobody is left who could keep the lock, and alice's box does not hear of it: the start is carried out late."""
    root, alice = set_up_far(box, lease=120), Scene(box, "alice")
    issue = root.issue()
    first = start_to_alice(root, issue)
    cut_off_alice(box)
    box.run("pkill", "-9", "-f", "gtrun dispatch alice")
    answer(first)
    assert_silent(root.gtrun("dispatch", "bob", issue))
    ASKS_MANAGER.open(alice)
    box.wait_for("alice's run", lambda: alice.units() or None, timeout=20)
    nothing_is_left(box)
    assert_two(root, issue)
    assert root.attempts(issue)[0][:2] == (None, None)
    root.gtrun("reconcile")


FAULTS: tuple[Play, ...] = (
    lock_is_held_too_long,
    lock_file_is_not_usable,
    lock_file_is_removed,
    agent_does_not_answer,
    agent_kills_who_asks_it,
    far_dispatch_is_wiped_out,
    two_claim_hosts,
    agent_is_not_in_the_fleet,
    hatch_is_used,
    work_is_not_in_its_unit,
)


# --- one run


def dispatcher_is_killed(box: Box) -> None:
    """kill -9 at any step, also when its start is on the way: until that has been carried out, nobody else may look."""
    root, alice = set_up(box), Scene(box, "alice")
    for where in BARRIERS:
        issue = root.issue(where.name)
        held = alice if where in IN_WORKER else root
        where.close(held)
        first = box.spawn("gtrun", "dispatch", "alice", issue)
        where.wait_for(held)
        box.signal(first, signal.SIGKILL)
        first.wait(timeout=20)
        if held is root:
            where.open(root)  # else the second would stop there, too
        second = box.spawn("gtrun", "dispatch", "bob", issue)
        is_at_lock(box, second)
        where.open(held)
        answer(first)  # its pipes are the orphan's, too
        done = answer(second)
        box.wait_for(
            "the orphan's end", lambda: box.run("pgrep", "-u", "alice", "-f", "dispatch", check=None).code == 1
        )
        assert "failed open" not in done.err, done.err
        assert_one(root, issue, f"killed at {where.name}; then exit code {done.code}: {done.err}")
    root.gtrun("reconcile")


def dispatcher_of_a_far_start_is_killed(box: Box) -> None:
    """kill -9 or ^C with a start on the way to an agent behind ssh: who passes it on keeps the lock till its answer."""
    root, alice = set_up_far(box, lease=120), Scene(box, "alice")
    for number, codes in ((signal.SIGKILL, {-9, 137}), (signal.SIGINT, {130})):
        issue = root.issue(number.name)
        first = start_to_alice(root, issue)
        box.signal(first, number)
        if number is signal.SIGKILL:
            first.wait(timeout=20)
            box.run("pkill", "-HUP", "-f", "gtrun dispatch alice")  # as for a terminal that is closed
            box.run("pkill", "-TERM", "-f", "gtrun dispatch alice")  # and for a service that is stopped
        second = box.spawn("gtrun", "dispatch", "bob", issue)
        is_at_lock(box, second)
        assert is_opened(box, "^ssh ", LOCK) == 0
        ASKS_MANAGER.open(alice)
        answers = answer(first), answer(second)  # the first one's pipes are also those of whoever acts for it
        assert_one(root, issue, f"{number.name}; then exit code {answers[1].code}: {answers[1].err}")
        assert answers[0].code in codes
        assert (answers[1].code, "failed open" in answers[1].err) == (14, False), answers[1].err
        nothing_is_left(box)
    root.gtrun("reconcile")


def far_connection_is_lost(box: Box, victims: Sequence[str] = ("ssh", "its parent")) -> None:
    """A start that was sent and not answered may be carried out for a while only, and for so long the lock is held.

    First ssh is killed, then whoever passes the request on; alice's end never hears of either.
    """
    root, alice = set_up_far(box, lease=5), Scene(box, "alice")
    for victim in victims:
        issue = root.issue(victim)
        first = start_to_alice(root, issue)
        cut_off_alice(box)
        (ssh,) = box.run("pgrep", "-u", "root", "-f", f"^ssh .*{TO_ALICE}").out.split()
        parent = box.run("ps", "-o", "ppid=", "-p", ssh).out.strip()
        box.run("kill", "-9", ssh if victim == "ssh" else parent)
        second = box.spawn("gtrun", "dispatch", "bob", issue)
        is_at_lock(box, second)
        answers = answer(first), answer(second)
        ASKS_MANAGER.open(alice)
        nothing_is_left(box)
        assert_one(root, issue, f"{victim} was killed; then {[done.err for done in answers]}")
        assert [(done.code, "failed open" in done.err) for done in answers] == [(69, False), (0, False)]
    root.gtrun("reconcile")


def worker_is_killed(box: Box) -> None:
    """kill -9 of the process that asks the manager, before and after it has."""
    root, alice = set_up(box), Scene(box, "alice")
    for where, codes in ((ASKS_MANAGER, (69, 0)), (MANAGER_REPLIED, (69, 14))):
        issue = root.issue(where.name)
        where.close(alice)
        first = box.spawn("gtrun", "dispatch", "alice", issue)
        (worker,) = where.wait_for(alice)
        second = box.spawn("gtrun", "dispatch", "bob", issue)
        is_at_lock(box, second) if where is ASKS_MANAGER else second.poll()
        box.run("kill", "-9", str(worker))
        where.open(alice)
        answers = answer(first), answer(second)
        assert tuple(done.code for done in answers) == codes, [done.err for done in answers]
        assert_one(root, issue)
    root.gtrun("reconcile")


def dispatcher_is_interrupted(box: Box) -> None:
    """^C while the start is on the way: 130, and the next one finds what came of it."""
    root, alice = set_up(box), Scene(box, "alice")
    issue = root.issue()
    ASKS_MANAGER.close(alice)
    first = box.spawn("gtrun", "dispatch", "alice", issue)
    ASKS_MANAGER.wait_for(alice)
    second = box.spawn("gtrun", "dispatch", "bob", issue)
    is_at_lock(box, second)
    box.signal(first, signal.SIGINT)
    interrupted, done = answer(first), answer(second)
    ASKS_MANAGER.open(alice)
    assert (interrupted.code, done.code) == (130, 0), interrupted.err + done.err
    assert_one(root, issue)
    root.gtrun("reconcile")


def lock_file_is_replaced(box: Box) -> None:
    """The file that is waited for is not the lock any more: whoever gets it waits for the one in its place."""
    root = set_up(box)
    issue = root.issue()
    BEFORE_START.close(root)
    gone = box.spawn("gtrun", "dispatch", "alice", issue)
    BEFORE_START.wait_for(root)
    waits = box.spawn("gtrun", "dispatch", "bob", issue)
    is_at_lock(box, waits)
    box.run("mv", LOCK, f"{LOCK}.old")
    comes = box.spawn("gtrun", "dispatch", "alice", issue)
    BEFORE_START.wait_for(root, 2)
    box.signal(gone, signal.SIGKILL)
    answer(gone)
    box.wait_for(
        "the other file at the waiting one",
        lambda: len(BEFORE_START.held(root)) == 3 or is_opened(box, "gtrun dispatch bob", LOCK) > 0,
        timeout=20,
    )
    BEFORE_START.open(root)
    answers = answer(comes), answer(waits)
    assert_one(root, issue, str([done.code for done in answers]))
    assert [(done.code, "failed open" in done.err) for done in answers] == [(0, False), (14, False)]
    root.gtrun("reconcile")


def manager_reloads_and_reexecutes(box: Box) -> None:
    """A manager that reads its units anew, or is replaced by a new one of itself, knows its runs before and after."""
    root = set_up(box)
    issue = root.issue()
    root.gtrun("dispatch", "alice", issue)
    busy = "for _ in 1 2 3 4 5 6 7 8; do systemctl --user daemon-reexec; systemctl --user daemon-reload; done"
    restless = box.spawn("sh", "-c", busy, account="alice")
    asked = 0
    while restless.poll() is None or asked == 0:
        done = root.gtrun("dispatch", "bob", issue, check=None)
        assert (done.code, "failed open" in done.err) == (14, False), f"exit code {done.code}: {done.err}"
        asked += 1
    restless.communicate()
    assert_one(root, issue)


def manager_is_killed(box: Box) -> None:
    """A manager that is killed takes its runs along: there is nothing left that a second one could meet."""
    root, alice = set_up(box), Scene(box, "alice")
    issue = root.issue()
    root.gtrun("dispatch", "alice", issue)
    alice.appears("/home/alice/ready", timeout=15)
    box.run("kill", "-9", str(manager_of(box, "alice")))
    box.wait_for("the end of alice's processes", lambda: box.run("pgrep", "-u", "alice", check=None).code == 1)
    box.run("systemctl", "restart", f"user@{box.account('alice').uid}.service")
    done = root.gtrun("dispatch", "bob", issue)
    assert "failed open" not in done.err, done.err
    assert_one(root, issue)
    root.gtrun("reconcile")
    assert root.results(issue) == ["lost", "stopped"]


def run_is_killed_and_closes_out_slowly(box: Box) -> None:
    """The run is over and its close-out is not: the issue is still taken, and free at once afterwards."""
    root, alice = set_up(box), Scene(box, "alice")
    issue = root.issue()
    hold = "[Service]\nExecStopPost=/bin/sh -c 'until [ -e ~/go ]; do sleep 0.05; done'\n"
    box.write("/home/alice/.config/systemd/user/task-.service.d/hold.conf", hold, owner="alice")
    root.gtrun("dispatch", "alice", issue)
    alice.appears("/home/alice/ready", timeout=15)
    unit = f"task-{issue}.service"
    box.run("systemctl", "--user", "kill", "--kill-whom=main", "-s", "KILL", unit, account="alice")
    box.wait_for("the close-out", lambda: alice.properties(unit, "SubState")["SubState"] == "stop-post")
    root.gtrun("dispatch", "bob", issue, check=14)
    root.gtrun("dispatch", "alice", issue, check=11)
    alice.sh("touch ~/go")
    alice.idle()
    root.gtrun("dispatch", "bob", issue)
    assert_one(root, issue)
    assert root.results(issue) == ["killed", "stopped"]


def unit_by_hand_has_the_name(box: Box) -> None:
    """The name is the claim, whoever gave it."""
    root = set_up(box)
    issue = root.issue()
    box.run("systemd-run", "--user", f"--unit=task-{issue}", "sleep", "300", account="alice")
    root.gtrun("dispatch", "bob", issue, check=14)
    root.gtrun("dispatch", "alice", issue, check=11)
    assert live(root, issue) == ["alice"]
    box.run("systemctl", "--user", "stop", f"task-{issue}.service", account="alice")


def clock_jumps(box: Box) -> None:
    """Neither the lock nor the probe knows what time it is: one that jumps during the wait, ahead or back, is nothing.

    By a day, longer than anybody would wait. What is dispatched then is seen to be of another day.
    """
    root = set_up(box)
    issue = root.issue()
    (package,) = box.path("/").glob(PACKAGE.lstrip("/"))
    jump = box.path("/run/jump")
    shift = (
        "import os, time; time.time = lambda now=time.time, off=float(os.environ.get('JUMPS_BY', 0)): "
        "now() + off * os.path.exists('/run/jump')"
    )
    (package.parent / "clock.pth").write_text(shift + "\n")
    for by in ("-86400", "86400"):
        BEFORE_START.close(root)
        first = box.spawn("gtrun", "dispatch", "alice", issue)
        BEFORE_START.wait_for(root)
        second = box.spawn("gtrun", "dispatch", "bob", issue, env={"JUMPS_BY": by})
        is_at_lock(box, second)
        jump.touch()
        BEFORE_START.open(root)
        assert answer(first).code == 0
        done = answer(second)
        assert done.code == 14, f"exit code {done.code}: {done.err}"
        root.gtrun("dispatch", "bob", issue, env={"JUMPS_BY": by}, check=14)
        days = [attempt["at"][:10] for attempt in root.asks("show", issue)["attempts"]]
        assert days[-1] != days[-2], f"the clock did not jump: {days}"
        jump.unlink()
        assert_one(root, issue)


def twenty_at_once(box: Box) -> None:
    """Twenty dispatchers, ten for each agent, all past the guards that have a window: one starts, no guard opens."""
    root = set_up(box)
    issue = root.issue()
    BEFORE_LOCK.close(root)
    typed = [box.spawn("gtrun", "dispatch", agent, issue) for agent in ("alice", "bob") * 10]
    BEFORE_LOCK.wait_for(root, 20, timeout=90)
    BEFORE_LOCK.open(root)
    answers = [answer(process) for process in typed]
    codes = Counter(done.code for done in answers)
    assert codes == {0: 1, 11: 9, 14: 10}, f"exit codes {dict(codes)}: {[done.err for done in answers]}"
    assert not [done.err for done in answers if "failed open" in done.err]
    assert_one(root, issue)


NO_FAULTS: tuple[Play, ...] = (
    dispatcher_is_killed,
    dispatcher_of_a_far_start_is_killed,
    far_connection_is_lost,
    worker_is_killed,
    dispatcher_is_interrupted,
    lock_file_is_replaced,
    manager_reloads_and_reexecutes,
    manager_is_killed,
    run_is_killed_and_closes_out_slowly,
    unit_by_hand_has_the_name,
    clock_jumps,
    twenty_at_once,
)


OPENS = {lock_is_held_too_long, lock_file_is_not_usable, agent_does_not_answer, agent_kills_who_asks_it}
"""Faults that a guard sees, and cannot see through."""


def played(play: Play) -> ParameterSet:
    return pytest.param(play, id=play.__name__, marks=[pytest.mark.expects_fail_open] if play in OPENS else [])


@pytest.mark.parametrize("play", [played(play) for play in (*FAULTS, *NO_FAULTS)])
def test_claim(play: Play, make_box: MakeBox) -> None:
    box = make_box(group="gtrun")
    prepare(box, [barrier.edit for barrier in BARRIERS])
    play(box)


SETUP = [barrier.edit for barrier in BARRIERS]
MUTANTS = [
    Mutant(
        "the lock is the dispatcher's alone",
        [Edit("dispatch.py", "asked, run.unit, lock)", "asked, run.unit, None)")],
        dispatcher_is_killed,
        r"live on \['alice', 'bob'\]: killed at asks-manager; then exit code 0",
        setup=SETUP,
        boot=boot,
    ),
    Mutant(
        "the lock let go before a far end has answered",
        [
            Edit(
                "reach/far.py",
                "            reply = _answer(link, request, is_leased=bool(lent))",
                "            for descriptor in lent:\n"
                "                os.close(descriptor)\n"
                "            is_lent, lent = bool(lent), []\n"
                "            reply = _answer(link, request, is_leased=is_lent)",
            )
        ],
        dispatcher_of_a_far_start_is_killed,
        r"live on \['alice', 'bob'\]: SIGKILL; then exit code 0",
        setup=SETUP,
        boot=boot,
    ),
    Mutant(
        "a start that may be carried out at any time",
        [Edit("reach/worker.py", "limit = answered_at + asked.lease - _now()", "limit = asked.seconds + _LATE")],
        partial(far_connection_is_lost, victims=["ssh"]),
        r"live on \['alice', 'bob'\]: ssh was killed",
        setup=SETUP,
        boot=boot,
    ),
    Mutant(
        "the lock is whatever was locked",
        [Edit("state/claim.py", "if os.path.samestat(os.fstat(descriptor), path.lstat()):", "if True:")],
        lock_file_is_replaced,
        r"live on \['alice', 'bob'\]: \[0, 0\]",
        setup=SETUP,
        boot=boot,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
