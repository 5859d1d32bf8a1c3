"""The fleet claim: one live run of an issue on all agents together; nothing that is wrong with the lock stops it."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter

import pytest

from harness.barrier import Barrier
from harness.box import Box
from harness.conftest import MakeBox
from harness.control import Edit, Mutant, kill, prepare
from harness.fleet import FleetBox, open_lines, opened, root_of
from harness.scenarios.test_start import LIVE, WAITS, answer
from harness.scene import Scene

LOCK = "/root/.local/state/gtrun/claim.lock"
BEFORE_LOCK = Barrier("before-lock", "dispatch.py", "        with claim_lock.taken(")
BEFORE_START = Barrier("before-start", "start.py", "    override = fleet.rigs[agent.rig].gtrun")
# where a dispatcher is killed while it holds the lock, and whether its run goes on
STEPS = [
    (Barrier("before-probe", "dispatch.py", "            asked.problem = claim.problem"), False),
    (
        Barrier(
            "before-verdict",
            "dispatch.py",
            "            said, refusal = ask(under_lock(asked.question), asked.question, told.append)",
        ),
        False,
    ),
    (BEFORE_START, False),
    (Barrier("in-worker-before-start", "reach/operations/starting.py", "    wanted = transient.properties("), True),
    (Barrier("in-worker-after-start", "reach/operations/starting.py", "    return StartReply(job=job, path="), True),
]


@pytest.fixture
def fleet(make_box: MakeBox) -> Box:
    """A box with agents alice and bob, for root."""
    return make_box(group="gtrun")


def spawn(box: Box, agent: str, issue: str) -> subprocess.Popen[bytes]:
    """Root types a dispatch."""
    return box.spawn("gtrun", "dispatch", agent, issue)


def is_free(box: Box) -> bool:
    """Whether nobody holds the claim lock."""
    return box.run("flock", "--nonblock", LOCK, "true", check=None).code == 0


def waiters(box: Box) -> int:
    """How many wait for a lock in the box (proc(5), locks)."""
    return box.run("cat", "/proc/locks").out.count("-> FLOCK")


def holders(box: Box) -> dict[int, str]:
    """Every process of the box that has the lock's file open, and its command."""
    found = {}
    for link in box.run("sh", "-c", f"find /proc/[0-9]*/fd -lname {LOCK} 2>/dev/null; true").out.split():
        pid = int(link.split("/")[2])
        found[pid] = box.run("sh", "-c", f"tr '\\0' ' ' < /proc/{pid}/cmdline").out
    return found


def comments(root: Scene, issue: str) -> list[str]:
    """Every comment on an issue."""
    return [comment["body"] for comment in root.asks("board", "show", issue)["comments"]]


def another_agent_is_refused(box: Box) -> None:
    """An issue that is live on one agent is refused to another: 14, said and counted, and nothing on the issue."""
    root, bob = root_of(box), Scene(box, "bob")
    issue = root.issue()
    root.gtrun("dispatch", "alice", issue)
    box.wait_for("the started marker", lambda: root.kinds(issue) == ["started"], timeout=20)
    before = comments(root, issue)
    done = root.gtrun("dispatch", "bob", issue, check=None)
    assert done.code == 14, f"exit code {done.code}: {done.err}"
    assert comments(root, issue) == before, f"comments are {comments(root, issue)}"
    there = f"issue {issue} is live on agent alice: task-{issue}.service (active/running)"
    assert done.err.splitlines() == [
        f"gtrun: refused: {there}", f"gtrun: hint: look at it with: gtrun live {issue}"
    ]  # fmt: skip
    assert root.gtrun("dispatch", "--dry-run", "bob", issue, check=14).err == done.err
    assert root.gtrun("preflight", "claim", issue, check=14).out == f"refused: {there}\n"
    assert bob.units() == []
    assert not bob.open_records()
    last = root.asks("show", issue)["attempts"][-1]
    assert (last["agent"], last["outcome"], last["code"], last["reason"]) == ("bob", "refused", 14, there)
    assert last["verdicts"] == [{"guard": "claim", "verdict": "refuse", "reason": there}]
    journal = box.journal("-o", "cat", "GTRUN_GUARD=claim", "GTRUN_VERDICT=refuse", f"GTRUN_ISSUE={issue}")
    assert journal == f"claim guard refused: {there}\n"
    assert opened(box) == []
    root.gtrun("stop", issue)


