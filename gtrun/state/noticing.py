"""Giving the notices that a run owes: to the journal, and to the command that its profile names."""

import time

from gtrun import markers
from gtrun.account import Account
from gtrun.model import Ending, Notice, Result, Run
from gtrun.names import in_words
from gtrun.notices import of_run, utc
from gtrun.state.facts import Noticed, owed_notices
from gtrun.state.record import Record
from gtrun.systemd import entry
from gtrun.systemd.kinds import Kind
from gtrun.text import plain

LEAST = 0.5
"""Seconds below which it is not worth starting a command."""


def give_owed(record: Record, account: Account, *, until: float) -> None:
    """Give each once, until `until` (time.monotonic()): what is owed then is left to the next. Raises StateError.

    Killed between a notice and the fact that it is given, it gives that one again: twice rather than never.
    """
    run = record.run
    for notice in owed_notices(run):
        if not run.resolved.notify.command:
            _given(record, notice)
            continue
        seconds = until - time.monotonic()
        if seconds < LEAST:
            return
        from gtrun.notify import hand_over  # noqa: PLC0415 - few have a command, and with it comes subprocess

        def given(notice: Notice = notice) -> None:
            _given(record, notice)

        document = of_run(notice, run)
        problem = hand_over(run.resolved.notify, document, account, seconds=seconds, handed=given)
        if problem:
            entry.write(
                Kind.NOTIFY_FAILED, f"{notice} of run {run.run}: {problem}", GTRUN_NOTICE=notice,
                GTRUN_AGENT=run.resolved.agent, GTRUN_ISSUE=run.resolved.issue.key, GTRUN_RUN=run.run or "",
                GTRUN_REASON=problem,
            )  # fmt: skip


def _given(record: Record, notice: Notice) -> None:
    run = record.run
    if run.ending is not None:
        if notice is Notice.AGENT_DARK:
            _log_dark(run, run.ending)
        else:
            _log_end(run, run.ending)
    record.append(Noticed(notice))


def _log_dark(run: Run, ending: Ending) -> None:
    until = utc(ending.resets_at) or ""
    entry.write(
        Kind.AGENT_DARK, f"the quota of {run.resolved.agent} is used up until {until}: it gets no work"
        f" (run {run.run} of {in_words(run.resolved.issue.key)}: {ending.reason})", GTRUN_NOTICE=Notice.AGENT_DARK,
        GTRUN_AGENT=run.resolved.agent, GTRUN_RIG=run.resolved.rig, GTRUN_ISSUE=run.resolved.issue.key,
        GTRUN_RUN=run.run or "", GTRUN_RESETS_AT=until,
    )  # fmt: skip


def _log_end(run: Run, ending: Ending) -> None:
    kind = Kind.RUN_LOST if ending.result is Result.LOST else Kind.RUN_ENDED
    entry.write(
        kind, f"run {run.run} of {in_words(run.resolved.issue.key)} by {run.resolved.agent} has ended:"
        f" {markers.outcome(ending)}", GTRUN_NOTICE=Notice.RUN_ENDED, GTRUN_AGENT=run.resolved.agent,
        GTRUN_RIG=run.resolved.rig, GTRUN_ISSUE=run.resolved.issue.key, GTRUN_UNIT=run.resolved.unit,
        GTRUN_RUN=run.run or "", GTRUN_RESULT=ending.result, GTRUN_REASON=plain(ending.reason),
    )  # fmt: skip
