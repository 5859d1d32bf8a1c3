"""A fleet on two machines: ops claims on box1, alice works there, bob works on box2, and both have one fleet.toml.

The board is a file of box1's, which box2 does not have: what bob's runs have to say waits for a reconcile on box1.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections import Counter

import pytest

from harness.barrier import Barrier
from harness.box import Box
from harness.control import Edit, Mutant, kill, prepare
from harness.pair import Pair, booted
from harness.scenarios.test_far import is_left_alone, processes
from harness.scenarios.test_start import BEFORE_START, answer
from harness.scene import Scene

BOARD = "/srv/gtrun/board"
NO_BOARD = f"there is no board {BOARD}/board.db"
UNDER_LOCK = Barrier("under-lock", "dispatch.py", "            asked.problem = claim.problem")


def fleet_of(claim: str) -> str:
    """The configuration, wherever it lies; `claim` is the TOML of [claim]."""
    return (
        f'[claim]\n{claim}\nwait = "60s"\n[board]\npath = "{BOARD}/board.db"\n[run]\ncommand = ["sleep", "300"]\n'
        '[rigs.box1]\nhost = "box1"\ngtrun = "/opt/gtrun/bin/gtrun"\n[agents.alice]\nrig = "box1"\naccount = "alice"\n'
        '[rigs.box2]\nhost = "box2"\ngtrun = "/opt/gtrun/bin/gtrun"\n[agents.bob]\nrig = "box2"\naccount = "bob"\n'
    )


def claims_at(box: Box) -> str:
    """[claim] for ops of that box, known by its machine ID."""
    return f'host = "ops@{box.hostname}"\nmachine_id = "{box.path("/etc/machine-id").read_text().strip()}"'


def furnish(pair: Pair) -> tuple[Scene, Scene]:
    """Ops on either box, who could reach every agent, and the other ops; claims are made on box1."""
    pair.box1.run("install", "-d", "-m", "2770", "-g", "gtrun", BOARD)
    one, two = Scene(pair.box1, "ops"), Scene(pair.box2, "ops")
    for ops in (one, two):
        ops.configure(fleet_of(claims_at(pair.box1)))
        ops.box.allow_ssh("ops", "alice", at=pair.box1)
        ops.box.allow_ssh("ops", "bob", at=pair.box2)
    one.box.allow_ssh("ops", "ops", at=pair.box2)
    two.box.allow_ssh("ops", "ops", at=pair.box1)
    return one, two


def spawn(ops: Scene, *argv: str) -> subprocess.Popen[bytes]:
    """Type a command of gtrun's."""
    return ops.box.spawn("gtrun", *argv, account="ops")


def comments(ops: Scene, issue: str) -> list[str]:
    """Who has commented on an issue."""
    return [comment["author"] for comment in ops.asks("board", "show", issue)["comments"]]


def test_one_claim_for_both(pair: Pair) -> None:
    """What is live on one box is refused on the other, from either of them, and nothing of that is on the issue."""
    one, two = furnish(pair)
    bobs, alices = one.issue(), one.issue()
    assert one.gtrun("dispatch", "bob", bobs).err == ""
    assert two.gtrun("dispatch", "alice", alices).err == ""
    assert Scene(pair.box2, "bob").units() == [f"task-{bobs}.service"]
    assert Scene(pair.box1, "alice").units() == [f"task-{alices}.service"]
    pair.box1.wait_for("alice's started marker", lambda: comments(one, alices) == ["alice"], timeout=20)
    for ops in (one, two):
        refused = ops.gtrun("dispatch", "alice", bobs, check=14)
        assert refused.err.startswith(f"gtrun: refused: issue {bobs} is live on agent bob: "), refused.err
        ops.gtrun("dispatch", "bob", alices, check=14)
        told = ops.asks("ps")
        assert [(run["agent"], run["rig"], run["issue"]) for run in told["runs"]] == [
            ("alice", "box1", alices), ("bob", "box2", bobs)
        ]  # fmt: skip
        assert told["unreachable"] == []
    assert [run["agent"] for run in two.asks("live", bobs)["runs"]] == ["bob"]
    assert (comments(one, alices), comments(one, bobs)) == (["alice"], [])
    assert [one["by"] for one in one.asks("show", bobs)["attempts"]] == ["ops", "ops", "ops@box2"]

    one.gtrun("quota", "set", "bob", "--until", "2h")
    assert pair.box2.run("stat", "-c", "%U %a", "/home/bob/.local/state/gtrun/quota.json").out == "bob 600\n"
    assert two.gtrun("quota", "--dark").out == "bob\n"
    two.gtrun("dispatch", "bob", one.issue(), check=9)
    two.gtrun("quota", "clear", "bob")
    one.gtrun("preflight", "quota", "bob")

    stopped = one.asks("stop", "--agent", "bob")
    assert [(run["agent"], run["result"]) for run in stopped["stopped"]] == [("bob", "stopped")]
    assert [run["agent"] for run in two.asks("ps")["runs"]] == ["alice"]
    two.gtrun("stop", "--agent", "alice")
    assert one.results(bobs) == one.results(alices) == ["stopped"]
    assert one.kinds(alices) == ["started", "finished"]
    for ops in (one, two):
        assert processes(ops.box, "ops") == []


