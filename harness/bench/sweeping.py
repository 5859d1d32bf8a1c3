"""What a pass of the scheduler costs: the launches of one sweep, and the plan for many issues and agents."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.bench.table import Goal, Spread
from harness.box import Box, BoxError
from harness.fleet import BOARD

AGENTS = [f"agent{number}" for number in range(1, 9)]
EACH = 5
ISSUES = [2_500, 5_000, 10_000]
MANY = [f"a{number}" for number in range(1, 101)]
PYTHON = "/opt/gtrun/bin/python"
MAX_SECONDS = 900.0
SLOWEST = 0.2
"""Seconds a launch: the goal is five a second."""


def measure(rounds: int, describe: Callable[[Box], dict[str, Any]]) -> dict[str, Any]:
    """Everything that was measured and its goals, as one document. Raises BoxError."""
    with Box(accounts=AGENTS, group="gtrun") as box:
        box.run("install", "-d", "-m", "2770", "-g", "gtrun", BOARD)
        config = "/etc/gtrun/fleet.toml"
        box.write(config, _fleet("board", AGENTS, EACH))
        planned = {count: f"/etc/gtrun/{count}.toml" for count in ISSUES}
        for count, path in planned.items():
            box.write(path, _fleet(str(count), MANY, 1))
        box.write("/opt/bench/inside.py", Path(__file__).with_name("sweeping_inside.py").read_text())
        plan = {"config": config, "rounds": rounds, "runs": EACH * len(AGENTS), "planned": planned}
        process = box.spawn(PYTHON, "/opt/bench/inside.py", stderr=None)
        output, _ = process.communicate(json.dumps(plan).encode(), timeout=MAX_SECONDS)
        if process.returncode != 0:
            raise BoxError(f"the measuring program in the box ended with {process.returncode}")
        machine = describe(box)
    return _report(json.loads(output), machine)


def _fleet(board: str, agents: list[str], slots: int) -> str:
    tables = "".join(f'[agents.{name}]\naccount = "{name}"\nmax_runs = {slots}\n' for name in agents)
    return (
        f'[board]\npath = "{BOARD}/{board}.db"\n[run]\ncommand = ["sleep", "infinity"]\n[rigs.here]\n'
        f'[schedule]\nsettle = "0s"\n{tables}'
    )


def _report(figures: dict[str, Any], machine: dict[str, Any]) -> dict[str, Any]:
    launch = [seconds / (EACH * len(AGENTS)) for seconds in figures["sweeps"]]
    gaps = [gap for sweep in figures["gaps"] for gap in sweep]
    cpu = {int(count): each["cpu"] for count, each in figures["plans"].items()}
    few, many = min(ISSUES), max(ISSUES)
    goals = [
        Goal("one launch of a sweep, all of the pass shared out, s", Spread.of(launch).median, SLOWEST),
        Goal(f"CPU to plan {many} issues with {len(MANY)} agents, s", cpu[many], 1.0),
        Goal(f"CPU for {many} issues / for {few}", cpu[many] / cpu[few], 1.25 * many / few),
    ]
    return {
        "schema": 1,
        "machine": machine,
        "rounds": len(launch),
        "spreads": {name: Spread.of(values).document() for name, values in (("launch", launch), ("gap", gaps))},
        "plans": figures["plans"],
        "goals": [goal.document() for goal in goals],
    }


NAMES = {"launch": "a launch, all of the pass shared out", "gap": "from one launch to the next"}


def lines(report: dict[str, Any]) -> Iterator[str]:
    """The report as a table: milliseconds, medians first."""
    machine = report["machine"]
    yield (
        f"{report['rounds']} sweeps of {EACH * len(AGENTS)} launches; {machine['systemd']}, {machine['python']}, "
        f"{machine['cpus']} CPUs, load {machine['load']:.1f}, commit {machine['commit']}"
    )
    head = f"one sweep, {len(AGENTS)} agents in accounts here, ms"
    yield f"\n{head:46}" + "".join(f"{part:>11}" for part in ("median", "p10", "p90", "min")) + f"{'a second':>11}"
    for name, spread in report["spreads"].items():
        cells = (spread[part] * 1000 for part in ("median", "p10", "p90", "least"))
        yield f"{NAMES[name]:46}" + "".join(f"{cell:11.1f}" for cell in cells) + f"{1 / spread['median']:11.1f}"
    head = f"plan, {len(MANY)} agents, local board, CPU, ms"
    yield f"\n{head:46}" + "".join(f"{part:>11}" for part in ("board", "ledger", "plan", "all"))
    for count, plan in report["plans"].items():
        cells = (plan[part] * 1000 for part in ("board", "ledger", "plan", "cpu"))
        yield f"{count + ' ready issues':46}" + "".join(f"{cell:11.1f}" for cell in cells)
    yield f"\n{'goals':66}{'value':>11}{'at most':>11}"
    for goal in report["goals"]:
        yield f"{goal['what']:66}{goal['value']:11.3g}{goal['most']:11.3g}  {'met' if goal['is_met'] else 'MISSED'}"
