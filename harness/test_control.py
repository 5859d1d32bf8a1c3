"""The edits of the mutation controls: each must still find its place in the product, before a box is booted for it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import gtrun
from harness import scenarios
from harness.barrier import Barrier
from harness.control import Edit, Mutant

SOURCES = Path(gtrun.__file__).parent


def flat(value: object) -> Iterator[object]:
    """What is in a list, also in its tuples."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from flat(one)
    else:
        yield value


def known() -> dict[str, Sequence[Edit]]:
    """The edits that are made together, by the name of what they belong to."""
    found: dict[str, Sequence[Edit]] = {}
    for place in pkgutil.iter_modules(scenarios.__path__):
        module = importlib.import_module(f"{scenarios.__name__}.{place.name}")
        for value in vars(module).values():
            for one in flat(value):
                match one:
                    case Mutant():
                        found[f"{place.name}: {one.name}"] = [*one.setup, *one.edits]
                    case Barrier():
                        found[f"{place.name}: {one.name}"] = [one.edit]
                    case Edit():
                        found[f"{place.name}: {one.file}: {one.old.strip()[:60]}"] = [one]
    return found


def test_there_are_some() -> None:
    assert len(known()) > 100, "the controls were not found"


@pytest.mark.parametrize("name", known())
def test_each_edit_has_one_place(name: str) -> None:
    texts: dict[str, str] = {}
    for edit in known()[name]:
        text = texts.setdefault(edit.file, (SOURCES / edit.file).read_text())
        assert text.count(edit.old) == 1, f"{edit.file}: {text.count(edit.old)} occurrences of {edit.old!r}"
        texts[edit.file] = text.replace(edit.old, edit.new)
