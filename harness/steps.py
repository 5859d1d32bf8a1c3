"""Stopping the product at one of its steps in one run: there it is killed, or waits until it is let go.

    steps = instrument(box, "runner/run.py", ["append", "post_owed"])
    die_at(scene, issue, steps[0])

A step is the moment before or after a statement that calls one of the named functions. The statements are found in
the source as it is, so that a new call is a new step.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from harness.box import Box
from harness.scene import PACKAGE, Scene

_MODULE = """\
import json
import os
import signal
import sys
import time

from gtrun.names import decode_path


def here(step):
    if sys.argv[1:2] not in (["run"], ["closeout"]):
        return
    step = f"{sys.argv[1]} {step}"
    record = decode_path(sys.argv[2])
    with open(record if os.path.exists(record) else record.replace("/open/", "/closed/")) as file:
        issue = json.loads(file.readline())["run"]["issue"]["key"]
    plan = os.path.expanduser(f"~/plan-{issue}")
    try:
        with open(plan) as file:
            what, _, wanted = file.read().partition(" ")
    except FileNotFoundError:
        return
    if wanted != step:
        return
    if what == "hold":
        open(os.path.expanduser(f"~/held-{issue}"), "w").close()
        while os.path.exists(plan):
            time.sleep(0.01)
        return
    open(os.path.expanduser(f"~/died-{issue}"), "w").close()
    if what == "once":
        os.unlink(plan)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def instrument(box: Box, file: str, functions: Collection[str]) -> list[str]:
    """Make a stop before and after every statement of a file that calls one of the functions; returns their names."""
    (package,) = box.path("/").glob(PACKAGE.lstrip("/"))
    (package / "steps.py").write_text(_MODULE)
    path = package / file
    lines = path.read_text().splitlines(keepends=True)
    names = []
    for statement, function in reversed(list(_statements(ast.parse("".join(lines)), functions))):
        name = f"{path.stem}:{statement.lineno}:{function}"
        indent = " " * statement.col_offset
        for moment, line in (("after", statement.end_lineno or 0), ("before", statement.lineno - 1)):
            lines.insert(line, f'{indent}__import__("gtrun.steps").steps.here("{moment} {name}")\n')
            names.append(f"{moment} {name}")
    path.write_text("".join(lines))
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()
    return names[::-1]


def _statements(tree: ast.AST, functions: Collection[str]) -> Iterator[tuple[ast.stmt, str]]:
    for node in sorted(ast.walk(tree), key=lambda node: getattr(node, "lineno", 0)):
        if isinstance(node, ast.Expr | ast.Assign) and isinstance(node.value, ast.Call):
            called = node.value.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in functions:
                yield node, name


def die_at(scene: Scene, issue: str, step: str, *, once: bool = False) -> None:
    """The process of this issue's runs that comes to the step is killed there; `once`: only the first."""
    _plan(scene, issue, f"{'once' if once else 'always'} {step}")


def hold_at(scene: Scene, issue: str, step: str) -> None:
    """The process of this issue's run that comes to the step waits there for `let_go`."""
    _plan(scene, issue, f"hold {step}")


def _plan(scene: Scene, issue: str, plan: str) -> None:
    scene.box.write(f"{scene.home}/plan-{issue}", plan, owner=scene.account)


def let_go(scene: Scene, issue: str) -> None:
    """Nothing of this issue's runs is held or killed any more."""
    scene.box.path(f"{scene.home}/plan-{issue}").unlink(missing_ok=True)


def is_held(scene: Scene, issue: str) -> None:
    """Wait until a process is held."""
    scene.appears(f"{scene.home}/held-{issue}", timeout=20)


def has_died(scene: Scene, issue: str) -> bool:
    """Whether a process was killed at its step."""
    return scene.box.path(f"{scene.home}/died-{issue}").exists()
