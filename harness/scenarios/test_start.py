"""Starting: the name is the mutex, and the answer is the truth."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from harness.barrier import Barrier
from harness.box import Box, Completed
from harness.control import Edit, Mutant, kill, prepare
from harness.scene import Scene

WORKS = "echo ready > ~/ready; exec sleep 60"
WAITS = "until [ -e ~/go ]; do sleep 0.05; done"
BEFORE_START = Barrier("before-start", "start.py", "    override = fleet.rigs[agent.rig].gtrun")
NO_LOCK = '[claim]\nlock = "/proc/claim.lock"'
"""A claim lock that is not to be had: the guard fails open, and the unit's name is all that is left."""
MANY = 25  # failing runs: 500 take minutes of two processors, and show nothing that these do not


def answer(process: subprocess.Popen[bytes]) -> Completed:
    """What a spawned gtrun said and returned."""
    out, err = process.communicate(timeout=60)
    return Completed(("gtrun",), "", process.returncode, out, err)


def second_dispatch_is_refused(box: Box) -> None:
    """A live run's issue is dispatched again: 11, one unit, of the one name."""
    scene = Scene(box)
    scene.runs_shell(WORKS)
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    scene.appears(f"{scene.home}/ready")
    again = scene.gtrun("dispatch", "me", issue, check=None)
    assert scene.units() == [f"task-{issue}.service"], f"units are {scene.units()}"
    assert again.code == 11, f"exit code {again.code}: {again.err}"
    scene.gtrun("stop", issue)


def twenty_at_once(box: Box) -> None:
    """Twenty launches of one name that have all passed their guards: one starts, the others are refused with 11.

    No claim lock keeps them apart. They are the first that this account ever dispatches: ledger and state folder are
    made by all of them at once.
    """
    scene = Scene(box)
    scene.runs_shell(WORKS, NO_LOCK)
    issue = scene.issue()
    BEFORE_START.close(scene)
    typed = [box.spawn("gtrun", "dispatch", "me", issue, account=scene.account) for _ in range(20)]
    BEFORE_START.wait_for(scene, 20, timeout=60)
    BEFORE_START.open(scene)
    answers = [answer(process) for process in typed]
    codes = Counter(done.code for done in answers)
    assert codes == {0: 1, 11: 19}, f"exit codes {dict(codes)}: {[done.err for done in answers if done.code != 11]}"
    assert scene.units() == [f"task-{issue}.service"], f"units are {scene.units()}"
    outcomes = Counter(attempt["outcome"] for attempt in scene.asks("show", issue)["attempts"])
    assert outcomes == {"started": 1, "refused": 19}, f"outcomes {dict(outcomes)}"
    # it was the manager that refused them, and that is counted like what a guard refuses
    refused = box.journal("-o", "cat", "GTRUN_GUARD=duplicate", "GTRUN_VERDICT=refuse", f"GTRUN_ISSUE={issue}")
    entry = rf"duplicate guard refused: task-{issue}\.service is already live on me \(\w+/[\w-]+\)"
    assert len(re.findall(f"^{entry}$", refused, re.MULTILINE)) == 19, refused
    scene.gtrun("stop", issue)
    assert not scene.open_records(), f"records left open: {scene.open_records()}"
    assert scene.kinds(issue) == ["started", "finished"]


def starting_run_is_refused(box: Box) -> None:
    """A unit that is activating and has not executed its program yet is live."""
    scene = Scene(box)
    scene.runs_shell(WORKS)
    issue = scene.issue()
    box.write(
        f"{scene.home}/.config/systemd/user/task-.service.d/hold.conf",
        f"[Service]\nExecStartPre=/bin/sh -c '{WAITS}'\n",
        owner=scene.account,
    )
    first = box.spawn("gtrun", "dispatch", "me", issue, account=scene.account)
    state = partial(scene.properties, f"task-{issue}.service", "ActiveState")
    box.wait_for("an activating unit", lambda: state() == {"ActiveState": "activating"})
    again = scene.gtrun("dispatch", "me", issue, check=None)
    scene.sh("touch ~/go")
    assert answer(first).code == 0
    assert again.code == 11, f"exit code {again.code}: {again.err}"
    scene.gtrun("stop", issue)


