"""The operations are found where they are written, and nobody who dispatches imports the rare ones."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from gtrun.reach import operations
from gtrun.reach.operations import Session

TREE = ast.parse(Path(operations.__file__).read_text())
TYPED = {
    alias.name: str(node.module)
    for block in ast.walk(TREE)
    if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
    for node in block.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
RARE = {"delivery", "ending", "glancing", "lost", "printing", "stashes", "unit_files", "verifying"}


@pytest.mark.parametrize("name", sorted(set(operations.__all__) - {"by_name"}))
def test_each_name_is_what_mypy_takes_it_for(name):
    assert getattr(operations, name) is getattr(importlib.import_module(TYPED[name]), name)


def test_what_can_be_asked_for_are_the_operations_and_nothing_else():
    taken = {
        name
        for name in TYPED
        if inspect.isfunction(function := getattr(operations, name))
        and list(inspect.signature(function).parameters.items())[:1] == [("session", session_parameter())]
        and list(inspect.signature(function).parameters) == ["session", "arguments"]
    }
    assert len(taken) > 25
    for name in taken:
        assert operations.by_name(name) is getattr(operations, name)
    for name in set(TYPED) - taken | {"none", "__getattr__", "_imported"}:
        with pytest.raises(KeyError):
            operations.by_name(name)
    assert not hasattr(operations, "none")


def session_parameter():
    return inspect.Parameter("session", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Session)


def test_a_dispatch_imports_what_it_asks_for():
    code = (
        "import sys, gtrun.cli.dispatching\n"
        "from gtrun.reach.operations import Session, looking, quota, starting\n"  # as a worker does
        "print(*(m.rpartition('.')[2] for m in sys.modules if m.startswith('gtrun.reach.operations.')))\n"
    )
    done = subprocess.run([sys.executable, "-Ic", code], capture_output=True, text=True, check=True, timeout=60)
    assert set(done.stdout.split()) & RARE == set()
