"""Agents that the dispatching account is not: reached through ssh, and gone again, whatever the way there does."""

from __future__ import annotations

import json

import pytest

from harness.box import Box
from harness.conftest import MakeBox
from harness.scene import Scene

BOARD = "/srv/gtrun/board"
ACCOUNTS = ("ops", "alice", "bob")
GTRUN = "/opt/gtrun/bin/gtrun"


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
def ops(make_box: MakeBox) -> Scene:
    """The scene of the account that dispatches."""
    return furnish(make_box(accounts=ACCOUNTS, group="gtrun"))


def test_a_run_in_an_account_behind_ssh(ops: Scene) -> None:
    issue = ops.issue()
    done = ops.gtrun("dispatch", "alice", issue)
    assert done.err == ""
    ops.gtrun("dispatch", "alice", issue, check=11)
    ops.gtrun("dispatch", "bob", issue, check=14)
    (run,) = ops.asks("ps")["runs"]
    assert (run["agent"], run["account"], run["issue"]) == ("alice", "alice", issue)
    assert ops.asks("stop", "--all")["failed"] is False
    assert ops.kinds(issue) == ["started", "finished"]
    assert ops.results(issue) == ["stopped"]


def record_commands(box: Box, name: str) -> None:
    """From now on what ssh is asked to run as an account is in its file `asked`."""
    keys = f"/home/{name}/.ssh/authorized_keys"
    key = box.path(keys).read_text()
    script = r'printf \"%s\n\" \"$SSH_ORIGINAL_COMMAND\" >>asked; exec sh -c \"$SSH_ORIGINAL_COMMAND\"'
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


def test_the_probe_runs_nothing_of_ours_there(make_box: MakeBox) -> None:
    probe_runs_nothing_of_ours(make_box(accounts=ACCOUNTS, group="gtrun"))
