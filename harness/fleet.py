"""Several agents that are accounts of one box, for which root dispatches: what scenarios of the fleet begin with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from harness.box import Box, Completed
from harness.scene import Scene

BOARD = "/srv/gtrun/board"
WORKS = "echo ready > ~/ready; exec sleep 60"

FleetBox = partial(Box, group="gtrun")
"""A box whose accounts have a group in common, for the board."""


def root_of(box: Box, script: str = WORKS, *, claim: str = "", agents: Sequence[str] = ("alice", "bob")) -> Scene:
    """Root, with an agent for each account, which runs a shell script; `claim` is TOML of [claim]."""
    box.run("install", "-d", "-m", "2770", "-g", "gtrun", BOARD)
    tables = "".join(f'[agents.{name}]\nrig = "box"\naccount = "{name}"\n' for name in agents)
    box.write(
        "/etc/gtrun/fleet.toml",
        f'[board]\npath = "{BOARD}/board.db"\n[claim]\n{claim}\n[run]\ncommand = {json.dumps(["sh", "-c", script])}\n'
        f"[rigs.box]\n{tables}",
    )
    return Scene(box, "root")


def opened(box: Box) -> list[str]:
    """What guards that failed open have written to the journal, oldest first."""
    return box.journal("-o", "cat", "--output-fields=MESSAGE", "GTRUN_VERDICT=open").splitlines()


def open_lines(done: Completed) -> list[str]:
    """The lines of a command's stderr that say that a guard failed open."""
    return [line for line in done.err.splitlines() if " guard failed open: " in line]
