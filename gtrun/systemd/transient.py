"""The transient unit of a run: its properties, and its start."""

from collections.abc import Sequence
from pathlib import Path

from gtrun.errors import LaunchFailed
from gtrun.model import Limits, ResolvedRun, Sandbox
from gtrun.names import UnitName, in_words, is_plain_argument
from gtrun.systemd import idle
from gtrun.systemd import sandbox as sandboxing
from gtrun.systemd.bus import Bus, BusError, BusTimeout, Property, UnitProperties
from gtrun.text import plain, shorten

_TITLE_LENGTH = 120
_INFINITY = (1 << 64) - 1


def exec_line(command: Sequence[str], *, ignore_failure: bool = False) -> tuple[str, list[str], bool]:
    """One value of Exec*: its program and its arguments, and whether its failure is the unit's."""
    return (command[0], list(command), ignore_failure)


def _limits(limits: Limits) -> list[Property]:
    wanted = [
        ("MemoryMax", "t", limits.memory_max),
        ("MemoryHigh", "t", limits.memory_high),
        ("MemorySwapMax", "t", limits.memory_swap_max),
        ("TasksMax", "t", limits.tasks_max),
        ("CPUWeight", "t", limits.cpu_weight),
        ("CPUQuotaPerSecUSec", "t", None if limits.cpu_quota is None else limits.cpu_quota * 10_000),
        ("IOWeight", "t", limits.io_weight),
        # said, since a delegated unit has "continue": who was killed for memory would be killed from outside
        ("OOMPolicy", "s", limits.oom_policy or "stop"),
        ("LimitNOFILE", "t", limits.nofile),
    ]
    return [item for item in wanted if item[2] is not None]


def description(run: ResolvedRun) -> str:
    """What `systemctl list-units` shows: agent, issue and title. A title is untrusted, so it is escaped.

    In the unit's file, which a daemon-reload reads, a final backslash would take the next line along.
    """
    text = f"{run.agent}: {in_words(run.issue.key)}: {plain(shorten(run.issue.title, _TITLE_LENGTH))}".rstrip()
    return text[:-1] + "\\x5c" if text.endswith("\\") else text


def properties(run: ResolvedRun, gtrun: Sequence[str], record: str, *, folders: Sequence[str] = ()) -> list[Property]:
    """The full property set of a run's unit.

    `gtrun` is the command that starts gtrun as the agent; `record` the plain-argument form of the record's path;
    `folders` are made for the unit in the account's runtime folder.
    A daemon-reload parses the unit's file anew, and what systemd 252 does to `$`, `;` or the Ex variants of
    Exec* then is not what was asked for: the command lines therefore carry only characters that no parser touches.
    Raises LaunchFailed where they cannot.
    """
    for argument in (*gtrun, record):
        if not is_plain_argument(argument):
            raise LaunchFailed(
                f"{argument!r} cannot stand on a unit's command line",
                hint="install gtrun under a path of letters, digits and _ . / = - only, "
                "or name such a path as `gtrun` of the rig",
            )
    closeout = exec_line([*gtrun, "closeout", record], ignore_failure=True)
    result: list[Property] = [
        ("Description", "s", description(run)),
        ("Type", "s", "exec"),
        # the second one is the fallback of a first that was killed half-way; after a whole one it has nothing to do
        ("ExecStopPost", "a(sasb)", [closeout, closeout]),
        ("CollectMode", "s", "inactive-or-failed"),
        # without it a `systemctl kill` that writes cgroup.kill takes the close-out along (systemd 257 and later)
        ("Delegate", "b", True),
        ("KillMode", "s", "control-group"),
        ("TimeoutStopUSec", "t", int(run.stop_timeout * 1_000_000)),
        ("SyslogIdentifier", "s", run.identifier),
        ("StandardInput", "s", "null"),
        ("StandardOutput", "s", "journal"),
        ("StandardError", "s", "journal"),
        ("IgnoreSIGPIPE", "b", False),
        # keeps an ended unit readable until our connection closes: how a failed start is told from a failed run
        ("AddRef", "b", True),
    ]
    if run.issue.url:
        result.append(("Documentation", "as", [run.issue.url]))
    if run.time_limit is not None:
        result.append(("RuntimeMaxUSec", "t", int(run.time_limit * 1_000_000)))
    if folders:
        result += [("RuntimeDirectory", "as", list(folders)), ("RuntimeDirectoryMode", "u", 0o700)]
    return [
        *result,
        *_commands(run, gtrun, record),
        *_credentials(run),
        *idle.wants(run),
        *confinement(run.limits, run.slice, run.sandbox),
    ]