def queued_run_is_refused(box: Box) -> None:
    """A unit whose start job waits for another unit is inactive, and live all the same."""
    scene = Scene(box)
    scene.runs_shell(WORKS)
    issue = scene.issue()
    units = f"{scene.home}/.config/systemd/user"
    box.write(
        f"{units}/hold.service", f"[Service]\nType=oneshot\nExecStart=/bin/sh -c '{WAITS}'\n", owner=scene.account
    )
    box.write(f"{units}/task-.service.d/hold.conf", "[Unit]\nAfter=hold.service\n", owner=scene.account)
    scene.sh("systemctl --user daemon-reload; systemctl --user start --no-block hold.service")
    first = box.spawn("gtrun", "dispatch", "me", issue, account=scene.account)
    box.wait_for("a queued unit", lambda: bool(scene.units()))
    assert scene.properties(f"task-{issue}.service", "ActiveState") == {"ActiveState": "inactive"}
    again = scene.gtrun("dispatch", "me", issue, check=None)
    told = [run["unit"] for run in scene.asks("ps")["runs"]]
    scene.sh("touch ~/go")
    assert answer(first).code == 0
    assert again.code == 11, f"exit code {again.code}: {again.err}"
    assert told == [f"task-{issue}.service"], f"ps tells {told}"
    scene.gtrun("stop", issue)


def failed_run_frees_the_name(box: Box) -> None:
    """A run that failed is no obstacle, and its result is kept beside the next one's."""
    scene = Scene(box)
    scene.runs_shell("exit 3")
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    scene.ends(issue)
    scene.runs_shell("exit 0")
    again = scene.gtrun("dispatch", "me", issue, check=None)
    assert again.code == 0, f"exit code {again.code}: {again.err}"
    scene.idle()
    assert scene.results(issue) == ["failed", "success"]
    page = scene.gtrun("show", issue).out
    assert "failed, exit code 3" in page
    assert "success, exit code 0" in page


def hatch_numbers_its_units(box: Box) -> None:
    """DISPATCH_ALLOW_DUPLICATE=1: the the plain name while nothing is live, then -dup1, -dup2; each counts as live."""
    scene = Scene(box)
    scene.runs_shell(WORKS)
    issue = scene.issue()
    units = [f"task-{issue}.service", f"task-{issue}-dup1.service", f"task-{issue}-dup2.service"]
    for number, unit in enumerate(units, start=1):
        done = scene.gtrun("dispatch", "me", issue, env={"DISPATCH_ALLOW_DUPLICATE": "1"}, check=None)
        assert sorted(scene.units()) == sorted(units[:number]), f"units are {scene.units()}: {done.err}"
        assert done.code == 0, f"exit code {done.code}: {done.err}"
        assert f"started {unit} " in done.out
    assert sorted(run["unit"] for run in scene.asks("live", issue)["runs"]) == sorted(units)
    scene.sh(f"systemctl --user stop {units[0]} {units[1]}")
    again = scene.gtrun("dispatch", "me", issue, check=None)
    assert (again.code, units[2] in again.err) == (11, True), f"exit code {again.code}: {again.err}"
    scene.gtrun("stop", issue)
    assert scene.results(issue) == ["stopped"] * 3
    assert Counter(scene.kinds(issue)) == {"started": 3, "finished": 3}


def absent_program_is_refused(box: Box) -> None:
    """A program that is nowhere: exit 1 and where it was looked for, before anything starts."""
    scene = Scene(box)
    scene.configure('[run]\ncommand = ["agent-program"]\n')
    issue = scene.issue()
    done = scene.gtrun("dispatch", "me", issue, check=None)
    assert done.code == 1, f"exit code {done.code}: {done.err}"
    assert f"looked in {scene.home}/.local/bin, /usr/local/bin, /usr/bin, /bin" in done.err
    ((outcome, code, reason),) = scene.attempts(issue)
    assert (outcome, code) == ("failed", 1)
    journal = box.journal("-o", "cat", "GTRUN_OUTCOME=failed", "GTRUN_CODE=1", f"GTRUN_ISSUE={issue}")
    assert journal == f"DISPATCH_FAIL me\nBead: {issue}\nReason: {reason}\n"
    assert not scene.runs(issue)
    assert not scene.open_records()
    assert not scene.markers(issue)


def test_second_dispatch_is_refused(box: Box) -> None:
    second_dispatch_is_refused(box)


@pytest.mark.expects_fail_open
def test_twenty_at_once(box: Box) -> None:
    prepare(box, [BEFORE_START.edit])
    twenty_at_once(box)


