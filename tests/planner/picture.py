"""The picture of a day: what the agents do, and how much work waits, as one SVG file without any tool."""

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, LEFT, RIGHT = 940, 60, 170
TOP, HIGH, LOW, GAP = 40, 260, 130, 50
COLOURS = {
    "working": "#3b7a57",
    "waiting out": "#e3a857",
    "dark": "#3d3d5c",
    "unreachable": "#b5443c",
    "paused": "#9a9a9a",
    "free": "#dcebe2",
}
TOLD = {"waiting out": "settling, backing off", "dark": "quota used up", "free": "free, nothing ready"}
QUEUE, URGENT = "#1f4e79", "#b5443c"


@dataclass(frozen=True, slots=True)
class Moment:
    """One pass: how many agents do what, how many ready issues wait, and how many of those are P0."""

    hour: float
    states: dict[str, int]
    waiting: int
    urgent: int


def draw(moments: Sequence[Moment], about: str) -> str:
    """The whole picture."""
    agents = max(sum(one.states.values()) for one in moments)
    hours = max(one.hour for one in moments)
    most = max(1, *(one.waiting for one in moments))
    kept = list(moments[:: max(1, len(moments) // 360)])
    inner = WIDTH - LEFT - RIGHT

    def x(one: Moment) -> float:
        return LEFT + inner * one.hour / hours

    def y(value: float) -> float:
        return TOP + HIGH * (1 - value / agents)

    bottom = TOP + HIGH + GAP + LOW

    def lower(value: float) -> float:
        return bottom - LOW * value / most

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 45}" font-size="12"',
        f' width="{WIDTH}" height="{bottom + 45}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{bottom + 45}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">A day on paper: {about}</text>',
    ]
    base = [0] * len(kept)
    for row, (state, colour) in enumerate(COLOURS.items()):
        top = [below + one.states.get(state, 0) for below, one in zip(base, kept, strict=True)]
        there = [f"{x(one):.1f},{y(value):.1f}" for one, value in zip(kept, top, strict=True)]
        back = [f"{x(one):.1f},{y(value):.1f}" for one, value in zip(kept, base, strict=True)]
        parts.append(f'<polygon fill="{colour}" points="{" ".join([*there, *reversed(back)])}"/>')
        at = TOP + HIGH - 20 * (row + 1)
        parts.append(f'<rect x="{WIDTH - RIGHT + 8}" y="{at}" width="12" height="12" fill="{colour}" stroke="#888"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 25}" y="{at + 10}">{TOLD.get(state, state)}</text>')
        base = top
    for colour, told, value, row in (
        (QUEUE, "ready, waiting", lambda one: one.waiting, 0),
        (URGENT, "of these, P0", lambda one: one.urgent, 1),
    ):
        line = " ".join(f"{x(one):.1f},{lower(value(one)):.1f}" for one in kept)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{line}"/>')
        at = bottom - LOW + 15 + 20 * row
        parts.append(
            f'<line x1="{WIDTH - RIGHT + 8}" x2="{WIDTH - RIGHT + 20}" y1="{at}" y2="{at}" stroke="{colour}"/>'
        )
        parts.append(f'<text x="{WIDTH - RIGHT + 25}" y="{at + 4}">{told}</text>')
    for low, high, name in ((TOP + HIGH, agents, "agents"), (bottom, most, "issues")):
        tall = HIGH if low == TOP + HIGH else LOW
        parts.append(f'<path d="M{LEFT},{low - tall} V{low} H{WIDTH - RIGHT}" fill="none" stroke="#444"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{low - tall + 10}" text-anchor="end">{high:,}</text>')
        parts.append(f'<text x="{LEFT - 8}" y="{low}" text-anchor="end">0</text>')
        parts.append(f'<text x="{LEFT - 8}" y="{low - tall / 2}" text-anchor="end">{name}</text>')
    for hour in range(0, int(hours) + 1, 3):
        at = LEFT + inner * hour / hours
        parts.append(f'<text x="{at:.0f}" y="{bottom + 18}" text-anchor="middle">{hour}:00</text>')
    return "\n".join([*parts, "</svg>", ""])