def _credentials(run: ResolvedRun) -> list[Property]:
    """What the manager loads, and from where: never a secret itself."""
    files = [(name, one) for name, one in run.credentials.items() if one.path]
    kinds = (("LoadCredential", False), ("LoadCredentialEncrypted", True))
    return [
        (key, "a(ss)", [(name, one.path) for name, one in files if one.encrypted is encrypted])
        for key, encrypted in kinds
        if any(one.encrypted is encrypted for _, one in files)
    ]


def _commands(run: ResolvedRun, gtrun: Sequence[str], record: str) -> list[Property]:
    """What is executed: the runner, which becomes the agent program; with a sandbox, in two steps.

    The first is outside: it needs the board, the account's state and the network. What it has found out, the second
    gets as descriptors from the manager's store, since in a sandbox there may be no file that both can see.
    """
    runner = exec_line([*gtrun, "run", record])
    if not run.sandbox.is_asked_for:
        return [("ExecStart", "a(sasb)", [runner])]
    return [
        ("ExecStartPre", "a(sasb)", [runner]),
        ("ExecStart", "a(sasb)", [exec_line([*gtrun, "enter"])]),
        ("NotifyAccess", "s", "exec"),
        ("FileDescriptorStoreMax", "u", 2),
        # what the first step takes is limited as the run itself is: a slow sync is no failure
        ("TimeoutStartUSec", "t", _INFINITY if run.time_limit is None else int(run.time_limit * 1_000_000)),
    ]


def confinement(limits: Limits, slice_name: str | None, sandbox: Sandbox) -> list[Property]:
    """The properties that hold the unit in bounds. Whether they do is a question for `gtrun.systemd.effects`."""
    in_slice: list[Property] = [] if slice_name is None else [("Slice", "s", slice_name)]
    return _limits(limits) + in_slice + sandboxing.properties(sandbox)


def is_name_taken(error: BusError) -> bool:
    """Whether a start was refused because something occupies the unit's name."""
    return error.name == "org.freedesktop.systemd1.UnitExists"


def start(bus: Bus, unit: UnitName, wanted: Sequence[Property], beside: Sequence[UnitProperties] = ()) -> str:
    """Queue the start; returns the job's object path, which `job_result` takes.

    The units `beside` it are made, and not started. The caller listens to JobRemoved already.
    Raises BusError; `is_name_taken` tells the mutex from a fault.
    """
    return str(bus.call_with_properties("StartTransientUnit", unit, "fail", wanted, beside))


def job_result(bus: Bus, job: str, *, deadline: float) -> str:
    """How a start job ended: `done`, `failed`, `canceled`, … Raises BusTimeout at `deadline` (time.monotonic())."""
    for _id, path, _unit, result in bus.signals("JobRemoved", deadline=deadline):
        if path == job:
            return str(result)
    raise BusTimeout("the manager went away")


def delegated_controllers(cgroup: str) -> list[str]:
    """The controllers that the kernel offers below a cgroup; empty where it cannot be read."""
    try:
        return (cgroup_folder(cgroup) / "cgroup.controllers").read_text().split()
    except OSError:
        return []


def groups_of_manager(cgroup: str) -> set[int] | None:
    """The group IDs of the manager whose root slice this is, which its units inherit; None if not to be seen."""
    try:
        for pid in (cgroup_folder(cgroup) / "init.scope/cgroup.procs").read_text().split():
            status = Path("/proc", pid, "status").read_text()
            fields = dict(line.split(":", 1) for line in status.splitlines())
            if fields["Name"].strip() == "systemd":
                return {int(gid) for gid in fields["Groups"].split()}
    except (OSError, KeyError, ValueError):
        return None
    return None


def cgroup_folder(cgroup: str) -> Path:
    """Where the kernel shows a cgroup: cgroup2 is mounted by itself, or beside the old controllers."""
    unified = Path("/sys/fs/cgroup")
    root = unified if (unified / "cgroup.controllers").exists() else unified / "unified"
    return root / cgroup.lstrip("/")
