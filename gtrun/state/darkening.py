"""What the end of a run tells about its agent's quota, put where the next dispatch looks for it."""

import time

from gtrun.model import Ending, Run
from gtrun.quota import Quota, used_up
from gtrun.state import quota_file
from gtrun.state.facts import QuotaNoted
from gtrun.state.record import Record


def note_quota(record: Record) -> None:
    """Write the quota state of a run that ended because it is used up, and whether that is news. Raises StateError.

    It does nothing for any other run, nor a second time. Killed half-way it is done again.
    """
    run = record.run
    if run.ending is None or run.ending.resets_at is None or run.is_quota_noted:
        return
    quota = _state(run, run.ending, run.ending.resets_at)
    record.append(QuotaNoted(quota_file.darken(str(record.path.parent.parent.parent), quota, time.time())))


def _state(run: Run, ending: Ending, resets_at: float) -> Quota:
    return used_up(resets_at, f"run {run.run} of issue {run.resolved.issue.key}: {ending.reason}")
