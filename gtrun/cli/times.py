"""Instants for people, in the time zone of the machine, and for programs, in UTC."""

from datetime import UTC, datetime


def local(at: float | None) -> str:
    """`2026-11-30 14:01:06 UTC`; a dash for none."""
    return "-" if at is None else f"{datetime.fromtimestamp(at, tz=UTC).astimezone():%Y-%m-%d %H:%M:%S %Z}"


def iso(at: float | None) -> str | None:
    """`2026-11-30T14:01:06Z` (RFC 3339); None for none."""
    return None if at is None else f"{datetime.fromtimestamp(at, tz=UTC):%Y-%m-%dT%H:%M:%SZ}"
