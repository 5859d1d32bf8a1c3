"""What ends a run that does nothing any more: a timer beside its unit, and what that executes.

Nothing of ours stays in memory: the manager wakes a short look every now and then. The run's unit wants the timer,
which is bound to it (systemd.unit(5), BindsTo=): it comes and goes with the unit, and its name is that of this one run.
Its clock stands still while the machine sleeps (systemd.timer(5), WakeSystem= off).
"""

from collections.abc import Sequence

from gtrun.model import ResolvedRun
from gtrun.systemd.bus import Property, UnitProperties

_LEAST = 60.0  # a look takes about 50 ms of CPU: less than a thousandth of a core for limits from a minute up
_LOOKS = 10


def period(limit: float) -> float:
    """How often a run is looked at, in seconds: ten times within its limit, but not oftener than once a minute."""
    return min(limit, max(_LEAST, limit / _LOOKS))


def folder(run: ResolvedRun) -> str | None:
    """The unit's folder, below the account's runtime folder, for what the last look saw; None without a limit."""
    return f"gtrun-idle.{run.identifier}" if run.idle_limit is not None else None


def wants(run: ResolvedRun) -> list[Property]:
    """What the run's unit has for it."""
    return [] if run.idle_limit is None else [("Wants", "as", [f"gtrun-idle-{run.identifier}.timer"])]


def units(run: ResolvedRun, gtrun: Sequence[str], record: str) -> list[UnitProperties]:
    """The timer and its service, to be made in the same call; `gtrun` and `record` as for `transient.properties`."""
    if run.idle_limit is None:
        return []
    name, every = f"gtrun-idle-{run.identifier}", int(period(run.idle_limit) * 1_000_000)
    what: Property = ("Description", "s", f"Whether {run.unit} still does something")
    command = [*gtrun, "idle", record]
    timer: list[Property] = [
        what,
        ("BindsTo", "as", [run.unit]),
        ("After", "as", [run.unit]),
        ("TimersMonotonic", "a(st)", [("OnActiveSec", every), ("OnUnitInactiveSec", every)]),
        ("AccuracyUSec", "t", every // _LOOKS),
        ("CollectMode", "s", "inactive-or-failed"),
    ]
    look: list[Property] = [
        what,
        ("Type", "s", "oneshot"),
        ("ExecStart", "a(sasb)", [(command[0], command, False)]),
        ("TimeoutStartUSec", "t", 30_000_000),
        ("SyslogIdentifier", "s", "gtrun"),
        ("LogLevelMax", "i", 5),  # notice: that it was started and has finished is no news
        ("CollectMode", "s", "inactive-or-failed"),
    ]
    return [(f"{name}.timer", timer), (f"{name}.service", look)]