def test_a_board_that_the_other_box_does_not_have(pair: Pair) -> None:
    """The run goes on and says so, its markers wait for the claim host, and doctor tells of it before."""
    one, _ = furnish(pair)
    issue = one.issue()
    bad = {each["subject"]: each["what"] for each in one.asks("doctor", check=1)["findings"] if not each["is_fine"]}
    assert bad == {"bob": f"{NO_BOARD}: what its runs have to say waits for `gtrun reconcile`"}
    one.gtrun("dispatch", "bob", issue)
    unknown = f"gtrun: whether this is still work could not be asked: {NO_BOARD}"
    pair.box1.wait_for("the run's words", lambda: unknown in one.asks("logs", issue)["lines"], timeout=20)
    one.gtrun("stop", issue)
    (run,) = one.runs(issue)
    assert (run["markers_owed"], run["markers_posted"]) == (["started", "finished"], [])
    assert comments(one, issue) == []
    told = one.asks("reconcile")
    assert (told["posted"], told["owing"], told["problems"]) == (2, 0, [])
    assert comments(one, issue) == ["bob", "bob"]


def one_winner(pair: Pair) -> None:
    """CASE 21: ops of either box at the same instant, and the boxes even have one name: one lock, so one run.

    The first is held under the lock, just before its start. The other box's dispatch runs on box1, and waits there.
    """
    one, two = furnish(pair)
    pair.box2.run("hostname", "box1")
    issue = one.issue()
    for ops in (one, two):
        BEFORE_START.close(ops)
    first = spawn(one, "dispatch", "alice", issue)
    BEFORE_START.wait_for(one)
    second = spawn(two, "dispatch", "bob", issue)
    pair.box1.wait_for(
        "the other's attempt",
        lambda: BEFORE_START.held(two) or len(one.asks("show", issue)["attempts"]) == 2,
        timeout=30,
    )
    for ops in (one, two):
        BEFORE_START.open(ops)
    codes = [answer(process).code for process in (first, second)]
    live = sorted(run["agent"] for run in one.asks("live", issue)["runs"])
    one.gtrun("stop", "--all")
    assert live == ["alice"], f"{len(live)} runs, on {live}"
    assert codes == [0, 14], f"exit codes {codes}"
    for file in ("ledger.db", "claim.lock"):
        assert not pair.box2.path(f"{two.state}/{file}").exists()


def test_one_winner(pair: Pair) -> None:
    prepare(pair, [BEFORE_START.edit])
    one_winner(pair)
    both = (Scene(pair.box1, "ops"), Scene(pair.box2, "ops"))
    issue = both[0].issue()
    typed = [spawn(ops, "dispatch", agent, issue) for agent in ("alice", "bob") for ops in both]
    answers = [answer(process) for process in typed]
    codes = Counter(done.code for done in answers)
    assert codes[0] == 1, f"exit codes {dict(codes)}: {[done.err for done in answers]}"
    assert codes[11] + codes[14] == len(typed) - 1, f"exit codes {dict(codes)}: {[done.err for done in answers]}"
    both[0].gtrun("stop", "--all")


def test_boxes_that_send_to_each_other(pair: Pair) -> None:
    """It is sent once, and comes back as an error that names both files."""
    one, two = furnish(pair)
    one.configure(fleet_of(claims_at(pair.box2)))
    done = pair.box2.run("timeout", "30", "gtrun", "dispatch", "alice", "1", account="ops", check=78)
    file = f"{one.home}/.config/gtrun/fleet.toml"
    assert done.err.splitlines()[0] == (
        f"gtrun: two configurations disagree: {file} of ops@box2 sent this here, to ops@box1,"
        f" and {file} here sends it to ops@box2"
    )
    for ops in (one, two):
        assert not ops.box.path(f"{ops.state}/ledger.db").exists()
        is_left_alone(ops.box)


