"""Dispatchers start up in turn, so that whoever holds the claim lock has a CPU to do it with."""

from __future__ import annotations

import pytest

from harness.box import Box
from harness.conftest import MakeBox
from harness.control import Edit, Mutant, kill
from harness.fleet import FleetBox, opened, root_of
from harness.scenarios.test_start import answer

PYTHON = "/opt/gtrun/bin/python"
HOLDS = """
import fcntl, os, sys
for number in range(len(os.sched_getaffinity(0))):
    fcntl.flock(os.open(f"/root/.local/state/gtrun/starting.{number}", os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
print("holds", flush=True)
sys.stdin.read()
"""


def waits_for_a_place(box: Box) -> None:
    """While every place is taken a dispatch waits, with nothing asked; when they are free it starts its run."""
    root = root_of(box)
    first, second = root.issue(), root.issue()
    root.gtrun("dispatch", "alice", first)
    holder = box.spawn(PYTHON, "-c", HOLDS)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"holds\n"
    typed = box.spawn("gtrun", "dispatch", "bob", second)
    box.wait_for(
        "a dispatch that waits, or is over",
        lambda: "-> FLOCK" in box.run("cat", "/proc/locks").out or typed.poll() is not None,
        timeout=20,
    )
    attempts = root.attempts(second)
    holder.communicate()
    done = answer(typed)
    assert attempts == [], f"it did not wait: {attempts}"
    assert done.code == 0, done.err
    assert opened(box) == []
    root.gtrun("stop", "--all")


def test_waits_for_a_place(make_box: MakeBox) -> None:
    waits_for_a_place(make_box(group="gtrun"))


MUTANTS = [
    Mutant(
        "no turns",
        [Edit("cli/boundary.py", "            with turn() as over:\n", "            if over := print:\n")],
        waits_for_a_place,
        "it did not wait",
        boot=FleetBox,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    kill(mutant)
