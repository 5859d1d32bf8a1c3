"""What the end of a run tells about its agent's quota, put where the next dispatch looks for it."""

import time

from gtrun.model import Ending, Run
from gtrun.quota import Quota, used_up
from gtrun.state import quota_file
from gtrun.state.record import QuotaNoted, Record
from gtrun.systemd import entry


def note_quota(record: Record) -> None:
    """Write the quota state of a run that ended because it is used up, and give one notice of it. Raises StateError.

    It does nothing for any other run, nor a second time. Killed half-way it is done again; the notice then comes
    twice rather than never.
    """
    run = record.run
    if run.ending is None or run.ending.resets_at is None or run.is_quota_noted:
        return
    quota = _state(run, run.ending, run.ending.resets_at)
    if quota_file.darken(str(record.path.parent.parent.parent), quota, time.time()):
        entry.write(
            f"the quota of {run.resolved.agent} is used up until {quota.resets_at}: it gets no work ({quota.source})",
            GTRUN_NOTICE="quota", GTRUN_AGENT=run.resolved.agent, GTRUN_RESETS_AT=quota.resets_at or "",
            GTRUN_ISSUE=run.resolved.issue.key, GTRUN_RUN=run.run or "",
        )  # fmt: skip
    record.append(QuotaNoted())


def _state(run: Run, ending: Ending, resets_at: float) -> Quota:
    return used_up(resets_at, f"run {run.run} of issue {run.resolved.issue.key}: {ending.reason}")