def claims_meet(box: Box) -> None:
    """Two dispatchers of one issue to two agents, as close as they can come: one is in there, the other waits."""
    root = root_of(box)
    issue = root.issue()
    BEFORE_START.close(root)
    typed = [spawn(box, agent, issue) for agent in ("alice", "bob")]
    BEFORE_START.wait_for(root)
    box.wait_for(
        "the other one, in there or waiting", lambda: len(BEFORE_START.held(root)) + waiters(box) >= 2, timeout=20
    )
    BEFORE_START.open(root)
    answers = [answer(process) for process in typed]
    codes = Counter(done.code for done in answers)
    assert codes == {0: 1, 14: 1}, f"exit codes {dict(codes)}: {[done.err for done in answers]}"
    assert opened(box) == []
    waited, held = zip(
        *((one["lock_waited"], one["lock_held"]) for one in root.asks("show", issue)["attempts"]), strict=True
    )
    assert max(waited) > 0.005, f"the lock was waited for {waited} s"
    assert min(held) > 0, f"the lock was held for {held} s"
    root.gtrun("stop", issue)


def nobody_inherits_the_lock(box: Box) -> None:
    """Under the lock only the dispatcher has it open; when it exits the lock is free, though its run lives."""
    root = root_of(box, "(sleep 60 & exec sleep 60); wait")
    issue = root.issue()
    BEFORE_START.close(root)
    process = spawn(box, "alice", issue)
    (dispatcher,) = BEFORE_START.wait_for(root)
    was_free, have = is_free(box), holders(box)
    BEFORE_START.open(root)
    assert answer(process).code == 0
    assert not was_free
    assert list(have) == [dispatcher], f"the lock is open in {have}"
    assert is_free(box)
    assert holders(box) == {}
    assert Scene(box, "alice").units() == [f"task-{issue}.service"]
    root.gtrun("stop", issue)


def closing_run_is_live(box: Box) -> None:
    """A run in its close-out (deactivating, without a job) still has the issue."""
    root = root_of(box, "exit 0")
    issue = root.issue()
    box.write(
        "/home/alice/.config/systemd/user/task-.service.d/hold.conf",
        f"[Service]\nExecStopPost=/bin/sh -c '{WAITS}'\n",
        owner="alice",
    )
    alice = Scene(box, "alice")
    root.gtrun("dispatch", "alice", issue)

    def is_held() -> bool:
        shown = alice.properties(f"task-{issue}.service", "ActiveState", "Job")
        return shown["ActiveState"] == "deactivating" and not shown.get("Job")

    box.wait_for("a close-out that is held", is_held, timeout=20)
    done = root.gtrun("dispatch", "bob", issue, check=None)
    asked = root.gtrun("preflight", "claim", issue, check=None)
    alice.sh("touch ~/go")
    assert done.code == 14, f"exit code {done.code}: {done.err}"
    assert f"live on agent alice: task-{issue}.service (deactivating/" in done.err
    assert asked.code == 14
    alice.idle()
    assert root.gtrun("dispatch", "bob", issue).code == 0
    Scene(box, "bob").idle()


def queued_run_is_live(box: Box) -> None:
    """A run whose start job waits (inactive, with a job) has the issue."""
    root, alice = root_of(box), Scene(box, "alice")
    issue = root.issue()
    units = "/home/alice/.config/systemd/user"
    box.write(f"{units}/hold.service", f"[Service]\nType=oneshot\nExecStart=/bin/sh -c '{WAITS}'\n", owner="alice")
    box.write(f"{units}/task-.service.d/hold.conf", "[Unit]\nAfter=hold.service\n", owner="alice")
    alice.sh("systemctl --user daemon-reload; systemctl --user start --no-block hold.service")
    first = spawn(box, "alice", issue)
    box.wait_for("a queued unit", lambda: bool(alice.units()), timeout=20)
    assert alice.properties(f"task-{issue}.service", "ActiveState") == {"ActiveState": "inactive"}
    done = root.gtrun("dispatch", "bob", issue, check=None)
    alice.sh("touch ~/go")
    assert answer(first).code == 0
    assert done.code == 14, f"exit code {done.code}: {done.err}"
    root.gtrun("stop", issue)


