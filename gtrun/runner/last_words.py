"""What a run that failed said of its quota, in its last lines and by its exit code."""

import os
import time

from gtrun.exhausted import LINES, Exhausted, exhausted, patterns_of
from gtrun.model import ResolvedRun
from gtrun.resets import zone_of
from gtrun.systemd.journal import last_lines

_WAIT = 0.3  # seconds in which journald has written the last of a burst


def exhausted_quota(run: ResolvedRun, exit_code: int) -> Exhausted | None:
    """What it said; None if nothing. A journal that this account cannot read leaves the exit code alone."""
    patterns = (*patterns_of(run.backend, run.command[0]), *run.quota_patterns)
    if not patterns and exit_code not in run.quota_exit_codes:
        return None
    zone = zone_of(run.environment.get("TZ", ""))

    def judged(lines: list[str]) -> Exhausted | None:
        codes = run.quota_exit_codes
        return exhausted(lines, exit_code, patterns=patterns, exit_codes=codes, now=time.time(), local=zone)

    for lines in last_lines(run.identifier, os.getuid(), LINES, seconds=_WAIT):
        if found := judged(lines):
            return found
    return judged([])
