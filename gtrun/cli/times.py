"""Instants for people, in the time zone of the machine, and for programs, in UTC.

They may be anybody's, as an account writes its own records: one that no calendar has counts as none.
"""

from datetime import UTC, datetime


def _instant(at: float | None) -> datetime | None:
    try:
        return None if at is None else datetime.fromtimestamp(at, tz=UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def local(at: float | None) -> str:
    """`2026-11-30 14:01:06 UTC`; a dash for none."""
    when = _instant(at)
    return "-" if when is None else f"{when:%Y-%m-%d %H:%M:%S %Z}"


def iso(at: float | None) -> str | None:
    """`2026-11-30T14:01:06Z` (RFC 3339); None for none."""
    when = _instant(at)
    return None if when is None else f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