def every_guard_fails_open(box: Box) -> None:
    """Board, quota and claim cannot tell: the run is started, and each is named on stderr, in show, in the journal."""
    root = root_of(box, claim='lock = "/proc/claim.lock"')
    issue = root.issue()
    box.run("mv", "/srv/gtrun/board", "/srv/gtrun/away")
    box.write("/home/alice/.local/state/gtrun/quota.json", "{", owner="alice", mode=0o600)
    done = root.gtrun("dispatch", "alice", issue, check=None)
    box.run("mv", "/srv/gtrun/away", "/srv/gtrun/board")
    assert done.code == 0, f"exit code {done.code}: {done.err}"
    said = open_lines(done)
    assert [line.split()[1] for line in said] == ["board", "quota", "claim"], said
    assert all(line.startswith("gtrun: ") for line in said)
    assert opened(box) == [line.removeprefix("gtrun: ") for line in said]
    (attempt,) = root.asks("show", issue)["attempts"]
    assert attempt["outcome"] == "started"
    assert [f"gtrun: {one['guard']} guard failed open: {one['reason']}" for one in attempt["verdicts"]] == said
    page = root.gtrun("show", issue).out
    for line in said:
        assert line.removeprefix("gtrun: ") in page
    root.gtrun("stop", issue)
    root.gtrun("reconcile")


def test_another_agent_is_refused(fleet: Box) -> None:
    another_agent_is_refused(fleet)


def test_claims_meet(fleet: Box) -> None:
    prepare(fleet, [BEFORE_START.edit])
    claims_meet(fleet)


def test_twenty_of_one_issue(fleet: Box) -> None:
    """Twenty dispatchers let loose at once, half of them to each agent: one run, and no guard opens."""
    prepare(fleet, [BEFORE_LOCK.edit])
    root = root_of(fleet)
    issue = root.issue()
    BEFORE_LOCK.close(root)
    typed = [spawn(fleet, agent, issue) for agent in ["alice", "bob"] * 10]
    BEFORE_LOCK.wait_for(root, 20, timeout=60)
    BEFORE_LOCK.open(root)
    answers = [answer(process) for process in typed]
    codes = Counter(done.code for done in answers)
    assert codes == {0: 1, 11: 9, 14: 10}, f"exit codes {dict(codes)}: {[done.err for done in answers]}"
    assert opened(fleet) == []
    attempts = root.asks("show", issue)["attempts"]
    assert Counter(one["outcome"] for one in attempts) == {"started": 1, "refused": 19}
    assert all(one["lock_held"] > 0 for one in attempts)
    root.gtrun("stop", issue)
    assert root.kinds(issue) == ["started", "finished"]


def test_twenty_of_twenty_issues(fleet: Box) -> None:
    """They only wait for each other."""
    root = root_of(fleet)
    issues = [root.issue(f"Issue {number}") for number in range(20)]
    typed = [spawn(fleet, ("alice", "bob")[n % 2], issue) for n, issue in enumerate(issues)]
    answers = [answer(process) for process in typed]
    assert {done.code for done in answers} == {0}, [done.err for done in answers]
    assert opened(fleet) == []
    live = Counter((run["agent"], run["issue"]) for run in root.asks("ps")["runs"])
    assert live == {(("alice", "bob")[n % 2], issue): 1 for n, issue in enumerate(issues)}
    root.gtrun("stop", "--all")


def test_nobody_inherits_the_lock(fleet: Box) -> None:
    prepare(fleet, [BEFORE_START.edit])
    nobody_inherits_the_lock(fleet)


