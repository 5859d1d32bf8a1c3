"""Starting: the name is the mutex, and the answer is the truth."""

from __future__ import annotations

import pytest

from harness.box import Box
from harness.control import Edit, Mutant, kill
from harness.scene import Scene

WORKS = "echo ready > ~/ready; exec sleep 60"


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


def test_second_dispatch_is_refused(box: Box) -> None:
    second_dispatch_is_refused(box)


MUTANTS = [
    Mutant(
        "random unit name",
        [
            Edit(
                "names.py",
                'return UnitName(f"task-{stem}{suffix}.service")',
                'import os; return UnitName(f"task-{stem}{os.urandom(4).hex()}{suffix}.service")',
            )
        ],
        second_dispatch_is_refused,
        r"units are \['task-1[0-9a-f]{8}\.service', 'task-1[0-9a-f]{8}\.service'\]",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
