"""`python -m harness.bench [--fleet | --sweep | --update] [--rounds N] [--json FILE]`: measure in one box, print it.

Exit 0 when it measured, whatever came out; 1 when it could not; 78 without root.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness import trees
from harness.bench import fleet, sweeping, updating
from harness.bench.table import Goal, Spread, lines
from harness.box import CHECKOUT, Box, BoxError, NeedsRoot
from harness.scene import Scene

PEER = "systemd-proc==0.1.6"
WARM_UPS = 3
MAX_SECONDS = 1800.0

FLOOR = """
from pystemd.dbuslib import DBus, apply_signature
manager = b"org.freedesktop.systemd1"
bus = DBus(user_mode=True)
bus.open()
arguments = apply_signature(b"ss", [b"bench-{round}.service", b"fail"]) + [(ord("a"), b"(sv)")]
for key, kind, value in (
    (b"Type", b"s", b"exec"),
    (b"CollectMode", b"s", b"inactive-or-failed"),
    (b"ExecStart", b"a(sasb)", [(b"/bin/true", [b"/bin/true"], False)]),
):
    arguments += [(ord("r"), b"sv"), (ord("s"), key), (ord("v"), kind)]
    arguments += apply_signature(kind, [value]) + [(-1, None), (-1, None)]