def test_holder_is_killed_at_every_step(fleet: Box) -> None:
    """The lock is soon free, and the next dispatcher sees the truth: 14 where the run goes on, else it starts."""
    prepare(fleet, [where.edit for where, _ in STEPS])
    root = root_of(fleet)
    for where, goes_on in STEPS:
        issue = root.issue(where.name)
        scene = Scene(fleet, "alice") if where.name.startswith("in-worker") else root
        where.close(scene)
        process = spawn(fleet, "alice", issue)
        where.wait_for(scene)
        assert not is_free(fleet), where.name
        fleet.signal(process, signal.SIGKILL)
        process.wait(timeout=20)
        if (
            scene is not root
        ):  # the worker has been asked for the start: until it has asked the manager, nobody may look
            assert not is_free(fleet), where.name
            where.open(scene)
        fleet.wait_for(f"{where.name}: a free lock", lambda: is_free(fleet))
        where.open(scene)
        assert answer(process).code in {-signal.SIGKILL, 128 + signal.SIGKILL}
        if goes_on:
            Scene(fleet, "alice").appears(f"/run/user/1000/systemd/transient/task-{issue}.service")
        done = root.gtrun("dispatch", "bob", issue, check=None)
        assert done.code == (14 if goes_on else 0), f"{where.name}: exit code {done.code}: {done.err}"
        assert open_lines(done) == [], where.name
        root.gtrun("reconcile")
        first, second = root.attempts(issue)
        assert first[0] == ("started" if goes_on else "failed"), where.name
        assert second[0] == ("refused" if goes_on else "started"), where.name
        root.gtrun("stop", issue)
        assert root.kinds(issue) == ["started", "finished"], where.name


@pytest.mark.expects_fail_open
def test_stopped_holder(fleet: Box) -> None:
    """A holder that is stopped stops nobody else: they wait, then go on without the lock, and say so."""
    prepare(fleet, [BEFORE_START.edit])
    root = root_of(fleet, claim='wait = "1s"')
    held, other = root.issue("held"), root.issue("other")
    BEFORE_START.close(root)
    process = spawn(fleet, "alice", held)
    (holder,) = BEFORE_START.wait_for(root)
    fleet.run("kill", "-STOP", str(holder))
    BEFORE_START.open(root)
    done = root.gtrun("dispatch", "bob", other)
    why = f"the claim lock {LOCK} was not to be had within 1 s"
    assert open_lines(done) == [f"gtrun: claim guard failed open: {why}"]
    assert opened(fleet) == [f"claim guard failed open: {why}"]
    (attempt,) = root.asks("show", other)["attempts"]
    assert attempt["verdicts"] == [{"guard": "claim", "verdict": "open", "reason": why}]
    assert 1 <= attempt["lock_waited"] < 20
    assert attempt["lock_held"] == 0
    page = root.gtrun("show", other).out
    assert f"claim guard failed open: {why}; waited 1" in page, page
    root.gtrun("dispatch", "alice", other, check=11 if attempt["agent"] == "alice" else 14)  # what is known refuses
    fleet.run("kill", "-CONT", str(holder))
    process.send_signal(signal.SIGCONT)  # the nsenter before it stops with it
    assert answer(process).code == 0
    assert root.gtrun("dispatch", "bob", held, check=14).err.count("\n") == 2
    root.gtrun("stop", "--all")


def test_interrupt_while_the_lock_is_waited_for(fleet: Box) -> None:
    """Nothing was asked of a manager yet, so nothing was started, and nothing is left."""
    prepare(fleet, [BEFORE_START.edit])
    root, bob = root_of(fleet), Scene(fleet, "bob")
    first, second = root.issue(), root.issue()
    BEFORE_START.close(root)
    holder = spawn(fleet, "alice", first)
    BEFORE_START.wait_for(root)
    waiter = spawn(fleet, "bob", second)
    fleet.wait_for("somebody who waits", lambda: waiters(fleet) == 1, timeout=20)
    fleet.signal(waiter, signal.SIGINT)
    done = answer(waiter)
    assert (done.code, done.err) == (130, "gtrun: interrupted: nothing was started\n")
    fleet.wait_for("nobody who waits", lambda: waiters(fleet) == 0)
    fleet.wait_for("no record", lambda: not bob.open_records())
    assert bob.units() == []
    assert root.attempts(second) == [("failed", 130, "interrupted: nothing was started")]
    BEFORE_START.open(root)
    assert answer(holder).code == 0
    root.gtrun("stop", first)


