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

COUNTS = [1, 2, 4, 8, 16, 32]
AGENTS = [f"agent{number}" for number in range(1, COUNTS[-1] + 1)]
FAR = ["far1", "far2"]
HOST = "127.0.0.1"
UNITS = [1, 200, 1000, 2000]
AT_ONCE, EACH = 20, 10
PROBES = 100
PYTHON, GTRUN = "/opt/gtrun/bin/python", "/opt/gtrun/bin/gtrun"
MAX_SECONDS = 900.0


def measure(rounds: int, floor: str, describe: Callable[[Box], dict[str, Any]]) -> dict[str, Any]:
    """Everything that was measured and its goals, as one document. Raises BoxError."""
    with Box(accounts=[*AGENTS, *FAR], group="gtrun") as box:
        box.run("install", "-d", "-m", "2770", "-g", "gtrun", BOARD)
        config = {count: f"/etc/gtrun/{count}.toml" for count in COUNTS}
        for count, path in config.items():
            box.write(path, _fleet(AGENTS[:count], []))
        units = {count: f"/etc/gtrun/units-{count}.toml" for count in UNITS}
        for number, path in enumerate(units.values()):
            box.write(path, _fleet(AGENTS[4 * number : 4 * number + 4], []))
        far = "/etc/gtrun/far.toml"
        box.write(far, _fleet(AGENTS[:4], FAR))
        _open_masters(box)
        box.write("/opt/bench/inside.py", Path(__file__).with_name("fleet_inside.py").read_text())
        plan = {
            "config": config, "far": far, "floor": floor, "rounds": rounds, "at_once": AT_ONCE, "each": EACH,
            "units": units, "probes": PROBES,
        }  # fmt: skip
        process = box.spawn(PYTHON, "/opt/bench/inside.py", stderr=None)
        output, _ = process.communicate(json.dumps(plan).encode(), timeout=MAX_SECONDS)
        if process.returncode != 0:
            raise BoxError(f"the measuring program in the box ended with {process.returncode}")
        machine = describe(box)
    return _report(json.loads(output), machine)


def _fleet(here: list[str], far: list[str]) -> str:
    rigs = {"here": (here, ""), "far": (far, f'host = "{HOST}"\ngtrun = "{GTRUN}"\n')}
    tables = "".join(
        f"[rigs.{rig}]\n{settings}" + "".join(f'[agents.{name}]\nrig = "{rig}"\naccount = "{name}"\n' for name in names)
        for rig, (names, settings) in rigs.items()
        if names
    )
    return f'[board]\npath = "{BOARD}/board.db"\n[run]\ncommand = ["true"]\n{tables}'


def _open_masters(box: Box) -> None:
    """Connections that are there already, as ssh_config(5) has them for whoever wants its ssh to be warm."""
    box.write("/root/.ssh/config", f"Host {HOST}\nControlPath /root/.ssh/%r.master\n", mode=0o600)
    for name in FAR:
        box.allow_ssh("root", name)
        box.run("ssh", "-fNM", f"-E/root/.ssh/{name}.log", f"{name}@{HOST}")


def _report(figures: dict[str, Any], machine: dict[str, Any]) -> dict[str, Any]:
    by_units = {int(count): seconds for count, seconds in figures["probe_units"].items()}
    by_agents = {int(count): seconds for count, seconds in figures["probe_agents"].items()}
    burst, far_burst = figures["burst"], figures["far_burst"]
    ratio = statistics.median(figures["dispatch"]) / statistics.median(figures["floor"])
    lost = sum(one[what] for one in (burst, far_burst) for what in ("lost", "doubled"))
    goals = [
        Goal("lock held, 4 agents here, median, s", statistics.median(figures["held"]), 0.015),
        Goal("lock held, 2 more over warm ssh, median, s", statistics.median(figures["far_held"]), 0.04),
        Goal(f"lock held, {AT_ONCE} dispatchers at once, p99, s", _p99(burst["held"]), 0.1),
        Goal("dispatch with 4 agents in other accounts / floor", ratio, 3.0),
        Goal(f"what {UNITS[-1]} units per agent add to the probe, s", by_units[UNITS[-1]] - by_units[UNITS[0]], 0.001),
        Goal("guards opened in the bursts", burst["opened"] + far_burst["opened"], 0),
        Goal("dispatches lost or doubled in the bursts", lost, 0),
    ]
    measured = {
        **{key: figures[key] for key in ("floor", "dispatch", "held", "far_dispatch", "far_held")},
        **{f"{name}_{key}": figures[name][key] for name in ("burst", "far_burst") for key in ("held", "waited")},
    }
    return {
        "schema": 1,
        "machine": machine,
        "rounds": len(figures["held"]),
        "spreads": {key: {**Spread.of(seconds).document(), "p99": _p99(seconds)} for key, seconds in measured.items()},
        "burst_rate": AT_ONCE * EACH / burst["seconds"],
        "far_burst_rate": AT_ONCE * EACH / far_burst["seconds"],
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
    "dispatch": "gtrun dispatch, 4 agents here",
    "held": "  lock held",
    "far_dispatch": "gtrun dispatch, 2 more over warm ssh",
    "far_held": "  lock held",
    "burst_held": f"{AT_ONCE} at once, 4 agents: lock held",
    "burst_waited": "  lock waited for",
    "far_burst_held": f"{AT_ONCE} at once, 2 more: lock held",
    "far_burst_waited": "  lock waited for",
}


def lines(report: dict[str, Any]) -> Iterator[str]:
    """The report as a table: milliseconds, medians first."""
    machine = report["machine"]
    yield (
        f"{report['rounds']} rounds; {machine['systemd']}, {machine['python']}, {machine['cpus']} CPUs, "
        f"load {machine['load']:.1f}, commit {machine['commit']}"
    )
    yield f"\n{'fleet, as root, ms':41}" + "".join(f"{h:>11}" for h in ("median", "p10", "p90", "p99", "min"))
    for key, spread in report["spreads"].items():
        cells = (spread[part] * 1000 for part in ("median", "p10", "p90", "p99", "least"))
        yield f"{NAMES[key]:41}" + "".join(f"{cell:11.1f}" for cell in cells)
    yield (
        f"{AT_ONCE * EACH} dispatches from {AT_ONCE} processes at once, a second: {report['burst_rate']:.1f} with 4 "
        f"agents here, {report['far_burst_rate']:.1f} with 2 more behind ssh"
    )
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
