"""Durations and sizes as fleet.toml spells them."""

import re

_SECONDS = {"ms": 0.001, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LARGEST = 1 << 62  # below systemd's USEC_INFINITY and CGROUP_LIMIT_MAX, which mean "no limit"


def seconds(text: str) -> float:
    """`90s`, `20m`, `2h`, `1h 30m` in seconds. Raises ValueError."""
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)(ms|min|s|m|h|d)\s*", text, re.ASCII)
    if not parts or "".join(f"{n}{u}" for n, u in parts) != re.sub(r"\s", "", text):
        raise ValueError(f'expected a duration like "90s", "20m", "2h" or "30d", found {text!r}')
    total = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if not 0 < total * 1_000_000 < _LARGEST:
        raise ValueError(f"expected a duration above zero and below {_LARGEST} µs, found {text!r}")
    return total


def size(text: str) -> int:
    """`512M`, `4G` in bytes (powers of 1024, as systemd counts). Raises ValueError."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)", text, re.ASCII)
    if not match:
        raise ValueError(f'expected a size like "512M" or "4G", found {text!r}')
    total = float(match[1]) * _BYTES[match[2]]
    if not 1 <= total < _LARGEST:
        raise ValueError(f"expected a size above zero and below {_LARGEST} bytes, found {text[:40]!r}")
    return int(total)


def left_of(wait: float, since: float, now: float) -> float:
    """How many seconds are left of a wait that began at `since`.

    The clock may have been set back meanwhile, and what lies ahead then counts as now. What lies further ahead than the
    wait is long was read from a clock that was wrong: whoever believed it would wait until that time comes.
    """
    return 0.0 if since - now > wait else max(0.0, wait - max(0.0, now - since))


def human_seconds(value: float) -> str:
    """A duration for people: `0.42s`, `12s`, `3m 20s`, `2h 5m`."""
    if value < 10:
        return f"{value:.2f}s".replace(".00s", "s")
    whole = round(value)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60}m"
    return f"{whole // 86400}d {whole % 86400 // 3600}h"


def human_bytes(value: int) -> str:
    """A size for people: `812K`, `1.4G`."""
    amount = float(value)
    for unit in ("B", "K", "M", "G"):
        if amount < 1024:
            return f"{amount:.0f}{unit}" if amount >= 10 or unit == "B" else f"{amount:.1f}{unit}"
        amount /= 1024
    return f"{amount:.1f}T"
