"""What the fleet's claim costs: the lock, the probe, a cold dispatch with agents in other accounts, and a burst."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.bench.table import Goal, Spread
from harness.box import Box, BoxError
from harness.fleet import BOARD

AGENTS = [f"agent{number}" for number in range(1, 9)]
UNITS = [1, 200, 1000, 2000]
AT_ONCE, EACH = 20, 10
PROBES = 100
PYTHON = "/opt/gtrun/bin/python"
MAX_SECONDS = 600.0


def measure(rounds: int, floor: str, describe: Callable[[Box], dict[str, Any]]) -> dict[str, Any]:
    """Everything that was measured and its goals, as one document. Raises BoxError."""
    with Box(accounts=AGENTS, group="gtrun") as box:
        box.run("install", "-d", "-m", "2770", "-g", "gtrun", BOARD)
        config = {count: f"/etc/gtrun/{count}.toml" for count in (1, 2, 4, 8)}
        for count, path in config.items():
            tables = "".join(f'[agents.{name}]\nrig = "box"\naccount = "{name}"\n' for name in AGENTS[:count])
            box.write(path, f'[board]\npath = "{BOARD}/board.db"\n[run]\ncommand = ["true"]\n[rigs.box]\n{tables}')
        box.write("/opt/bench/inside.py", Path(__file__).with_name("fleet_inside.py").read_text())
        plan = {
            "config": config, "floor": floor, "rounds": rounds, "at_once": AT_ONCE, "each": EACH, "units": UNITS,
            "probes": PROBES,
        }  # fmt: skip
        process = box.spawn(PYTHON, "/opt/bench/inside.py", stderr=None)
        output, _ = process.communicate(json.dumps(plan).encode(), timeout=MAX_SECONDS)
        if process.returncode != 0:
            raise BoxError(f"the measuring program in the box ended with {process.returncode}")
        machine = describe(box)
    return _report(json.loads(output), machine)


def _report(figures: dict[str, Any], machine: dict[str, Any]) -> dict[str, Any]:
    by_units = {int(count): seconds for count, seconds in figures["probe_units"].items()}
    by_agents = {int(count): seconds for count, seconds in figures["probe_agents"].items()}
    ratio = statistics.median(figures["dispatch"]) / statistics.median(figures["floor"])
    goals = [
        Goal("lock held, 4 agents here, median, s", statistics.median(figures["held"]), 0.015),
        Goal(f"lock held, {AT_ONCE} dispatchers at once, p99, s", _p99(figures["burst_held"]), 0.1),
        Goal("dispatch with 4 agents in other accounts / floor", ratio, 3.0),
        Goal("guards opened in the burst", figures["opened"], 0),
        Goal("dispatches lost or doubled in the burst", figures["lost"] + figures["doubled"], 0),
    ]
    return {
        "schema": 1,
        "machine": machine,
        "rounds": len(figures["held"]),
        "spreads": {
            key: Spread.of(figures[key]).document()
            for key in ("floor", "dispatch", "held", "burst_held", "burst_waited")
        },
        "burst_rate": AT_ONCE * EACH / figures["burst_seconds"],
        "probe_by_units": by_units,
        "probe_by_agents": by_agents,
        "slope_per_unit": _slope(by_units),
        "slope_per_agent": _slope(by_agents),
        "goals": [goal.document() for goal in goals],
    }


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[-1]


def _slope(points: dict[int, float]) -> float:
    """Seconds for each further one, by least squares."""
    return statistics.linear_regression(list(points), list(points.values())).slope


NAMES = {
    "floor": "floor: pystemd, one start",
    "dispatch": "gtrun dispatch, 4 agents, as root",
    "held": "lock held",
    "burst_held": f"lock held, {AT_ONCE} dispatchers at once",
    "burst_waited": f"lock waited for, {AT_ONCE} at once",
}


def lines(report: dict[str, Any]) -> Iterator[str]:
    """The report as a table: milliseconds, medians first."""
    machine = report["machine"]
    yield (
        f"{report['rounds']} rounds; {machine['systemd']}, {machine['python']}, {machine['cpus']} CPUs, "
        f"load {machine['load']:.1f}, commit {machine['commit']}"
    )
    yield f"\n{'fleet: 4 agents in accounts here, ms':41}" + "".join(
        f"{h:>11}" for h in ("median", "p10", "p90", "min")
    )
    for key, spread in report["spreads"].items():
        cells = (spread[part] * 1000 for part in ("median", "p10", "p90", "least"))
        yield f"{NAMES[key]:41}" + "".join(f"{cell:11.1f}" for cell in cells)
    yield f"{AT_ONCE * EACH} dispatches from {AT_ONCE} processes at once: {report['burst_rate']:.1f} a second"
    for what, key, slope in (
        ("agents", "probe_by_agents", "slope_per_agent"),
        ("loaded units per agent, 4 agents", "probe_by_units", "slope_per_unit"),
    ):
        yield f"\nprobe by {what}, ms"
        yield "".join(f"{count:11}" for count in report[key])
        yield "".join(f"{seconds * 1000:11.2f}" for seconds in report[key].values()) + (
            f"   slope {report[slope] * 1e6:.2f} µs for each"
        )
    yield f"\n{'goals':52}{'value':>11}{'at most':>11}"
    for goal in report["goals"]:
        yield f"{goal['what']:52}{goal['value']:11.3g}{goal['most']:11.3g}  {'met' if goal['is_met'] else 'MISSED'}"
