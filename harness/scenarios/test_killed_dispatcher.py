"""Whoever dispatches may die at any step: afterwards nothing is half done, and the ledger learns what came of it."""

from __future__ import annotations

import signal

import pytest

from harness.barrier import Barrier
from harness.box import Box
from harness.control import Edit, Mutant, kill, prepare
from harness.scenarios.test_start import answer
from harness.scene import Scene

WORKS = "exec sleep 60"
BEGINS = "        ledger.begin(attempt, verdicts)\n"
TELLS = "        announce.attempted(attempt)\n        announce.guards(attempt, verdicts)\n"
STARTS = (
    "        claim, verdicts = Claim(), []\n"
    "        try:\n"
    "            run, reply = _claim_and_start(fleet, agent, run, asked, claim, verdicts, say)\n"
    "            launched = await_start(asked, run, reply)\n"
)
AFTER_START = Barrier("after-start", "start.py", "    waited = at_agent.Job(run, reply.job, reply.path, _JOB_WAIT)")
IN_WORKER_AFTER_RECORD = Barrier(
    "in-worker-after-record",
    "reach/operations/starting.py",
    "    return Prepared(run, program.path, program.argv, program.stdin)",
)
IN_WORKER_AFTER_START = Barrier(
    "in-worker-after-start", "reach/operations/starting.py", "    return StartReply(job=job, path="
)
# where the dispatcher is killed, and whether its run goes on
STEPS = [
    (Barrier("before-attempt", "dispatch.py", BEGINS.rstrip("\n")), False),
    (Barrier("after-attempt", "dispatch.py", "        run = prepared(replace(run, unit=_free_name("), False),
    (IN_WORKER_AFTER_RECORD, False),
    (Barrier("after-record", "dispatch.py", "        with claim_lock.taken("), False),
    (Barrier("under-the-lock", "start.py", "    override = fleet.rigs[agent.rig].gtrun"), False),
    (
        Barrier(
            "in-worker-before-start", "reach/operations/starting.py", "    wanted = transient.properties(run, command,"
        ),
        True,
    ),
    (AFTER_START, True),
    (
        Barrier(
            "after-job",
            "dispatch.py",
            '        outcome = partial(ledger.decide, run.token, "started"',
        ),
        True,
    ),
]


def kill_dispatcher(scene: Scene, issue: str, where: Barrier) -> None:
    """Dispatch, and kill -9 the dispatcher when it, or the worker it waits for, is at the barrier."""
    where.close(scene)
    process = scene.box.spawn("gtrun", "dispatch", "me", issue, account=scene.account)
    where.wait_for(scene)
    scene.box.signal(process, signal.SIGKILL)
    where.open(scene)
    assert answer(process).code in {-signal.SIGKILL, 128 + signal.SIGKILL}  # as the nsenter before it passes it on


def killed_after_the_start(box: Box) -> None:
    """The attempt is durable before the start, so that a run without a dispatcher is somebody's all the same."""
    scene = Scene(box)
    scene.runs_shell(WORKS)
    issue = scene.issue()
    kill_dispatcher(scene, issue, AFTER_START)
    attempts = [attempt[:2] for attempt in scene.attempts(issue)]
    assert attempts == [(None, None)], f"attempts {attempts}"
    assert scene.gtrun("dispatch", "me", issue, check=None).code == 11
    scene.gtrun("reconcile")
    attempts = [attempt[:2] for attempt in scene.attempts(issue)]
    assert attempts == [("started", 0), ("refused", 11)], f"attempts {attempts}"
    scene.gtrun("stop", issue)
    assert scene.kinds(issue) == ["started", "finished"]


def worker_killed_after_the_start(box: Box) -> None:
    """The process that talks to the manager dies when the unit is started: that is not a failed launch."""
    scene = Scene(box)
    scene.runs_shell(WORKS)
    issue = scene.issue()
    IN_WORKER_AFTER_START.close(scene)
    process = box.spawn("gtrun", "dispatch", "me", issue, account=scene.account)
    (worker,) = IN_WORKER_AFTER_START.wait_for(scene)
    box.run("kill", "-9", str(worker))
    IN_WORKER_AFTER_START.open(scene)
    done = answer(process)
    assert done.code == 69, f"exit code {done.code}: {done.err}"
    assert "went away" in done.err
    assert scene.units() == [f"task-{issue}.service"]
    assert [attempt[:2] for attempt in scene.attempts(issue)] == [(None, None)]
    scene.gtrun("reconcile")
    assert [attempt[:2] for attempt in scene.attempts(issue)] == [("started", 0)]
    scene.gtrun("dispatch", "me", issue, check=11)
    scene.gtrun("stop", issue)


