"""How a run ended, judged from what systemd says about its main process. Pure."""

import msgspec

from gtrun.measures import human_seconds
from gtrun.model import Result
from gtrun.state.facts import EndedFor
from gtrun.systemd import exitstatus

# signals by which a program ends itself; every other one was sent to it
_OWN_SIGNALS = frozenset({"ABRT", "BUS", "FPE", "ILL", "PIPE", "SEGV", "SYS", "TRAP", "XCPU", "XFSZ"})


class Evidence(msgspec.Struct, frozen=True):
    """What the close-out knows.

    `service_result`, `exit_code` and `exit_status` are $SERVICE_RESULT, $EXIT_CODE and $EXIT_STATUS of
    systemd.exec(5). `stop_came_first` says whether the unit left its active state before its main process ended,
    which only a stop from outside or the time limit does, or was stopped before it had one; None if the manager could
    not be asked. `stop_asked_by`
    is who asked gtrun to stop it. `limit_reached` is whether the unit was active for as long as its time limit.
    `idle_for` is for how many seconds it had done nothing when gtrun asked to stop it for that; None if it did not.
    `ended_for` is why what executes a plugin has ended it, and as what.
    `exhausted` is what the program said of a used-up quota, which is asked only if it failed.
    """

    service_result: str
    exit_code: str
    exit_status: str
    stop_came_first: bool | None
    stop_asked_by: str | None = None
    gave_up: str = ""
    disposed: str = ""
    was_executed: bool = True
    limit_reached: bool = False
    exhausted: str = ""
    idle_for: float | None = None
    ended_for: EndedFor | None = None


class Judgement(msgspec.Struct, frozen=True):
    """The result, with its reason in words where there is one."""

    result: Result
    reason: str = ""


def judge(seen: Evidence) -> Judgement:
    """The truth about one run.

    By the main process's own status: $SERVICE_RESULT is `success` after a SIGTERM by anybody, and `timeout` when
    only a left-over child ignored one.
    """
    exited = seen.exit_code == "exited"
    clean = exited and seen.exit_status == "0"
    if seen.disposed and clean:
        return Judgement(Result.DISPOSED, seen.disposed)
    if not seen.exit_code and seen.service_result in _BEFORE and not seen.gave_up:
        return _ended_before(seen)
    if not seen.was_executed and seen.exit_code not in {"killed", "dumped"}:
        status = exitstatus.said(int(seen.exit_status)) if seen.exit_status.isdecimal() else "none"
        return Judgement(Result.FAILED, f"not executed: {seen.service_result}, status {status}")
    if seen.gave_up:
        return Judgement(Result.FAILED, seen.gave_up)
    if seen.service_result == "oom-kill":
        return Judgement(Result.OOM_KILL)
    if _timed_out(seen):
        return Judgement(Result.TIMEOUT, "time limit reached")
    if _was_stopped(seen):
        return _stopped(seen)
    if not exited and seen.exit_status not in _OWN_SIGNALS:
        return Judgement(Result.KILLED, "from outside")
    return _exited(seen) if exited else Judgement(Result.FAILED)


def _exited(seen: Evidence) -> Judgement:
    if seen.ended_for is not None:
        return Judgement(seen.ended_for.result, seen.ended_for.reason)
    if seen.exit_status == "0":
        return Judgement(Result.SUCCESS)
    return Judgement(Result.QUOTA, seen.exhausted) if seen.exhausted else Judgement(Result.FAILED)


_BEFORE = {
    "success": Judgement(Result.STOPPED),
    "signal": Judgement(Result.KILLED, "from outside"),
    "timeout": Judgement(Result.TIMEOUT, "time limit reached"),
    "oom-kill": Judgement(Result.OOM_KILL),
}
"""What ends a unit before its main process: while the runner still works outside of the sandbox, or a drop-in does."""


def _ended_before(seen: Evidence) -> Judgement:
    """A stop sends its signal to whatever is there, and the result is `signal`."""
    judged = _BEFORE[seen.service_result]
    was_stopped = judged.result is Result.STOPPED or seen.stop_came_first or seen.stop_asked_by
    if was_stopped and judged.result in {Result.STOPPED, Result.KILLED}:
        return _stopped(seen)
    return judged


def _stopped(seen: Evidence) -> Judgement:
    if seen.idle_for is not None and seen.stop_asked_by is None:
        return Judgement(Result.IDLE, f"no output and no CPU for {human_seconds(seen.idle_for)}")
    return Judgement(Result.STOPPED, f"by {seen.stop_asked_by or 'systemd'}")


def _timed_out(seen: Evidence) -> bool:
    """`timeout` is also what a left-over child gives that ignores the stop after the main process has ended."""
    if seen.service_result != "timeout":
        return False
    return seen.limit_reached if seen.stop_came_first is None else seen.stop_came_first and seen.limit_reached


def _was_stopped(seen: Evidence) -> bool:
    if seen.stop_came_first is not None:
        return seen.stop_came_first
    # The manager cannot be asked, so it is going away itself or its bus is: a SIGTERM was its own
    asked = seen.stop_asked_by is not None or seen.idle_for is not None
    return asked or (seen.exit_code == "killed" and seen.exit_status == "TERM")
