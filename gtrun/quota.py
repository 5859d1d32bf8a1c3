"""What an agent's quota state says: used up, until when, learned from what. Pure."""

from datetime import UTC, datetime

import msgspec

HORIZON = 32 * 86400.0
"""No entitlement that people sell resets later than that: a date beyond it, in seconds from now, is absurd."""


class Quota(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state file's content. `resets_at` is an RFC 3339 instant with its zone."""

    exhausted: bool
    resets_at: str | None = None
    source: str = ""


class QuotaFile(msgspec.Struct, frozen=True, kw_only=True):
    """What was read as the agent's account: the content, or nothing at all, or why it could not be read."""

    quota: Quota | None = None
    problem: str = ""


class DarkUntil(msgspec.Struct, frozen=True):
    """The quota is used up until that instant, in seconds since the epoch."""

    at: float
    source: str


def used_up(resets_at: float, source: str) -> Quota:
    """The state of an agent that is dark until that instant, in seconds since the epoch."""
    return Quota(
        exhausted=True, resets_at=f"{datetime.fromtimestamp(resets_at, UTC):%Y-%m-%dT%H:%M:%SZ}", source=source
    )


def dark_until(file: QuotaFile, now: float) -> DarkUntil | None:
    """Until when the agent is dark; None if it is not, also once the reset has come.

    Raises ValueError if that cannot be told: unreadable, no instant, no zone, or an absurd one.
    """
    if file.problem:
        raise ValueError(file.problem)
    if file.quota is None or not file.quota.exhausted:
        return None
    resets_at = instant(file.quota.resets_at)
    if resets_at > now + HORIZON:
        raise ValueError(f"resets_at is {file.quota.resets_at}, more than {HORIZON / 86400:.0f} days from now")
    return DarkUntil(resets_at, file.quota.source) if resets_at > now else None


def instant(text: str | None) -> float:
    """An RFC 3339 instant in seconds since the epoch. Raises ValueError."""
    if not text:
        raise ValueError("exhausted, and no resets_at")
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"resets_at is {text[:40]!r}, which is no instant (RFC 3339)") from None
    if when.tzinfo is None:
        raise ValueError(f"resets_at is {text!r}, without its zone")
    return when.timestamp()
