"""What a run's own update costs: from the unit's start to the agent program's first instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from harness.bench.table import Goal, Spread
from harness.box import Box
from harness.releases import Releases
from harness.scene import Scene

NAMES = {
    "off": "with update = false",
    "nothing_new": "a fetch, nothing new",
    "one_commit": "a fetch, one new commit made a release",
}
WARM_UPS = 2
MOST = 0.6
"""Seconds: the goal for each."""


def measure(rounds: int, agent: bytes, describe: Callable[[Box], dict[str, Any]]) -> dict[str, Any]:
    """Everything that was measured and its goals, as one document; the remote is a folder. Raises BoxError."""
    seconds: dict[str, list[float]] = {name: [] for name in NAMES}
    with Box(accounts=["alice"]) as box:
        box.write("/opt/bench/agent", agent, mode=0o755)
        releases = Releases.installed(Scene(box), is_traced=False)
        for number in range(WARM_UPS + rounds):
            for name in NAMES:
                if name == "one_commit":
                    releases.push(number + 2)
                taken = _to_agent(releases, "update = false" if name == "off" else "")
                if number >= WARM_UPS:
                    seconds[name].append(taken)
        machine = describe(box)
    spreads = {name: Spread.of(taken) for name, taken in seconds.items()}
    goals = [Goal(f"unit's start to agent, {NAMES[name]}, s", spread.median, MOST) for name, spread in spreads.items()]
    return {
        "schema": 1,
        "machine": machine,
        "rounds": rounds,
        "spreads": {name: spread.document() for name, spread in spreads.items()},
        "seconds": seconds,
        "goals": [goal.document() for goal in goals],
    }


def _to_agent(releases: Releases, more: str) -> float:
    """Run one issue; seconds from the start of the unit's main process to the agent program's first instruction."""
    scene, box = releases.scene, releases.box
    told, let_go = (f"{scene.home}/{name}" for name in ("told", "let-go"))
    scene.sh(f"rm -f {told} {let_go}; mkfifo {told} {let_go}")
    releases.configure_command(["/opt/bench/agent", told, let_go], more)
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    first = int(box.path(told).read_text()) / 1e9
    name = "ExecMainStartTimestampMonotonic"
    started = int(scene.properties(f"task-{issue}.service", name)[name]) / 1e6
    box.path(let_go).write_text("x")
    scene.idle()
    return first - started


def lines(report: dict[str, Any]) -> Iterator[str]:
    """The report as a table: milliseconds, medians first."""
    machine = report["machine"]
    yield (
        f"{report['rounds']} rounds, interleaved; {machine['systemd']}, {machine['python']}, {machine['cpus']} CPUs, "
        f"load {machine['load']:.1f}, commit {machine['commit']}"
    )
    head = "unit's start → agent's first instruction, ms"
    yield f"\n{head:46}" + "".join(f"{part:>11}" for part in ("median", "p10", "p90", "min"))
    for name, spread in report["spreads"].items():
        cells = (spread[part] * 1000 for part in ("median", "p10", "p90", "least"))
        yield f"{NAMES[name]:46}" + "".join(f"{cell:11.1f}" for cell in cells)
    yield f"\n{'goals':66}{'value':>11}{'at most':>11}"
    for goal in report["goals"]:
        yield f"{goal['what']:66}{goal['value']:11.3g}{goal['most']:11.3g}  {'met' if goal['is_met'] else 'MISSED'}"