def test_waiter_is_killed(fleet: Box) -> None:
    """It leaves no worker that waits with it, and takes nothing with it."""
    prepare(fleet, [BEFORE_START.edit])
    root, bob = root_of(fleet), Scene(fleet, "bob")
    first, second = root.issue(), root.issue()
    BEFORE_START.close(root)
    holder = spawn(fleet, "alice", first)
    BEFORE_START.wait_for(root)
    waiter = spawn(fleet, "bob", second)
    fleet.wait_for("somebody who waits", lambda: waiters(fleet) == 1, timeout=20)
    fleet.signal(waiter, signal.SIGKILL)
    answer(waiter)
    fleet.wait_for("no record, while the lock is still held", lambda: not bob.open_records())
    BEFORE_START.open(root)
    assert answer(holder).code == 0
    fleet.wait_for("nobody who waits", lambda: waiters(fleet) == 0)
    assert root.gtrun("dispatch", "bob", second).err == ""
    root.gtrun("stop", "--all")


def test_duplicate_on_another_agent_counts(fleet: Box) -> None:
    root = root_of(fleet)
    issue = root.issue()
    again = {"DISPATCH_ALLOW_DUPLICATE": "1"}
    for _ in range(2):
        root.gtrun("dispatch", "alice", issue, env=again)
    Scene(fleet, "alice").sh(f"systemctl --user stop task-{issue}.service")
    for environment in ({}, again):  # the hatch is for the agent's own units
        done = root.gtrun("dispatch", "bob", issue, check=14, env=environment)
        assert f"agent alice: task-{issue}-dup1.service (active/" in done.err
    assert root.gtrun("preflight", "claim", issue, check=14).out
    root.gtrun("stop", issue)


def test_closing_run_is_live(fleet: Box) -> None:
    closing_run_is_live(fleet)


def test_queued_run_is_live(fleet: Box) -> None:
    queued_run_is_live(fleet)


@pytest.mark.expects_fail_open
def test_every_guard_fails_open(fleet: Box) -> None:
    every_guard_fails_open(fleet)


@pytest.mark.expects_fail_open
def test_lock_that_is_not_to_be_had(fleet: Box) -> None:
    """Whatever lies in the lock's place, and whatever its disk is like: one line, and the run is started."""
    fleet.run("sh", "-euc", "mkdir -m 0700 /lock /full /lock/folder; mkfifo -m 0600 /lock/fifo; touch /lock/shared")
    fleet.run("sh", "-euc", "ln -s /lock/victim /lock/link; mkdir -m 0700 /read-only")
    fleet.run("mount", "-t", "tmpfs", "-o", "mode=0700,nr_inodes=1", "box", "/full")
    fleet.remount_read_only("/read-only")
    fleet.run("sh", "-euc", "mkdir /alices && chown alice /alices")
    why = {
        "/lock/link": "Too many levels of symbolic links: /lock/link",
        "/lock/fifo": "it is prw------- of owner 0, not this account's private file",
        "/lock/folder": "Is a directory: /lock/folder",
        "/lock/shared": "it is -rw-r--r-- of owner 0, not this account's private file",
        "/full/claim.lock": "No space left on device: /full/claim.lock",
        "/read-only/claim.lock": "Read-only file system: /read-only/claim.lock",
        "/read-only/deeper/claim.lock": "cannot make the folder /read-only/deeper: Read-only file system",
        "/alices/claim.lock": "/alices is not a folder of this account",
    }
    for path, reason in why.items():
        root = root_of(fleet, "exit 0", claim=f'lock = "{path}"')
        issue = root.issue(path)
        done = root.gtrun("dispatch", "alice", issue)
        assert (
            done.err.splitlines()[0]
            == f"gtrun: claim guard failed open: the claim lock {path} is not to be had: {reason}"
        )
        assert len(open_lines(done)) == 1
    assert not fleet.path("/lock/victim").exists()
    assert len(opened(fleet)) == len(why)
    Scene(fleet, "alice").idle()
    fleet.remount_writable("/read-only")
    fleet.run("umount", "/full")


def test_agent_without_a_manager(make_box: MakeBox) -> None:
    """Nothing can be live where no manager runs: that is an answer, and another agent's run is refused all the same."""
    box = make_box(group="gtrun", accounts=["alice", "bob", "carol"])
    root = root_of(box, agents=["carol", "alice", "bob"])
    box.run("systemctl", "stop", "user@1002.service")
    free, taken = root.issue(), root.issue()
    assert open_lines(root.gtrun("dispatch", "alice", free)) == []
    root.gtrun("dispatch", "bob", taken)
    assert root.gtrun("dispatch", "alice", taken, check=14).err.startswith("gtrun: refused: ")
    assert root.gtrun("preflight", "claim", taken, check=14).err == ""
    assert root.gtrun("preflight", "claim", root.issue()).err == ""
    assert root.gtrun("dispatch", "carol", root.issue(), check=69).err.startswith("gtrun: no user manager of carol")
    for issue in (free, taken):
        assert "carol could not be asked" in root.gtrun("stop", issue, check=1).err


