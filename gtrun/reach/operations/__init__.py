"""What a worker does as the agent's account: each operation takes one struct and returns a value that JSON carries."""

from collections.abc import Callable
from typing import Any

from gtrun.reach.operations.ending import (
    Reconciled,
    ToEndIdle,
    ToReconcile,
    ToStop,
    Watch,
    await_end,
    end_idle,
    observe_ending,
    open_board,
    reconcile,
    stop,
)
from gtrun.reach.operations.looking import (
    ByToken,
    Found,
    LiveRun,
    OfIssue,
    Patterns,
    Printed,
    Runs,
    ToExamine,
    Tokens,
    ToRead,
    await_print,
    does_linger,
    examine,
    list_units,
    live_runs,
    printed,
    printed_since,
    run_of,
    runs_by_token,
    runs_of,
)
from gtrun.reach.operations.quota import ToSetQuota, read_quota, set_quota
from gtrun.reach.operations.session import Name, Nothing, OfRun, Session, by_token
from gtrun.reach.operations.starting import (
    Job,
    Launched,
    Prepared,
    StartReply,
    ToPrepare,
    ToStart,
    await_start,
    discard,
    prepare,
    start,
    wait_until_free,
)
from gtrun.reach.operations.stashes import Stashes, stashes_of
from gtrun.reach.operations.unit_files import UnitFiles, disable, enable, reload
from gtrun.reach.operations.verifying import ToVerify, VerifiedUnit, verify

BY_NAME: dict[str, Callable[[Session, Any], Any]] = {
    operation.__name__: operation
    for operation in (
        await_end, await_start, disable, discard, does_linger, enable, end_idle, examine, list_units, live_runs,
        observe_ending, prepare, printed, printed_since, await_print, read_quota, reconcile, reload, run_of,
        runs_by_token, runs_of, set_quota, start, stashes_of, stop, verify, wait_until_free,
    )
}  # fmt: skip
"""What a parent may ask for."""

__all__ = [
    "BY_NAME",
    "ByToken",
    "Found",
    "Job",
    "Launched",
    "LiveRun",
    "Name",
    "Nothing",
    "OfIssue",
    "OfRun",
    "Patterns",
    "Prepared",
    "Printed",
    "Reconciled",
    "Runs",
    "Session",
    "StartReply",
    "Stashes",
    "ToEndIdle",
    "ToExamine",
    "ToPrepare",
    "ToRead",
    "ToReconcile",
    "ToSetQuota",
    "ToStart",
    "ToStop",
    "ToVerify",
    "Tokens",
    "UnitFiles",
    "VerifiedUnit",
    "Watch",
    "await_end",
    "await_print",
    "await_start",
    "by_token",
    "disable",
    "discard",
    "does_linger",
    "enable",
    "end_idle",
    "examine",
    "list_units",
    "live_runs",
    "observe_ending",
    "open_board",
    "prepare",
    "printed",
    "printed_since",
    "read_quota",
    "reconcile",
    "reload",
    "run_of",
    "runs_by_token",
    "runs_of",
    "set_quota",
    "start",
    "stashes_of",
    "stop",
    "verify",
    "wait_until_free",
]
