"""What a dispatch tells the journal: each attempt as a message of `gtrun.witness`, and each guard that did not pass.

An attempt is told once the ledger has it, before the start; what came of it once the ledger has that too. The outcome
of an attempt whose dispatcher died is told by whoever settles it.
"""

from gtrun.names import RunId
from gtrun.state.ledger import Attempt, Verdicts
from gtrun.systemd import entry
from gtrun.systemd.kinds import Kind
from gtrun.text import plain
from gtrun.witness import DispatchAttempt, DispatchFail, DispatchOk, Message, body_of, subject_of


def attempted(attempt: Attempt) -> None:
    """The agent is about to be given the issue."""
    entry.write(
        Kind.DISPATCH_ATTEMPT, _text(DispatchAttempt(attempt.agent, attempt.issue)), GTRUN_AGENT=attempt.agent,
        GTRUN_ISSUE=attempt.issue, GTRUN_RIG=attempt.rig, GTRUN_UNIT=attempt.unit, GTRUN_ATTEMPT=attempt.token,
    )  # fmt: skip


def succeeded(attempt: Attempt, run: RunId | None) -> None:
    """It was given it; `run` is None where the manager has not said which run it is."""
    entry.write(
        Kind.DISPATCH_OK, _text(DispatchOk(attempt.agent, attempt.issue)), GTRUN_AGENT=attempt.agent,
        GTRUN_ISSUE=attempt.issue, GTRUN_RIG=attempt.rig, GTRUN_UNIT=attempt.unit, GTRUN_ATTEMPT=attempt.token,
        GTRUN_RUN=run or "",
    )  # fmt: skip


def failed(attempt: Attempt, outcome: str, code: int, reason: str) -> None:
    """It was not: `outcome` is `refused` or `failed`, `code` the exit code of the dispatch."""
    entry.write(
        Kind.DISPATCH_FAIL, _text(DispatchFail(attempt.agent, attempt.issue, reason)), GTRUN_AGENT=attempt.agent,
        GTRUN_ISSUE=attempt.issue, GTRUN_RIG=attempt.rig, GTRUN_UNIT=attempt.unit, GTRUN_ATTEMPT=attempt.token,
        GTRUN_OUTCOME=outcome, GTRUN_CODE=str(int(code)), GTRUN_REASON=plain(reason),
    )  # fmt: skip


def guards(attempt: Attempt, verdicts: Verdicts) -> None:
    """What guards said other than pass."""
    for guard, verdict, reason in verdicts:
        kind, what = (Kind.GUARD_OPEN, "failed open") if verdict == "open" else (Kind.GUARD_REFUSED, "refused")
        entry.write(
            kind, f"{guard} guard {what}: {reason}", GTRUN_GUARD=guard, GTRUN_VERDICT=verdict,
            GTRUN_ISSUE=attempt.issue, GTRUN_AGENT=attempt.agent, GTRUN_ATTEMPT=attempt.token,
            GTRUN_REASON=plain(reason),
        )  # fmt: skip


def _text(message: Message) -> str:
    return f"{subject_of(message)}\n{body_of(message)}"
