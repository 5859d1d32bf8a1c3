"""The benchmark's figures as a person reads them. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

LIVES = {
    "dispatch_to_agent": "typed → agent's first instruction",
    "unit_to_agent": "unit's start → agent's first instruction",
    "end_to_gone": "agent's end → closed out, name free",
}


@dataclass(frozen=True, slots=True)
class Spread:
    """What many rounds came to, in their unit."""

    median: float
    p10: float
    p90: float
    least: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of two or more values."""
        tenths = statistics.quantiles(values, n=10, method="inclusive")
        return cls(statistics.median(values), tenths[0], tenths[-1], min(values))

    def document(self) -> dict[str, float]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure and the most that it should be."""

    what: str
    value: float
    most: float

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "is_met": self.value <= self.most}


def lines(report: dict[str, Any]) -> Iterator[str]:
    """The report as a table: milliseconds, medians first."""
    machine = report["machine"]
    yield (
        f"{report['rounds']} rounds, interleaved, after warm-ups; {machine['systemd']}, {machine['python']}, "
        f"{machine['cpus']} CPUs, load {machine['load']:.1f}, commit {machine['commit']}"
    )
    heads = ("median", "p10", "p90", "min", "CPU", "/ floor", "/ proc run")
    yield f"\n{'whole process, ms':41}" + "".join(f"{head:>11}" for head in heads)
    for row in report["commands"]:
        cells = [*_milliseconds(row["wall"]), row["cpu"]["median"] * 1000]
        yield _row(row["name"], cells) + f"{row['to_floor']:11.2f}{row['to_peer']:11.2f}"
    yield f"\n{'one run, ms':41}" + "".join(f"{head:>11}" for head in heads[:4])
    for row in report["lives"]:
        yield _row(LIVES[row["name"]], _milliseconds(row["wall"]))
    yield f"\n{'goals':52}{'value':>11}{'at most':>11}"
    for goal in report["goals"]:
        yield f"{goal['what']:52}{goal['value']:11.3g}{goal['most']:11.3g}  {'met' if goal['is_met'] else 'MISSED'}"
    for line in report["beside_the_agent"]:
        yield f"  beside the agent: {line}"


def _milliseconds(spread: dict[str, float]) -> list[float]:
    return [spread[key] * 1000 for key in ("median", "p10", "p90", "least")]


def _row(name: str, milliseconds: Sequence[float]) -> str:
    return f"{name:41}" + "".join(f"{value:11.1f}" for value in milliseconds)