def test_twenty_first_uses(box: Box) -> None:
    """No ledger, no state folder, no board: all are made by whoever is first, and nobody fails over it."""
    scene = Scene(box)
    scene.runs_shell(WORKS)
    added = [box.spawn("gtrun", "board", "add", "--", f"Issue {n}", account=scene.account) for n in range(20)]
    answers = [answer(process) for process in added]
    assert {done.code for done in answers} == {0}, [done.err for done in answers]
    assert sorted(int(done.out) for done in answers) == list(range(1, 21))
    typed = [box.spawn("gtrun", "dispatch", "me", "7", account=scene.account) for _ in range(20)]
    codes = Counter((done := answer(process)).code for process in typed)
    assert codes == {0: 1, 11: 19}, f"exit codes {dict(codes)}"
    assert done
    scene.gtrun("stop", "7")


def test_starting_run_is_refused(box: Box) -> None:
    starting_run_is_refused(box)


def test_queued_run_is_refused(box: Box) -> None:
    queued_run_is_refused(box)


def test_failed_run_frees_the_name(box: Box) -> None:
    failed_run_frees_the_name(box)


def test_many_failing_runs(box: Box) -> None:
    """However many runs have failed, no failed unit is left, and the next launch works."""
    scene = Scene(box)
    scene.runs_shell("exit 3")
    issues = [scene.issue(f"Issue {number}") for number in range(5)]

    def fail_repeatedly(issue: str) -> None:
        for _ in range(MANY // len(issues)):
            assert scene.gtrun("dispatch", "me", issue, "--wait", check=3).code == 3

    with ThreadPoolExecutor(len(issues)) as people:
        list(people.map(fail_repeatedly, issues))
    assert not scene.units(), f"units are {scene.units()}"
    assert {len(scene.runs(issue)) for issue in issues} == {MANY // len(issues)}
    scene.runs_shell("exit 0")
    assert scene.gtrun("dispatch", "me", issues[0], "--wait").code == 0


def test_every_ending_frees_the_name(box: Box) -> None:
    scene = Scene(box)
    issue = scene.issue()
    endings = {
        "exit 0": ("success", ""),
        "ulimit -c 0; kill -SEGV $$": ("failed", ""),
        "exec sleep 70": ("timeout", 'time_limit = "1s"'),
        WORKS: ("stopped", ""),
    }
    for script, (_, more) in endings.items():
        scene.runs_shell(script, more)
        scene.gtrun("dispatch", "me", issue)
        if script == WORKS:
            scene.appears(f"{scene.home}/ready")
            scene.gtrun("stop", issue)
        scene.ends(issue)
    assert scene.results(issue) == [result for result, _ in endings.values()]
    scene.runs_shell("exit 0")
    scene.gtrun("dispatch", "me", issue, "--wait")


def test_refused_duplicates_are_counted(box: Box) -> None:
    scene = Scene(box)
    scene.runs_shell(WORKS)
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    for _ in range(3):
        refused = scene.gtrun("dispatch", "me", issue, check=11)
        assert f"task-{issue}.service is already live on me" in refused.err
    told = scene.asks("show", issue)["attempts"]
    assert [(one["outcome"], one["code"]) for one in told] == [("started", 0)] + [("refused", 11)] * 3
    assert all(one["verdicts"][0]["guard"] == "duplicate" for one in told[1:])
    page = scene.gtrun("show", issue).out
    assert len(re.findall(r"me +refused +11 +task-1\.service is already live", page)) == 3, page
    assert scene.kinds(issue) == ["started"]  # a refusal is not the issue's business
    scene.gtrun("stop", issue)


def test_hatch_numbers_its_units(box: Box) -> None:
    hatch_numbers_its_units(box)


def test_dispatch_inside_a_run_skips_the_board_guard(box: Box) -> None:
    """With GTRUN_BACKEND the board guard is skipped; the run itself still asks, and leaves no marker."""
    scene = Scene(box)
    scene.runs_shell("exit 0")
    issue = scene.issue()
    scene.gtrun("board", "close", issue)
    scene.gtrun("dispatch", "me", issue, check=13)
    scene.gtrun("dispatch", "me", issue, "--wait", env={"GTRUN_BACKEND": "claude"})
    assert scene.results(issue) == ["disposed"]
    assert not scene.markers(issue)


def test_dispatch_typed_by_an_agent_program(box: Box) -> None:
    """What a run finds in its environment is what makes a dispatch inside it one that skips the board guard."""
    scene = Scene(box)
    script = "echo $GTRUN_AGENT $GTRUN_BACKEND $GTRUN_ISSUE $GTRUN_RUN >~/told; gtrun dispatch me 2 2>~/said; "
    script += "echo $? >~/code"
    scene.runs_shell(script, 'backend = "claude"\npath = ["/opt/gtrun/bin", "/usr/bin", "/bin"]')
    outer, inner = scene.issue(), scene.issue()
    scene.gtrun("board", "close", inner)
    scene.gtrun("dispatch", "me", outer, "--wait")
    scene.idle()
    (run,) = scene.runs(outer)
    assert scene.appears(f"{scene.home}/told") == f"me claude {outer} {run['run']}\n"
    assert (scene.appears(f"{scene.home}/code"), scene.appears(f"{scene.home}/said")) == ("0\n", "")
    assert scene.results(inner) == ["disposed"]
    assert not scene.markers(inner)


def test_program_in_the_home(box: Box) -> None:
    """It is found where the profile's path says, whatever the PATH of dispatcher and manager is."""
    scene = Scene(box)
    scene.configure('[run]\ncommand = ["agent-program"]\n')
    box.write(f"{scene.home}/.local/bin/agent-program", "#!/bin/sh\nexit 4\n", owner=scene.account, mode=0o755)
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue, "--wait", check=4, env={"PATH": "/usr/bin:/bin:/opt/gtrun/bin"})


def test_absent_program_is_refused(box: Box) -> None:
    absent_program_is_refused(box)


LIVE = '    return unit.job != 0 or unit.active not in {"inactive", "failed"}'
RETURN_NAME = 'return UnitName(f"task-{stem}{suffix}.service")'
RESOLVES = (
    "        program = resolve(run, _NO_RUN, str(prompt_file), inherited=inherited, secrets=secrets, stack=stack)"
)
MUTANTS = [
    Mutant(
        "random unit name",
        [Edit("names.py", RETURN_NAME, RETURN_NAME.replace("{stem}", "{stem}{__import__('os').urandom(4).hex()}"))],
        second_dispatch_is_refused,
        r"units are \['task-1[0-9a-f]{8}\.service', 'task-1[0-9a-f]{8}\.service'\]",
    ),
    Mutant(
        "UnitExists taken for success",
        [
            Edit(
                "start.py",
                "    if not reply.is_taken:\n        return reply\n    _refuse_live(asked.question, reply.occupant)",
                "    return reply",
            ),
            Edit(
                "start.py",
                "    waited = at_agent.Job(run, reply.job, reply.path, _JOB_WAIT)",
                "    if reply.is_taken:\n        return Launched(None)\n"
                "    waited = at_agent.Job(run, reply.job, reply.path, _JOB_WAIT)",
            ),
        ],
        twenty_at_once,
        r"exit codes \{0: 20\}",
        setup=[BEFORE_START.edit],
    ),
    # "activating" alone is equivalent: systemd keeps the start job until the unit has left that state
    Mutant(
        'live without "activating"',
        [Edit("systemd/units.py", LIVE, '    return unit.active not in {"inactive", "failed", "activating"}')],
        starting_run_is_refused,
        r"exit code 1: gtrun: the name task-1\.service is occupied .*activating/start-pre with a job",
    ),
    Mutant(
        "live without a pending job",
        [Edit("systemd/units.py", LIVE, '    return unit.active not in {"inactive", "failed"}')],
        queued_run_is_refused,
        r"exit code 1: gtrun: the name task-1\.service is occupied .*inactive/dead with a job",
    ),
    Mutant(
        "no CollectMode",
        [Edit("systemd/transient.py", '        ("CollectMode", "s", "inactive-or-failed"),\n', "")],
        failed_run_frees_the_name,
        r"exit code 1: gtrun: the name task-1\.service is occupied .*loaded/failed/failed",
    ),
    Mutant(
        "no number behind a duplicate",
        [
            Edit(
                "dispatch.py", "    if not duplicate.allowed(question):\n        return", "    if True:\n        return"
            )
        ],
        hatch_numbers_its_units,
        r"units are \['task-1\.service'\]: gtrun: refused: task-1\.service is already live",
    ),
    Mutant(
        "program not resolved before the start",
        [
            Edit(
                "reach/operations/starting.py",
                RESOLVES,
                "        from gtrun.program import Program\n"
                '        program = Program("", [], {}, "", "", None, wants_prompt_file=False)',
            )
        ],
        absent_program_is_refused,
        r"exit code 0",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
