"""Notices: the news that gtrun gives by itself, each as one JSON document for the command of `[notify]`. Pure.

What a run has to tell is told once: which notices it owes stands in its record, and so does each that was given.
"""

import time

import msgspec

from gtrun.model import Notice, Run
from gtrun.text import shorten

SCHEMA = 1
"""Version of the documents; it grows when a field changes its meaning or goes away."""

_LONGEST = 2000  # characters of a text that somebody else wrote


def document(notice: Notice, at: float, **fields: object) -> bytes:
    """A notice as its command reads it: one line. `at` is in seconds since the epoch; texts are cut."""
    told = {key: shorten(value, _LONGEST) if isinstance(value, str) else value for key, value in fields.items()}
    return msgspec.json.encode({"schema": SCHEMA, "kind": "notice", "notice": notice, "at": utc(at), **told}) + b"\n"


def of_run(notice: Notice, run: Run) -> bytes:
    """The document of a notice that a run owes. What its account has not told is null."""
    resolved, ending = run.resolved, run.ending
    of_it = {"agent": resolved.agent, "rig": resolved.rig, "issue": resolved.issue.key, "run": run.run}
    at = run.ended_at or 0.0
    reason = (ending.reason or None) if ending else None
    if notice is Notice.AGENT_DARK:
        return document(notice, at, **of_it, until=utc(ending.resets_at if ending else None), reason=reason)
    return document(
        notice, at, **of_it, unit=resolved.unit, title=resolved.issue.title, url=resolved.issue.url or None,
        attempt=resolved.attempt, result=ending.result if ending else None, reason=reason,
        exit_code=ending.exit_code if ending else None, signal=ending.signal if ending else None,
        started_at=utc(run.begun_at), duration=ending.duration if ending else None,
        pull_requests=None if run.pulls is None else [msgspec.structs.asdict(pull) for pull in run.pulls],
    )  # fmt: skip


def utc(at: float | None) -> str | None:
    """An instant as `2026-11-30T18:00:00Z`; None for one that no calendar has."""
    try:
        return None if at is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    except (ValueError, OverflowError, OSError):
        return None
