"""The planner depends on what it is given, and on nothing else."""

import ast

from tests.test_layers import PACKAGE, modules, used, within

ALLOWED = (
    "collections", "datetime.UTC", "datetime.datetime", "enum", "math.ceil", "typing", "msgspec",
    *(f"gtrun.{room}" for room in (
        "planner", "counters", "config", "board.standing", "measures", "model", "names", "quota", "exits")),
)  # fmt: skip


def test_it_imports_no_clock_no_file_no_chance_and_no_connection():
    trees = modules(PACKAGE)
    looked_at = {name: tree for name, tree in trees.items() if within(name, ("planner", "counters"))}
    assert len(looked_at) > 4
    for name, tree in looked_at.items():
        assert [one for one in used(tree, trees) if not within(one, ALLOWED)] == [], name
        calls = {
            node.func.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        assert not calls & {"now", "utcnow", "today"}, name
