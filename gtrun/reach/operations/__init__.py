"""What a worker does as the agent's account: each operation takes one struct and returns a value that JSON carries.

A dispatch asks for few of them, so the module of each is imported when it is first named (PEP 562): the others would
cost it a tenth of its time.
"""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gtrun.reach.operations.delivery import (
        PAGE,
        Delivered,
        ToDeliver,
        ToNote,
        Undelivered,
        note_delivered,
        undelivered,
    )
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
    from gtrun.reach.operations.glancing import (
        Glance,
        ToGlance,
        glance,
    )
    from gtrun.reach.operations.looking import (
        ByToken,
        Found,
        LiveRun,
        OfIssue,
        Patterns,
        Runs,
        ToExamine,
        Tokens,
        does_linger,
        examine,
        list_units,
        live_runs,
        run_of,
        runs_by_token,
        runs_of,
    )
    from gtrun.reach.operations.printing import (
        Printed,
        ToRead,
        await_print,
        printed,
        printed_since,
    )
    from gtrun.reach.operations.quota import (
        ToSetQuota,
        read_quota,
        set_quota,
    )
    from gtrun.reach.operations.session import (
        Name,
        Nothing,
        OfRun,
        Session,
        by_token,
    )
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
    from gtrun.reach.operations.stashes import (
        Stashes,
        stashes_of,
    )
    from gtrun.reach.operations.unit_files import (
        UnitFiles,
        disable,
        enable,
        reload,
    )
    from gtrun.reach.operations.verifying import (
        ToVerify,
        VerifiedUnit,
        verify,
    )

_OPERATIONS = {
    "delivery": ("note_delivered", "undelivered"),
    "ending": ("await_end", "end_idle", "observe_ending", "reconcile", "stop"),
    "glancing": ("glance",),
    "looking": ("does_linger", "examine", "list_units", "live_runs", "run_of", "runs_by_token", "runs_of"),
    "printing": ("await_print", "printed", "printed_since"),
    "quota": ("read_quota", "set_quota"),
    "starting": ("await_start", "discard", "prepare", "start", "wait_until_free"),
    "stashes": ("stashes_of",),
    "unit_files": ("disable", "enable", "reload"),
    "verifying": ("verify",),
}  # fmt: skip
"""What a parent may ask for, by its module."""

_BESIDE = {
    "delivery": ("Delivered", "PAGE", "ToDeliver", "ToNote", "Undelivered"),
    "ending": ("Reconciled", "ToEndIdle", "ToReconcile", "ToStop", "Watch", "open_board"),
    "glancing": ("Glance", "ToGlance"),
    "looking": ("ByToken", "Found", "LiveRun", "OfIssue", "Patterns", "Runs", "ToExamine", "Tokens"),
    "printing": ("Printed", "ToRead"),
    "quota": ("ToSetQuota",),
    "session": ("Name", "Nothing", "OfRun", "Session", "by_token"),
    "starting": ("Job", "Launched", "Prepared", "StartReply", "ToPrepare", "ToStart"),
    "stashes": ("Stashes",),
    "unit_files": ("UnitFiles",),
    "verifying": ("ToVerify", "VerifiedUnit"),
}  # fmt: skip
"""What goes with them: arguments, values, and what is shared."""

_HOMES = {name: home for table in (_OPERATIONS, _BESIDE) for home, names in table.items() for name in names}


def by_name(name: str) -> Callable[["Session", Any], Any]:
    """The operation that a parent asks for. Raises KeyError for anything else."""
    if not any(name in names for names in _OPERATIONS.values()):
        raise KeyError(name)
    operation: Callable[[Session, Any], Any] = _imported(name)
    return operation


def _imported(name: str) -> Any:  # noqa: ANN401
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


if not TYPE_CHECKING:  # or every name would be one of this package

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return _imported(name)


__all__ = [
    "PAGE",
    "ByToken",
    "Delivered",
    "Found",
    "Glance",
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
    "ToDeliver",
    "ToEndIdle",
    "ToExamine",
    "ToGlance",
    "ToNote",
    "ToPrepare",
    "ToRead",
    "ToReconcile",
    "ToSetQuota",
    "ToStart",
    "ToStop",
    "ToVerify",
    "Tokens",
    "Undelivered",
    "UnitFiles",
    "VerifiedUnit",
    "Watch",
    "await_end",
    "await_print",
    "await_start",
    "by_name",
    "by_token",
    "disable",
    "discard",
    "does_linger",
    "enable",
    "end_idle",
    "examine",
    "glance",
    "list_units",
    "live_runs",
    "note_delivered",
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
    "undelivered",
    "verify",
    "wait_until_free",
]