@pytest.mark.expects_fail_open
def test_the_cable_is_cut_during_a_probe(pair: Pair) -> None:
    """Bob is asked over a connection that is dead by then: his deadline, and alice's run starts. ^C works meanwhile."""
    prepare(pair, [UNDER_LOCK.edit])
    one, two = furnish(pair)
    first, second = one.issue(), one.issue()
    UNDER_LOCK.close(one)
    typed = spawn(one, "dispatch", "alice", first)
    UNDER_LOCK.wait_for(one)
    pair.unplug()
    UNDER_LOCK.open(one)
    done = answer(typed)
    assert done.code == 0, f"exit code {done.code}: {done.err}"
    why = "not every agent could be asked: bob: the user manager of bob@box2 did not answer within 5 s"
    assert done.err == f"gtrun: claim guard failed open: {why}\n"
    (attempt,) = one.asks("show", first)["attempts"]
    assert attempt["verdicts"] == [{"guard": "claim", "verdict": "open", "reason": why}]

    typed = spawn(one, "dispatch", "alice", second)
    pair.box1.wait_for("its ssh to bob", lambda: any("bob@box2" in line for line in processes(pair.box1, "ops")))
    pair.box1.signal(typed, signal.SIGINT)
    done = answer(typed)
    assert (done.code, done.err) == (130, "gtrun: interrupted\n"), f"exit code {done.code}: {done.err}"
    is_left_alone(pair.box1)
    assert Scene(pair.box1, "alice").units() == [f"task-{first}.service"]

    asking, away = spawn(one, "ps", "--json"), spawn(two, "dispatch", "alice", second)
    told = json.loads(answer(asking).out)
    assert [run["issue"] for run in told["runs"]] == [first]
    ((silent, problem),) = [(each["agent"], each["problem"]) for each in told["unreachable"]]
    assert silent == "bob"
    assert re.match("bob@box2 cannot be reached: ssh: connect to host box2 port 22: ", problem), problem
    done = answer(away)
    assert done.code == 69, f"exit code {done.code}: {done.err}"
    assert done.err.startswith("gtrun: ops@box1 is not to be reached over SSH: ssh: connect to host box1 port 22: ")

    pair.plug()
    assert one.asks("ps")["unreachable"] == []
    assert two.gtrun("dispatch", "bob", first, check=14).err.count("\n") == 2
    one.gtrun("stop", "--all")
    assert one.asks("show", second)["attempts"] == []


@pytest.mark.expects_fail_open
def test_a_box_is_gone_during_a_run(pair: Pair) -> None:
    """A row that says so, and the answer of all others; what it ran is not known, so its issue can be started again."""
    one, _ = furnish(pair)
    bobs, alices = one.issue(), one.issue()
    one.gtrun("dispatch", "bob", bobs)
    one.gtrun("dispatch", "alice", alices)
    pair.unplug()
    pair.box2.close()
    asked = [spawn(one, *words) for words in (("ps",), ("live", bobs), ("quota",), ("stop", "--agent", "bob"))]
    ps, live, quota, stop = (answer(process) for process in asked)
    gone = r"bob@box2 cannot be reached: ssh: connect to host box2 port 22: "
    assert re.search(rf"^bob +- +- +unreachable .*{gone}", ps.out, re.MULTILINE), ps.out
    assert re.search(rf"^alice +{alices} +task-{alices}\.service +active/running", ps.out, re.MULTILINE), ps.out
    assert (ps.code, quota.code) == (0, 0)
    assert re.search(rf"^bob +unreachable .*{gone}", quota.out, re.MULTILINE), quota.out
    assert live.code == 1, live.err
    assert re.search(rf"^bob +- +- +unreachable .*{gone}", live.out, re.MULTILINE), live.out
    assert stop.code == 1, stop.out
    assert re.match(f"gtrun: bob could not be asked: {gone}", stop.err), stop.err
    done = one.gtrun("dispatch", "alice", bobs)
    assert re.match(f"gtrun: claim guard failed open: not every agent could be asked: bob: {gone}", done.err), done.err
    assert one.gtrun("stop", "--agent", "alice").err == ""
    is_left_alone(pair.box1)


MUTANTS = [
    Mutant(
        "machine ID not looked at",
        [
            Edit(
                "forward.py",
                "    return machine_id() == claim.machine_id if claim.machine_id else _is_this_box(host)",
                "    return _is_this_box(host)",
            )
        ],
        one_winner,
        r"2 runs, on \['alice', 'bob'\]",
        setup=[BEFORE_START.edit],
        boot=booted,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