arguments += [(-1, None), (ord("a"), b"(sa(sv))"), (-1, None)]
bus.call_method(manager, b"/org/freedesktop/systemd1", manager + b".Manager", b"StartTransientUnit", arguments)
"""
"""The least that a start from Python costs: the binding, one call, no wait."""

PYTHON = "/opt/gtrun/bin/python"
FLOOR_NAME, DISPATCH_NAME, PEER_NAME = "floor: pystemd, one start", "gtrun dispatch me N", "proc run"
COMMANDS = {
    "python -c pass": [PYTHON, "-c", "pass"],
    FLOOR_NAME: [PYTHON, "-c", FLOOR],
    DISPATCH_NAME: ["gtrun", "dispatch", "me", "{issue}"],
    "gtrun dispatch --dry-run": ["gtrun", "dispatch", "--dry-run", "me", "{issue}"],
    "gtrun ps": ["gtrun", "ps"],
    PEER_NAME: ["/opt/systemd-proc/bin/python", "/opt/systemd-proc/bin/proc", "run", "bench{round}", "--", "true"],
    "systemd-run --user": ["systemd-run", "--user", "--quiet", "true"],
    "systemd-run --user --wait": ["systemd-run", "--user", "--quiet", "--wait", "true"],
    "tsp": ["tsp", "true"],
}


def main(arguments: list[str]) -> int:
    """Measure and report; returns the exit code."""
    parser = argparse.ArgumentParser("scripts/bench", description="How fast gtrun is, beside its peers, in one box.")
    parser.add_argument("--rounds", type=int, default=30, help="rounds that count, after 3 that do not (30)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument("--fleet", action="store_true", help="what the claim over several accounts costs, instead")
    parser.add_argument("--sweep", action="store_true", help="what a pass of the scheduler costs, instead")
    parser.add_argument("--update", action="store_true", help="what a run's own update costs, instead")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.update:
            report = updating.measure(chosen.rounds, _agent(), _machine)
            return _tell(report, updating.lines(report), chosen.json)
        if chosen.sweep:
            report = sweeping.measure(chosen.rounds, _machine)
            return _tell(report, sweeping.lines(report), chosen.json)
        if chosen.fleet:
            report = fleet.measure(chosen.rounds, FLOOR, _machine)
            return _tell(report, fleet.lines(report), chosen.json)
        with Box(accounts=["alice"]) as box:
            figures = _measure(box, chosen.rounds)
            machine = _machine(box)
    except NeedsRoot:
        print("bench: a box needs root; type: sudo scripts/bench", file=sys.stderr)
        return 78
    except (BoxError, OSError, subprocess.SubprocessError) as error:
        print(f"bench: it could not be measured: {error}", file=sys.stderr)
        return 1
    report = _report(figures, machine)
    return _tell(report, lines(report), chosen.json)


def _tell(report: dict[str, Any], page: Iterable[str], file: Path | None) -> int:
    if file is not None:
        file.write_text(json.dumps(report, indent=1) + "\n")
    print("\n".join(page))
    return 0


def _measure(box: Box, rounds: int) -> dict[str, Any]:
    """The figures of `inside`, which runs as alice. Raises BoxError."""
    scene = Scene(box)
    scene.configure('[run]\ncommand = ["true"]\n')
    shutil.copytree(_peer(), box.path("/opt/systemd-proc"), symlinks=True)
    box.write("/opt/bench/agent", _agent(), mode=0o755)
    box.write("/opt/bench/inside.py", Path(__file__).with_name("inside.py").read_text())
    plan = {
        "commands": [{"name": name, "argv": argv} for name, argv in COMMANDS.items()],
        "warm_ups": WARM_UPS,
        "rounds": rounds,
        "agent": "/opt/bench/agent",
    }
    process = box.spawn(PYTHON, "/opt/bench/inside.py", account=scene.account, stderr=None)
    output, _ = process.communicate(json.dumps(plan).encode(), timeout=MAX_SECONDS)
    if process.returncode != 0:
        raise BoxError(f"the measuring program in the box ended with {process.returncode}")
    figures: dict[str, Any] = json.loads(output)
    return figures


def _peer() -> Path:
    """The environment with the nearest peer, made once, with the python that gtrun has. Raises BoxError."""
    home = trees.cache() / PEER.replace("==", "-")
    if not (home / "made").exists():
        print(f"bench: installing {PEER} into {home}", file=sys.stderr)
        shutil.rmtree(home, ignore_errors=True)
        for command in (
            [sys.executable, "-m", "venv", str(home)],
            [str(home / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PEER],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise BoxError(f"{PEER} could not be installed: {done.stderr.strip()}")
        (home / "made").touch()
    return home


def _agent() -> bytes:
    """The agent program, compiled."""
    with tempfile.TemporaryDirectory(prefix="gtrun-bench-") as folder:
        program = Path(folder, "agent")
        source = Path(__file__).with_name("agent.c")
        subprocess.run(["/usr/bin/gcc", "-O2", "-Wall", "-Werror", "-o", program, source], check=True)
        return program.read_bytes()


def _machine(box: Box) -> dict[str, Any]:
    return {
        "systemd": box.run("systemctl", "--version").out.split("\n")[0],
        "python": box.run(PYTHON, "-V").out.strip(),
        "kernel": platform.release(),
        "cpus": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "commit": subprocess.run(
            ["/usr/bin/git", "-C", CHECKOUT, "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip(),
    }


def _report(figures: dict[str, Any], machine: dict[str, Any]) -> dict[str, Any]:
    """Everything that was measured, its spreads and its goals, as one document."""
    walls = {name: [round_["seconds"] for round_ in rounds] for name, rounds in figures["timings"].items()}
    median = {name: Spread.of(seconds).median for name, seconds in walls.items()}
    lives = {
        key: [life[key] for life in figures["lives"]] for key in ("dispatch_to_agent", "unit_to_agent", "end_to_gone")
    }
    beside = sorted({line for life in figures["lives"] for line in life["beside"]})
    dispatch, floor, peer = median[DISPATCH_NAME], median[FLOOR_NAME], median[PEER_NAME]
    goals = [
        Goal("dispatch / floor", dispatch / floor, 2.2),
        Goal(f"dispatch / {PEER_NAME}", dispatch / peer, 1 / 3),
        Goal("unit's start to the agent's first instruction, s", Spread.of(lives["unit_to_agent"]).median, 0.25),
        Goal("main process's end to closed out and gone, s", Spread.of(lives["end_to_gone"]).median, 0.3),
        Goal("processes of gtrun beside the working agent", len(beside), 0),
    ]
    return {
        "schema": 1,
        "machine": machine,
        "rounds": len(figures["lives"]),
        "commands": [
            {
                "name": name,
                "argv": COMMANDS[name],
                "wall": Spread.of(walls[name]).document(),
                "cpu": Spread.of([round_["cpu"] for round_ in rounds]).document(),
                "to_floor": median[name] / floor,
                "to_peer": median[name] / peer,
                "seconds": walls[name],
            }
            for name, rounds in figures["timings"].items()
        ],
        "lives": [
            {"name": key, "wall": Spread.of(seconds).document(), "seconds": seconds} for key, seconds in lives.items()
        ],
        "beside_the_agent": beside,
        "goals": [goal.document() for goal in goals],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
