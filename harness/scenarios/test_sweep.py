"""Work that is handed out by itself: the best ready issue to whoever can take it, and never more than that."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from harness.barrier import Barrier
from harness.box import Box
from harness.conftest import MakeBox
from harness.control import Edit, Mutant, kill, prepare
from harness.fleet import WORKS, FleetBox, opened, root_of
from harness.scenarios.test_closeout import board_of
from harness.scenarios.test_forward import people
from harness.scenarios.test_start import answer
from harness.scene import Scene

BEFORE_LOCK = Barrier(
    "before-lock",
    "dispatch.py",
    "        with claim_lock.taken(Path(fleet.claim.lock), wait=fleet.claim.wait, claim=claim) as lock:",
)
LATE = replace(BEFORE_LOCK, name="late", variable="LATE")
AFTER_AN_ITEM = Barrier("after-an-item", "pick.py", "                    heard(one)")
AT_ONCE = '[schedule]\nsettle = "0s"\n'
FORGET = """
import sqlite3, sys
board = sqlite3.connect(sys.argv[1])
keepers = "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'comments'"
for name, in board.execute(keepers).fetchall():
    board.execute(f"DROP TRIGGER {name}")
board.executescript("DELETE FROM comments")
"""
"""Takes all comments off a board, as people can on GitHub."""


def rigs(scene: Scene) -> dict[str, dict[str, Any]]:
    """What `gtrun rigs` says of each agent."""
    return {one["agent"]: one for one in scene.asks("rigs")["agents"]}


def one_slot_two_dispatchers(box: Box) -> None:
    """Two that have planned different issues for the one free slot: one starts its, the other is refused."""
    scene = Scene(box)
    scene.runs_shell(WORKS, AT_ONCE)
    issue = scene.issue()
    BEFORE_LOCK.close(scene)
    first = box.spawn("gtrun", "dispatch", "me", account=scene.account)
    BEFORE_LOCK.wait_for(scene, 1)
    urgent = scene.issue("Put out the fire", "--priority", "0")
    second = box.spawn("gtrun", "dispatch", "me", account=scene.account)
    BEFORE_LOCK.wait_for(scene, 2)
    BEFORE_LOCK.open(scene)
    answers = [answer(first), answer(second)]
    codes = Counter(done.code for done in answers)
    assert codes == {0: 1, 10: 1}, f"exit codes {dict(codes)}: {[done.err for done in answers]}"
    assert len(scene.units()) == 1, f"units are {scene.units()}"
    (refused,) = [done.err for done in answers if done.code == 10]
    assert "me is full: 1 of 1 run" in refused
    told = scene.attempts(issue) + scene.attempts(urgent)
    assert sorted((outcome, code) for outcome, code, _ in told) == [("refused", 10), ("started", 0)]
    scene.gtrun("stop", "--all")


def pause_between_two_items(box: Box) -> None:
    """A pause that is made while a sweep is between its first issue and its second stops the second."""
    scene = Scene(box)
    scene.runs_shell(WORKS, AT_ONCE + "[agents.me]\nmax_runs = 2\n")
    first, second = scene.issue(), scene.issue()
    AFTER_AN_ITEM.close(scene)
    sweeping = box.spawn("gtrun", "sweep", account=scene.account)
    AFTER_AN_ITEM.wait_for(scene)
    scene.gtrun("pause")
    AFTER_AN_ITEM.open(scene)
    done = answer(sweeping)
    assert scene.units() == [f"task-{first}.service"], f"units are {scene.units()}"
    assert done.code == 0
    assert re.search(rf"issue {second} was not started on me: handing out work is paused by alice since", done.err)
    assert done.out.splitlines()[-1] == "Dispatched 1 of 2 planned"
    # nothing that is dispatched takes it back, and who names an issue is not kept from it
    scene.gtrun("dispatch", "me", second)
    assert rigs(scene)["me"]["state"] == "paused"
    assert (rigs(scene)["me"]["running"], rigs(scene)["me"]["dispatched"]) == (2, 2)
    scene.gtrun("stop", "--all")
    third = scene.issue()  # what was stopped by hand does not begin again by itself
    assert scene.gtrun("dispatch", "me", check=None).code == 10
    scene.gtrun("resume")
    scene.gtrun("dispatch", "me")
    assert f"task-{third}.service" in scene.units()
    scene.gtrun("stop", "--all")


def what_is_held_back_during_a_pass(box: Box) -> None:
    """A label that is taken off while a sweep is between its first issue and its second keeps the second back."""
    scene = Scene(box)
    scene.runs_shell(WORKS, f'{AT_ONCE}[board]\nready_label = "go"\n[agents.me]\nmax_runs = 2\n')
    first, second = scene.issue("first", "--label", "go"), scene.issue("second", "--label", "go")
    AFTER_AN_ITEM.close(scene)
    sweeping = box.spawn("gtrun", "sweep", account=scene.account)
    AFTER_AN_ITEM.wait_for(scene)
    scene.gtrun("board", "label", second, "--remove", "go")
    AFTER_AN_ITEM.open(scene)
    done = answer(sweeping)
    assert scene.units() == [f"task-{first}.service"], f"units are {scene.units()}"
    assert (
        f"issue {second} was not started on me: issue {second} is not ready any more: it has no label 'go'" in done.err
    )
    assert (done.code, done.out.splitlines()[-1]) == (0, "Dispatched 1 of 2 planned")
    scene.gtrun("stop", "--all")


def what_one_cannot_be_given_goes_to_another(box: Box) -> None:
    """An agent is paused after a sweep has planned the urgent issue for it: that goes to the other, not what it had."""
    scene = root_of(box, WORKS)
    urgent = scene.issue("Put out the fire", "--priority", "0")
    other = scene.issue()
    text = box.path("/etc/gtrun/fleet.toml").read_text()
    box.write("/etc/gtrun/fleet.toml", f"{AT_ONCE}{text}")
    BEFORE_LOCK.close(scene)
    sweeping = box.spawn("gtrun", "sweep", account=scene.account)
    BEFORE_LOCK.wait_for(scene, 1)
    scene.gtrun("pause", "alice")
    BEFORE_LOCK.open(scene)
    done = answer(sweeping)
    runs = {run["issue"]: run["agent"] for run in scene.asks("ps")["runs"]}
    assert runs == {urgent: "bob"}, f"runs are {runs}"
    assert done.code == 0
    assert f"issue {urgent} was not started on alice: alice is paused by root" in done.err
    assert done.out.splitlines()[-1] == "Dispatched 1 of 2 planned"
    assert scene.attempts(other) == []
    scene.gtrun("stop", "--all")


def what_is_taken_still_blocks(box: Box) -> None:
    """Two that have planned the same issue: whoever is slower is not given what waits for it."""
    scene = Scene(box)
    scene.runs_shell(WORKS, AT_ONCE + "[agents.me]\nmax_runs = 3\n")
    first = scene.issue()
    scene.issue("The next step", "--blocked-by", first)
    BEFORE_LOCK.close(scene)
    dispatchers = [box.spawn("gtrun", "dispatch", "me", account=scene.account) for _ in range(2)]
    BEFORE_LOCK.wait_for(scene, 2)
    BEFORE_LOCK.open(scene)
    answers = [answer(one) for one in dispatchers]
    codes = Counter(done.code for done in answers)
    assert codes == {0: 1, 12: 1}, f"exit codes {dict(codes)}: {[done.err for done in answers]}"
    assert scene.units() == [f"task-{first}.service"]
    scene.gtrun("stop", "--all")


def nobody_takes_what_another_has_started(box: Box) -> None:
    """A run that begins and ends between the plan of a dispatch and its claim is not repeated, whatever came of it."""
    scene = Scene(box)
    scene.runs_shell("exit 3", f'{AT_ONCE}backoff = "1ms"\n')
    issue = scene.issue()
    LATE.close(scene)
    late = box.spawn("gtrun", "dispatch", "me", account=scene.account, env={"LATE": "1"})
    LATE.wait_for(scene)
    scene.gtrun("dispatch", "me", issue)
    scene.idle()
    LATE.open(scene)
    done = answer(late)
    scene.idle()
    assert scene.results(issue) == ["failed"], f"results are {scene.results(issue)}"
    assert done.code == 12, f"exit code {done.code}: {done.err}"
    assert f"issue {issue} is not ready any more: another dispatch has started it meanwhile" in done.err
    scene.gtrun("dispatch", "me")  # the next plan knows what came of it
    scene.idle()
    assert scene.results(issue) == ["failed", "failed"]


def a_back_off_that_begins_before_the_claim(box: Box) -> None:
    """A launch that fails between the plan of a dispatch and its claim keeps the agent from that one as well."""
    scene = Scene(box)
    calm = f'{AT_ONCE}backoff = "1h"\n[agents.me]\nmax_runs = 3\n'
    scene.runs_shell(WORKS, calm)
    picked, named = scene.issue(), scene.issue()
    LATE.close(scene)
    late = box.spawn("gtrun", "dispatch", "me", account=scene.account, env={"LATE": "1"})
    LATE.wait_for(scene)
    scene.configure(f'[run]\ncommand = ["/nowhere/agent"]\n{calm}')
    scene.gtrun("dispatch", "me", named, check=1)
    LATE.open(scene)
    done = answer(late)
    assert done.code == 10, f"exit code {done.code}: {done.out}{done.err}"
    assert re.search(
        rf"issue {picked} is not for me: me backs off for (1h 0m|59m \d+s) more, after 1 failure", done.err
    )
    assert scene.units() == []


def what_has_succeeded_is_tried_again_by_rule_alone(box: Box) -> None:
    """A success is not forgotten with the failures, also where nothing on the board tells of it; `retry` ends that."""
    scene = Scene(box)
    scene.runs_shell("exit 0", f'{AT_ONCE}attempts_decay = "1ms"\n')
    issue = scene.issue()
    scene.gtrun("dispatch", "me")
    scene.idle()
    box.run("python3", "-c", FORGET, board_of(scene), account=scene.account)
    again = scene.gtrun("dispatch", "me", check=None)
    assert again.code == 12, f"exit code {again.code}: {again.out}{again.err}"
    assert "nothing is ready for me: 1 awaiting" in again.err
    scene.runs_shell("exit 0", f'{AT_ONCE}retry = "1h"\n')
    (told,) = scene.asks("sweep", "--dry-run")["issues"]
    assert (told["held"], told["until"] is not None) == ("awaiting", True)
    assert re.search(r"and nothing is merged yet; it is tried again in (1h 0m|59m \d+s)$", told["why"])
    assert "it is tried again in " in scene.gtrun("show", issue).out
    scene.runs_shell("exit 0", f'{AT_ONCE}retry = "1ms"\n')
    for _ in range(2):  # the first without a marker on the board, the second with that of the first
        assert scene.gtrun("sweep").out.splitlines()[-1] == "Dispatched 1 of 1 planned"
        scene.idle()
    assert scene.results(issue) == ["success", "success", "success"]
    assert scene.kinds(issue) == ["started", "finished"] * 2


def a_target_settles(box: Box) -> None:
    """What was just given a run gets no other one for a while, also if that one has ended at once."""
    scene = Scene(box)
    scene.runs_shell("exit 0", '[schedule]\nsettle = "1h"\n')
    first, second = scene.issue(), scene.issue()
    scene.gtrun("dispatch", "me")
    scene.idle()
    again = scene.gtrun("dispatch", "here", check=None)
    assert again.code == 10, f"exit code {again.code}: {again.out}{again.err}"
    assert re.search(r"settles for (1h 0m|59m \d+s) more, after it was given 1 run", again.err)
    assert scene.results(first) == ["success"]
    assert scene.runs(second) == []


def what_fails_rests_for_a_while(box: Box) -> None:
    """An issue of which two runs have failed rests; when the first failure does not count any more, it is tried again.

    Its agent backs off meanwhile, and a failed launch and a used-up quota cost the issue nothing.
    """
    scene = Scene(box)
    calm = f'{AT_ONCE}backoff = "1ms"\nattempts = 2\n'
    scene.configure(f'[run]\ncommand = ["/nowhere/agent"]\n{AT_ONCE}backoff = "1h"\n[agents.me]\nmax_runs = 2\n')
    issue = scene.issue()
    other = scene.issue()
    swept = scene.gtrun("sweep")  # the agent is out of this pass with its first issue
    assert swept.out == "Dispatched 0 of 2 planned\n"
    assert [len(scene.attempts(one)) for one in (issue, other)] == [1, 0]
    scene.gtrun("board", "close", other)
    waiting = scene.gtrun("dispatch", "me", check=None)
    assert waiting.code == 10
    assert re.search(r"me backs off for (1h 0m|59m \d+s) more, after 1 failure", waiting.err)
    for script, result in (("exit 75", "quota"), ("exit 3", "failed"), ("exit 3", "failed")):
        scene.runs_shell(script, f"quota_exit_codes = [75]\n{calm}")
        scene.gtrun("dispatch", "me")
        scene.idle()
        assert scene.results(issue)[-1] == result
        scene.gtrun("quota", "clear", "me")
    resting = scene.gtrun("dispatch", "me", check=None)
    assert resting.code == 12, f"exit code {resting.code}: {resting.out}{resting.err}"
    assert "nothing is ready for me: 1 failing" in resting.err
    assert rigs(scene)["me"]["failures"] == 3  # with the launch; the quota end counts for nobody
    (told,) = scene.asks("sweep", "--dry-run")["issues"]
    assert told["held"] == "failing"
    assert re.match(r"2 runs of it failed within 1d 0h: it rests for (1d 0h|23h 59m) more, or until", told["why"])
    assert f"\nnot handed out by itself: it {told['why'][:40]}" in scene.gtrun("show", issue).out
    scene.runs_shell("exit 0", f'{calm}attempts_decay = "1ms"')
    again = scene.gtrun("dispatch", "me", check=None)
    assert again.code == 0, f"exit code {again.code}: {again.err}"
    scene.idle()


def nothing_is_changed(box: Box) -> None:
    """By a dry run, by a table, and by a sweep whose board is down: the ledger does not learn that a run has ended."""
    scene = Scene(box)
    scene.runs_shell("exit 0", AT_ONCE)
    assert (rigs(scene)["me"]["dispatched"], box.path(scene.state).exists()) == (0, False)
    issue, following = scene.issue(), scene.issue()
    scene.gtrun("dispatch", "me")
    scene.idle()
    ledger = box.path(f"{scene.state}/ledger.db")
    before = ledger.read_bytes()
    assert (rigs(scene)["me"]["successes"], ledger.read_bytes() == before) == (1, True), "the table has written"
    dry = scene.asks("sweep", "--dry-run")
    assert [(one["issue"], one["agent"], one["held"]) for one in dry["issues"]] == [
        (issue, None, "awaiting"),
        (following, "me", None),
    ]
    assert f"issue {following} goes to me" in scene.gtrun("dispatch", "me", "--dry-run").err
    assert ledger.read_bytes() == before, "the dry run has written"
    scene.sh(f"mv {board_of(scene)} ~/away.db")
    down = scene.gtrun("sweep", check=None)
    assert (down.code, down.out) == (75, ""), f"exit code {down.code}: {down.out}{down.err}"
    assert ledger.read_bytes() == before, "a sweep without a board has written"
    scene.sh(f"mv ~/away.db {board_of(scene)}")
    assert scene.gtrun("sweep").out.splitlines()[-1] == "Dispatched 1 of 1 planned"
    assert ledger.read_bytes() != before
    scene.idle()


def a_manager_is_started_anew_during_a_pass(box: Box) -> None:
    """What a pass has kept to look at that agent is cut off, and nobody takes that for an agent out of reach."""
    scene = root_of(box, WORKS)
    text = box.path("/etc/gtrun/fleet.toml").read_text()
    box.write("/etc/gtrun/fleet.toml", AT_ONCE + text.replace('account = "alice"', 'account = "alice"\nmax_runs = 3'))
    issues = [scene.issue() for _ in range(3)]
    scene.gtrun("pause", "bob")
    AFTER_AN_ITEM.close(scene)
    sweeping = box.spawn("gtrun", "sweep")
    AFTER_AN_ITEM.wait_for(scene)
    box.run("systemctl", "restart", f"user@{box.account('bob').uid}.service")
    AFTER_AN_ITEM.open(scene)
    done = answer(sweeping)
    assert (done.code, opened(box)) == (0, []), f"exit code {done.code}: {done.err}"
    assert done.out.splitlines()[-1] == "Dispatched 3 of 3 planned"
    assert sorted(run["issue"] for run in scene.asks("ps")["runs"]) == issues
    scene.gtrun("stop", "--all")


def test_one_slot_two_dispatchers(box: Box) -> None:
    prepare(box, [BEFORE_LOCK.edit])
    one_slot_two_dispatchers(box)


def test_a_pause_between_two_items(box: Box) -> None:
    prepare(box, [AFTER_AN_ITEM.edit])
    pause_between_two_items(box)


def test_what_is_held_back_during_a_pass(box: Box) -> None:
    prepare(box, [AFTER_AN_ITEM.edit])
    what_is_held_back_during_a_pass(box)


def test_what_one_cannot_be_given_goes_to_another() -> None:
    with FleetBox() as box:
        prepare(box, [BEFORE_LOCK.edit])
        what_one_cannot_be_given_goes_to_another(box)


def test_what_is_taken_still_blocks(box: Box) -> None:
    prepare(box, [BEFORE_LOCK.edit])
    what_is_taken_still_blocks(box)


def test_nobody_takes_what_another_has_started(box: Box) -> None:
    prepare(box, [LATE.edit])
    nobody_takes_what_another_has_started(box)


def test_a_back_off_that_begins_before_the_claim(box: Box) -> None:
    prepare(box, [LATE.edit])
    a_back_off_that_begins_before_the_claim(box)


def test_what_has_succeeded_is_tried_again_by_rule_alone(box: Box) -> None:
    what_has_succeeded_is_tried_again_by_rule_alone(box)


def test_a_target_settles(box: Box) -> None:
    a_target_settles(box)


def test_what_fails_rests_for_a_while(box: Box) -> None:
    what_fails_rests_for_a_while(box)


def test_a_manager_is_started_anew_during_a_pass() -> None:
    with FleetBox() as box:
        prepare(box, [AFTER_AN_ITEM.edit])
        a_manager_is_started_anew_during_a_pass(box)


def test_nothing_is_changed(box: Box) -> None:
    nothing_is_changed(box)


def test_two_sweeps_at_once(box: Box) -> None:
    """Both have planned the same two issues for the same two slots: each is started once, by either."""
    prepare(box, [BEFORE_LOCK.edit])
    scene = Scene(box)
    scene.runs_shell(WORKS, AT_ONCE + "[agents.me]\nmax_runs = 2\n")
    issues = [scene.issue() for _ in range(3)]
    BEFORE_LOCK.close(scene)
    sweeps = [box.spawn("gtrun", "sweep", account=scene.account) for _ in range(2)]
    BEFORE_LOCK.wait_for(scene, 2)
    BEFORE_LOCK.open(scene)
    answers = [answer(sweep) for sweep in sweeps]
    assert [done.code for done in answers] == [0, 0], [done.err for done in answers]
    assert sorted(scene.units()) == [f"task-{issue}.service" for issue in issues[:2]]
    started = [line for done in answers for line in done.out.splitlines() if line.startswith("started ")]
    assert len(started) == 2, started
    scene.gtrun("stop", "--all")


@pytest.mark.expects_fail_open
def test_an_agent_out_of_reach(box: Box) -> None:
    """It is given nothing, which is said; the others of its rig go on."""
    scene = Scene(box)
    scene.runs_shell(WORKS, AT_ONCE + '[agents.me]\n[agents.other]\naccount = "bob"\n')
    issue = scene.issue()
    alone = scene.gtrun("dispatch", "other", check=None)
    assert alone.code == 69, f"exit code {alone.code}: {alone.err}"
    assert "other does not answer: agent other is another account, bob" in alone.err
    assert rigs(scene)["other"]["state"] == "unreachable"
    done = scene.gtrun("dispatch", "here", check=None)
    assert done.code == 0, f"exit code {done.code}: {done.err}"
    assert scene.units() == [f"task-{issue}.service"]
    scene.gtrun("stop", "--agent", "me")


def test_a_sweep_over_a_fleet() -> None:
    """Two agents, a rig, and one issue of each kind: who gets which, what is said of the others, and of each agent."""
    with FleetBox() as box:
        scene = root_of(box, WORKS)
        text = box.path("/etc/gtrun/fleet.toml").read_text()
        text = text.replace('account = "bob"', 'account = "bob"\nskills = ["go"]')
        box.write("/etc/gtrun/fleet.toml", f"{AT_ONCE}{text}")
        assert scene.gtrun("sweep", check=None).code == 75  # there is no board yet, and nothing was done
        late, closed, merged, done = (scene.issue(title) for title in ("late", "closed", "merged", "done"))
        scene.gtrun("board", "close", closed)
        scene.gtrun("board", "pr", merged, "--url", "https://x/1", "--state", "merged")
        scene.gtrun("board", "label", done, "--add", "done")
        blocked = scene.issue("blocked", "--blocked-by", late, "--priority", "0")
        urgent = scene.issue("urgent", "--label", "skill:go", "--priority", "1")
        last = scene.issue("last", "--priority", "4")
        planned = scene.asks("sweep", "--dry-run")
        assert scene.asks("ps")["runs"] == []
        assert [(one["issue"], one["agent"], one["held"], one["waits_for"]) for one in planned["issues"]] == [
            (blocked, None, "blocked", None),
            (urgent, "bob", None, None),
            (late, "alice", None, None),
            (merged, None, "shipped", None),
            (done, None, "not-work", None),
            (last, None, None, "capacity"),
        ]
        page = scene.gtrun("sweep", "--dry-run").out
        assert re.search(
            rf"^{urgent} +P1 +starts on bob +goes to bob, which has the skill go +urgent$", page, re.MULTILINE
        )
        assert re.search(rf"^{blocked} +P0 +blocked +is blocked by {late}, not done yet +blocked$", page, re.MULTILINE)
        assert re.search(rf"^{last} +P4 +waits +waits for an agent: 2 given other issues +last$", page, re.MULTILINE)
        assert re.search(rf"^alice +box +0 of 1 +{late} +is given {late}$", page, re.MULTILINE)

        # a unit of somebody else's takes a slot as well, for the table and for the gate
        box.run("systemd-run", "--user", "--unit=task-77", "sleep", "60", account="alice")
        assert rigs(scene)["alice"]["state"] == "full"
        assert scene.gtrun("dispatch", "alice", check=None).code == 10
        box.run("systemctl", "--user", "stop", "task-77", account="alice")
        scene.gtrun("quota", "set", "bob", "--until", "2h")
        assert scene.gtrun("dispatch", "bob", check=None).code == 9
        hatch = scene.gtrun("dispatch", "bob", "--dry-run", env={"DISPATCH_IGNORE_QUOTA": "1"})
        assert f"issue {urgent} goes to bob" in hatch.err
        scene.gtrun("quota", "clear", "bob")

        # the sweep is a unit of its own, whose end does not touch what it started
        swept = box.run("systemd-run", "--quiet", "--wait", "--pipe", "gtrun", "sweep")
        assert (
            swept.out.splitlines()[-1] == "Dispatched 2 of 2 planned; 1 more ready, which wait for the next free agent"
        )
        units = {run["unit"]: run["agent"] for run in scene.asks("ps")["runs"]}
        assert units == {f"task-{urgent}.service": "bob", f"task-{late}.service": "alice"}
        again = scene.asks("sweep")
        assert (again["started"], again["failed"], again["why"]) == ([], [], "capacity")
        full = scene.gtrun("dispatch", "box", check=None)
        assert full.code == 10
        assert "alice is full: 1 of 1 run; bob is full: 1 of 1 run" in full.err
        scene.gtrun("stop", urgent)
        scene.gtrun("dispatch", "box", "--prefer-skill", "go")
        assert {run["agent"] for run in scene.asks("live", last)["runs"]} == {"bob"}
        scene.gtrun("stop", "--all")
        nothing = scene.gtrun("dispatch", "box", check=None)
        assert nothing.code == 12
        assert "nothing is ready for box: 1 blocked, 1 not work, 1 shipped, 3 stopped" in nothing.err


def test_it_all_happens_at_the_claim_host(make_box: MakeBox) -> None:
    """A pause, a pick and a sweep that are typed elsewhere are the claim account's, with who asked for them."""
    ops, carol = people(make_box(accounts=["ops", "carol"]))
    issue = ops.issue()
    carol.gtrun("pause")
    assert rigs(ops)["me"]["why"].startswith("handing out work is paused by carol@box since ")
    refused = carol.gtrun("dispatch", "me", check=None)
    assert refused.code == 10, f"exit code {refused.code}: {refused.err}"
    carol.gtrun("pause", "me")
    again = carol.gtrun("resume", "me").err
    assert again == "gtrun: the pause of me is taken back\ngtrun: still paused: everybody\n"
    carol.gtrun("resume")
    assert carol.gtrun("dispatch", "me").out.startswith(f"started task-{issue}.service on me, run ")
    assert rigs(carol) == rigs(ops)
    assert carol.gtrun("sweep").out == "Dispatched 0 of 0 planned\n"
    ops.gtrun("stop", "--all")


