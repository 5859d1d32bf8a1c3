"""Mutation controls: a scenario's own assertion must die when the guard it is about is broken, and for that reason.

A mutant is a change of the product's source in one box only. Its control plays the scenario three times, each in a
fresh box: as the product is (passes), mutated (must fail, by an assertion whose message matches `dies_of`), and as the
product is again. A crash, a time-out or any other error in the mutated box is no kill.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytest

from harness.box import Box
from harness.pair import Pair
from harness.scene import PACKAGE

Scenario = Callable[[Any], None]
"""Of a Box, or of whatever its mutant's `boot` makes."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One occurrence of `old` in a file of the package becomes `new`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken guard, the scenario that must notice, and what its assertion says then (a regular expression).

    `setup` edits are made in all three boxes: a barrier between check and act, where the interleaving must be forced.
    `boot` makes the boxes: of another systemd, where only that one shows the fault; or two at a time, as a Pair.
    """

    name: str
    edits: Sequence[Edit]
    scenario: Scenario
    dies_of: str
    setup: Sequence[Edit] = ()
    boot: Callable[[], AbstractContextManager[Box | Pair]] = Box

    def __str__(self) -> str:
        return self.name


def prepare(box: Box | Pair, edits: Sequence[Edit]) -> None:
    """Change the package in this box, or in both."""
    for edit in edits:
        box.replace(f"{PACKAGE}/{edit.file}", edit.old, edit.new)


def kill(mutant: Mutant) -> str:
    """Play the control; returns the assertion's message. Fails if the mutant lives or dies of something else."""

    def play(edits: Sequence[Edit]) -> None:
        with mutant.boot() as box:
            prepare(box, [*mutant.setup, *edits])
            mutant.scenario(box)

    play(())
    try:
        play(mutant.edits)
    except AssertionError as error:
        said = str(error)
    else:
        pytest.fail(f"mutant {mutant.name!r} lives: its scenario passed", pytrace=False)
    if not re.search(mutant.dies_of, said):
        pytest.fail(f"mutant {mutant.name!r} died, but not of /{mutant.dies_of}/:\n{said}", pytrace=False)
    play(())
    return said