@pytest.mark.expects_fail_open
def test_agent_without_a_bus(make_box: MakeBox) -> None:
    """A manager that runs and has lost its bus may have a run: it cannot be asked, which is said and stops nobody."""
    box = make_box(group="gtrun", accounts=["alice", "bob"])
    root = root_of(box, agents=["alice", "bob"])
    box.run("systemctl", "--user", "stop", "dbus.socket", "dbus.service", account="bob")
    (line,) = open_lines(root.gtrun("dispatch", "alice", root.issue()))
    told = "gtrun: claim guard failed open: not every agent could be asked: bob: no user manager of bob to talk to"
    assert line.startswith(told), line
    assert root.gtrun("preflight", "claim", root.issue()).err.startswith(told)
    Scene(box, "alice").sh("systemctl --user stop 'task-*'")


UNDER_LOCK = "            may_have_started = True\n            return run, start(fleet, agent, asked, run.unit, lock)\n"
REFUSES = '        there = f"{live[0].name} ({live[0].active}/{live[0].sub})"\n'
MUTANTS = [
    Mutant(
        "lock dropped",
        [
            Edit(
                "state/claim.py",
                "    if lock_at_once(descriptor):\n        return True",
                "    if True:\n        return True",
            )
        ],
        claims_meet,
        r"exit codes \{0: 2\}",
        setup=[BEFORE_START.edit],
        boot=FleetBox,
    ),
    Mutant(
        "lock released before the start",
        [Edit("dispatch.py", UNDER_LOCK, UNDER_LOCK.replace("            ", "        ").replace("lock)", "None)"))],
        claims_meet,
        r"exit codes \{0: 2\}",
        setup=[BEFORE_START.edit],
        boot=FleetBox,
    ),
    Mutant(
        "probe that ignores one agent",
        [
            Edit(
                "survey.py",
                "            if other == agent.name:",
                '            if other in {agent.name, "alice"}:',
            )
        ],
        another_agent_is_refused,
        r"exit code 0: ",
        boot=FleetBox,
    ),
    Mutant(
        "live that ignores deactivating units",
        [Edit("systemd/units.py", LIVE, LIVE.replace('"failed"}', '"failed", "deactivating"}'))],
        closing_run_is_live,
        r"exit code 0: ",
        boot=FleetBox,
    ),
    Mutant(
        "live that ignores queued units",
        [Edit("systemd/units.py", LIVE, LIVE.replace("unit.job != 0 or ", ""))],
        queued_run_is_live,
        r"exit code 0: ",
        boot=FleetBox,
    ),
    Mutant(
        "guard that fails closed",
        [
            Edit(
                "asked.py",
                '                verdicts.append((name, "open", told.reason))\n',
                "                return verdicts, Refuse(told.reason, __import__('gtrun.exits').exits.Exit.CLAIMED)\n",
            )
        ],
        every_guard_fails_open,
        r"exit code 14: gtrun: refused: ",
        boot=FleetBox,
    ),
    Mutant(
        "guard that comments",
        [
            Edit(
                "guards/claim.py",
                REFUSES,
                f'{REFUSES}        __import__("os").system("gtrun board comment 1 --body refused")\n',
            )
        ],
        another_agent_is_refused,
        r"comments are \[.*'refused'\]",
        boot=FleetBox,
    ),
    # without O_CLOEXEC alone it is equivalent: Python makes every descriptor so, and a dispatcher executes nothing
    Mutant(
        "worker forked under the lock",
        [
            Edit(
                "dispatch.py",
                "            asked.problem = claim.problem\n",
                "            asked.problem = claim.problem\n            late = Worker.start()\n",
            )
        ],
        nobody_inherits_the_lock,
        r"the lock is open in \{\d+: .*, \d+: ",
        setup=[BEFORE_START.edit],
        boot=FleetBox,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