MUTANTS = [
    Mutant(
        "capacity outside the lock",
        [
            Edit(
                "dispatch.py",
                "ask(before_lock(asked.question), asked.question, say)\n        if",
                "ask([*before_lock(asked.question), *under_lock(asked.question)[1:]], asked.question, say)\n        if",
            ),
            Edit("dispatch.py", "ask(under_lock(asked.question), asked", "ask([CLAIM], asked"),
        ],
        one_slot_two_dispatchers,
        r"exit codes \{0: 2\}",
        setup=[BEFORE_LOCK.edit],
    ),
    Mutant(
        "pause read once",
        [Edit("asked.py", "return of_agent(World(", "book.pauses.clear()\n        return of_agent(World(")],
        pause_between_two_items,
        r"units are \['task-1\.service', 'task-2\.service'\]",
        setup=[AFTER_AN_ITEM.edit],
    ),
    Mutant(
        "what is picked is not looked at again",
        [Edit("guards/board.py", "if question.availability is not None else None", "if False else None")],
        what_is_held_back_during_a_pass,
        r"units are \['task-1\.service', 'task-2\.service'\]",
        setup=[AFTER_AN_ITEM.edit],
    ),
    Mutant(
        "what is planned stays with whom it was planned for",
        [Edit("pick.py", "starts = planned_anew()", "starts = [one for one in starts if one[1] in left]")],
        what_one_cannot_be_given_goes_to_another,
        r"runs are \{'\d': 'bob'\}",
        setup=[BEFORE_LOCK.edit],
        boot=FleetBox,
    ),
    Mutant(
        "what is taken is no issue any more",
        [
            Edit(
                "pick.py",
                "structs.replace(backlog, live=dict(backlog.live) | live)",
                "structs.replace(backlog, works=[one for one in backlog.works if one.issue.key not in taken])",
            )
        ],
        what_is_taken_still_blocks,
        r"exit codes \{0: 2\}",
        setup=[BEFORE_LOCK.edit],
    ),
    Mutant(
        "only a live run is met",
        [Edit("guards/__init__.py", '[("overtaken", overtaken.check)]', "[]")],
        nobody_takes_what_another_has_started,
        r"results are \['failed', 'failed'\]",
        setup=[LATE.edit],
    ),
    Mutant(
        "a success that is forgotten",
        [Edit("state/ledger.py", "succeeded=dict(self._db.execute(_SUCCEEDED, (board,))),", "succeeded={},")],
        what_has_succeeded_is_tried_again_by_rule_alone,
        r"exit code 0: started",
    ),
    Mutant(
        "settle ignored",
        [Edit("planner/availability.py", "schedule.settle * tally.last_dispatch_count", "0.0")],
        a_target_settles,
        r"exit code 0: started",
    ),
    Mutant(
        "a dry run that notes what it sees",
        [Edit("state/ledger.py", "self._transaction(keep=self._keeps)", "self._transaction()")],
        nothing_is_changed,
        r"the table has written",
    ),
    Mutant(
        "reconciled before the board is asked",
        [
            Edit(
                "pick.py",
                "    pile = read_board(fleet)\n",
                "    pile = reconcile(fleet, order.caller) and read_board(fleet)\n",
            )
        ],
        nothing_is_changed,
        r"a sweep without a board has written",
    ),
    Mutant(
        "what is cut off is taken for silence",
        [Edit("survey.py", "for name in self.kept & self.silent.keys():", "for name in set[str]():")],
        a_manager_is_started_anew_during_a_pass,
        r"claim guard failed open: not every agent could be asked: bob: ",
        setup=[AFTER_AN_ITEM.edit],
        boot=FleetBox,
    ),
    Mutant(
        "breaker that never decays",
        [
            Edit("planner/readiness.py", "since = max(now - schedule.attempts_decay, issue", "since = max(0.0, issue"),
            Edit("gather.py", "now - fleet.schedule.attempts_decay", "0.0"),
        ],
        what_fails_rests_for_a_while,
        r"exit code 12: .*1 failing",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