def test_dispatcher_is_killed_at_every_step(box: Box) -> None:
    prepare(box, [where.edit for where, _ in STEPS])
    scene = Scene(box)
    scene.runs_shell(WORKS)
    for where, goes_on in STEPS:
        issue = scene.issue(where.name)
        unit = f"task-{issue}.service"
        kill_dispatcher(scene, issue, where)
        if goes_on:
            scene.appears(f"/run/user/1000/systemd/transient/{unit}")
        else:
            box.wait_for(f"{where.name}: no record", lambda: not scene.open_records())
            assert unit not in scene.units()
        again = scene.gtrun("dispatch", "me", issue, check=None)
        assert again.code == (11 if goes_on else 0), f"{where.name}: exit code {again.code}: {again.err}"
        scene.gtrun("reconcile")
        attempts = [attempt[:2] for attempt in scene.attempts(issue)]
        first = ("started", 0) if goes_on else ("failed", 1)
        wanted = [] if where.name == "before-attempt" else [first]
        assert attempts == [*wanted, ("refused", 11) if goes_on else ("started", 0)], f"{where.name}: {attempts}"
        scene.gtrun("stop", issue)
        assert scene.results(issue) == ["stopped"], where.name
        assert scene.kinds(issue) == ["started", "finished"], where.name
        assert not scene.open_records(), where.name


def test_killed_after_the_start(box: Box) -> None:
    prepare(box, [AFTER_START.edit])
    killed_after_the_start(box)


def test_worker_is_killed_after_the_start(box: Box) -> None:
    prepare(box, [IN_WORKER_AFTER_START.edit])
    worker_killed_after_the_start(box)


def test_worker_is_killed_before_the_start(box: Box) -> None:
    """Its record is left to reconcile, which finds that it never was a run."""
    prepare(box, [IN_WORKER_AFTER_RECORD.edit])
    scene = Scene(box)
    scene.runs_shell(WORKS)
    issue = scene.issue()
    IN_WORKER_AFTER_RECORD.close(scene)
    process = box.spawn("gtrun", "dispatch", "me", issue, account=scene.account)
    (worker,) = IN_WORKER_AFTER_RECORD.wait_for(scene)
    box.run("kill", "-9", str(worker))
    IN_WORKER_AFTER_RECORD.open(scene)
    assert answer(process).code == 69
    assert not scene.units()
    scene.gtrun("reconcile")
    assert [attempt[:2] for attempt in scene.attempts(issue)] == [("failed", 1)]
    assert not scene.open_records()
    assert not scene.markers(issue)
    scene.gtrun("dispatch", "me", issue)
    scene.gtrun("stop", issue)


def test_start_job_outlives_the_wait_for_it(box: Box) -> None:
    """A job that is still queued may start yet: 69, and no outcome until somebody has looked."""
    prepare(box, [Edit("start.py", "_JOB_WAIT = 90.0", "_JOB_WAIT = 1.0")])
    scene = Scene(box)
    scene.runs_shell(WORKS)
    issue = scene.issue()
    box.write(
        f"{scene.home}/.config/systemd/user/task-.service.d/hold.conf",
        "[Service]\nExecStartPre=/bin/sh -c 'until [ -e ~/go ]; do sleep 0.05; done'\n",
        owner=scene.account,
    )
    done = scene.gtrun("dispatch", "me", issue, check=69)
    assert f"task-{issue}.service was asked for on me, and what came of it is not known" in done.err
    assert [attempt[:2] for attempt in scene.attempts(issue)] == [(None, None)]
    scene.gtrun("dispatch", "me", issue, check=11)
    scene.sh("touch ~/go")
    box.wait_for("the started marker", lambda: scene.kinds(issue) == ["started"])
    scene.gtrun("reconcile")
    assert [attempt[:2] for attempt in scene.attempts(issue)] == [("started", 0), ("refused", 11)]
    scene.gtrun("stop", issue)


MUTANTS = [
    Mutant(
        "attempt recorded after the start",
        [Edit("dispatch.py", BEGINS + TELLS + STARTS, TELLS + STARTS + "    " + BEGINS)],
        killed_after_the_start,
        r"attempts \[\]",
        setup=[AFTER_START.edit],
    ),
    Mutant(
        "a worker that died taken for a failed launch",
        [
            Edit(
                "reach/worker.py",
                '        return ManagerSilent(\n            f"the process',
                '        return GtrunError(\n            f"the process',
            )
        ],
        worker_killed_after_the_start,
        r"exit code 1: gtrun: the process that acts for alice went away",
        setup=[IN_WORKER_AFTER_START.edit],
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
