"""A full disk before any one write of a dispatch, a runner or a close-out: nothing is lost, and what failed is said."""

from __future__ import annotations

import re

import pytest

from harness import writes
from harness.box import Box
from harness.scenarios.test_closeout import all_kinds, records
from harness.scene import Scene

BOTH = ["started", "finished"]
PROCESSES = ("dispatch", "dispatch-worker", "run", "closeout")
NEEDS_NO_ROOM = {"fsync", "fdatasync", "unlink", "execve"}
NO_SPACE = re.compile(r"no space is left for|No space left on device")


def disk_is_full_at_every_write(box: Box) -> None:
    """State and board lie on one small disk. A dispatch that says 0 has a run, whose truth is told once there is room;
    any other says why, leaves nothing, and works when it is repeated.
    """
    scene = Scene(box)
    disk = f"{scene.home}/.local"
    box.mount_small(disk, 3 << 20, scene.account)
    writes.count(box)
    scene.runs_shell("exit 3")
    scene.gtrun("dispatch", "me", scene.issue())  # the ledger is there, as for most dispatches
    plans = []
    for who in PROCESSES:
        issue = scene.issue(who)
        writes.trace(scene, issue, who)
        scene.gtrun("dispatch", "me", issue)
        scene.idle()
        names = writes.traced(scene, issue)
        assert names, who
        plans += [(who, step, name) for step, name in enumerate(names, 1) if name.split()[0] not in NEEDS_NO_ROOM]
    assert len(plans) >= 20, plans
    told = {}
    for who, step, name in plans:
        where = f"{who} before write {step}, {name}"
        issue = scene.issue(where)
        writes.plan(scene, issue, who, step, "fill", folder=disk)
        done = scene.gtrun("dispatch", "me", issue, check=None)
        scene.idle()
        assert writes.was_met(scene, issue), where
        scene.sh(f"rm {disk}/filler")
        assert done.code in {0, 1}, f"{where}: exit code {done.code}: {done.err}"
        assert done.code == 0 or NO_SPACE.search(done.err), f"{where}: {done.err}"
        told[issue] = (where, done.code)
    assert {code for _, code in told.values()} == {0, 1}, told
    scene.gtrun("reconcile")
    assert scene.gtrun("reconcile").out == "nothing is owed any more\n"
    assert scene.open_records() == []
    kinds = all_kinds(scene)
    for issue, (where, code) in told.items():
        facts = [fact for _, told_there in records(scene, issue) for fact in told_there]
        endings = [(one["ending"]["result"], one["ending"]["exit_code"]) for one in facts if one["type"] == "ended"]
        wanted = ([("failed", 3)], BOTH) if code == 0 else ([], [])
        found = endings, kinds.get(issue, [])
        assert found == wanted, f"{where}: endings and markers are {found}"
        if where.startswith("dispatch"):
            outcomes = [outcome for outcome, *_ in scene.attempts(issue)]
            assert set(outcomes) <= {"started" if code == 0 else "failed"}, f"{where}: {outcomes}"
        if code == 1:
            scene.gtrun("dispatch", "me", issue)
    scene.idle()


@pytest.mark.expects_fail_open
def test_disk_is_full_at_every_write(box: Box) -> None:
    disk_is_full_at_every_write(box)
