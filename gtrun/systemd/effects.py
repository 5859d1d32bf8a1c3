"""What of a unit's limits and sandbox is in force: read from the kernel, whatever the manager accepted and shows.

A user manager takes a limit whose controller is not delegated to it, and a sandbox that it has no right to make, and
says nothing (systemd.resource-control(5), systemd.exec(5)).
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gtrun.model import Limits, Sandbox
from gtrun.systemd.transient import cgroup_folder

_PAGE = 4096
_OOM_KILLS_ALL = "kill"

NOT_DELEGATED = "its controller is not delegated to the user manager"
"""The usual reason for a limit that is not in force."""


def not_in_force(
    limits: Limits, slice_name: str | None, sandbox: Sandbox, *, cgroup: str, pid: int, home: str
) -> list[str]:
    """The settings that the kernel does not hold, as keys of fleet.toml: `limits.memory_max`, `sandbox.private_tmp`.

    `cgroup` is the unit's and `pid` its main process, each empty or 0 where there is none (yet): what only it would
    show is then left out. `home` is the account's.
    """
    found = []
    if cgroup:
        found += [f"limits.{key}" for key in _limits(limits, cgroup_folder(cgroup))]
        if slice_name is not None and Path(cgroup).parent.name != slice_name:
            found.append("slice")
    if pid:
        found += ["limits.nofile"] if _is_more(limits.nofile, pid) else []
        found += [f"sandbox.{key}" for key in _sandbox(sandbox, pid, home)]
    return found


def why(key: str) -> str:
    """Why a setting is not in force, as far as that can be told."""
    if key == "limits.nofile":
        return "the manager may not give so many"
    if key.startswith("limits."):
        return NOT_DELEGATED
    if key == "slice":
        return "the unit lies in another slice"
    return "its processes do not show it"


def _limits(limits: Limits, folder: Path) -> Iterator[str]:
    """A controller that is not delegated to the user manager has no file in the unit's cgroup."""
    wanted = {
        "memory_max": ("memory.max", _whole_pages(limits.memory_max)),
        "memory_high": ("memory.high", _whole_pages(limits.memory_high)),
        "memory_swap_max": ("memory.swap.max", _whole_pages(limits.memory_swap_max)),
        "tasks_max": ("pids.max", limits.tasks_max),
        "cpu_weight": ("cpu.weight", limits.cpu_weight),
        "cpu_quota": ("cpu.max", limits.cpu_quota),
    }
    for key, (file, value) in wanted.items():
        if value is not None and _held(folder / file, is_quota=key == "cpu_quota") != value:
            yield key
    weights = {_default(folder / "io.weight"), _default(folder / "io.bfq.weight")}
    if limits.io_weight is not None and weights.isdisjoint({limits.io_weight, _as_bfq(limits.io_weight)}):
        yield "io_weight"
    # the manager learns of a kill from memory.events, which is there with the controller only
    kills_all = int(limits.oom_policy == _OOM_KILLS_ALL)
    if limits.oom_policy is not None and _held(folder / "memory.oom.group", is_quota=False) != kills_all:
        yield "oom_policy"


def _whole_pages(value: int | None) -> int | None:
    """The kernel rounds memory limits down to whole pages."""
    return None if value is None else value // _PAGE * _PAGE


def _held(file: Path, *, is_quota: bool) -> int | None:
    """The limit in a cgroup's file, a CPU quota in per cent; None if there is none (`max`) or no such file."""
    try:
        fields = file.read_text().split()
        return round(100 * int(fields[0]) / int(fields[1])) if is_quota else int(fields[0])
    except (OSError, ValueError, IndexError):
        return None


def _default(file: Path) -> int | None:
    """The weight for every device (`default 100`, or the number alone)."""
    try:
        return int(re.sub(r"^default ", "", file.read_text().splitlines()[0]))
    except (OSError, ValueError, IndexError):
        return None


def _as_bfq(weight: int) -> int:
    """systemd's scale, 1 to 10,000, on that of the BFQ scheduler, 1 to 1,000; both have 100 in the middle."""
    return weight if weight <= 100 else 100 + (weight - 100) * 900 // 9900


def _is_more(wanted: int | None, pid: int) -> bool:
    """Whether more open files were asked for, or fewer, than the process may have."""
    if wanted is None:
        return False
    try:
        text = Path("/proc", str(pid), "limits").read_text()
    except OSError:
        return False  # it has ended
    held = re.search(r"^Max open files +\d+ +(\d+)", text, re.MULTILINE)
    return held is None or int(held[1]) != wanted


class Mount(msgspec.Struct, frozen=True):
    """One line of /proc/PID/mountinfo (proc_pid_mountinfo(5))."""

    root: str
    point: str
    is_read_only: bool
    kind: str


def mounts_of(text: str) -> list[Mount]:
    """The mounts of a mountinfo, in their order: of two at one place, the later one is seen."""
    found = []
    for line in text.splitlines():
        before, _, behind = line.partition(" - ")
        fields, more = before.split(), behind.split()
        options = {*fields[5].split(","), *more[2].split(",")}
        root, point = (re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[n]) for n in (3, 4))
        found.append(Mount(root, point, "ro" in options, more[0]))
    return found


class _Process:
    """A process as its namespaces show the machine."""

    def __init__(self, pid: int) -> None:
        self.folder = Path("/proc", str(pid))
        self._mounts = mounts_of((self.folder / "mountinfo").read_text())

    def mount(self, path: str) -> Mount:
        """The mount on which a path lies; the path's links are followed as we see them."""
        real = os.path.realpath(path)
        below = [one for one in self._mounts if one.point == "/" or f"{real}/".startswith(f"{one.point.rstrip('/')}/")]
        return max(reversed(below), key=lambda one: len(one.point))  # of equals max takes the first: the last mounted

    def is_read_only(self, path: str) -> bool:
        return self.mount(path).is_read_only

    def is_hidden(self, path: str) -> bool:
        """What is inaccessible has an empty node of mode 000 over it (systemd.exec(5), InaccessiblePaths)."""
        return "/systemd/inaccessible/" in self.mount(path).root

    def has_mount(self, path: str) -> bool:
        """Whether a mount begins at the very path."""
        return self.mount(path).point == os.path.realpath(path)

    def has_other(self, path: str) -> bool:
        """Whether the process sees another file or folder there than we do."""
        try:
            theirs, ours = os.stat(f"{self.folder}/root{path}"), os.stat(path)  # noqa: PTH116
        except OSError:
            return False
        return not os.path.samestat(theirs, ours)

    def has_namespace(self, kind: str) -> bool:
        """Whether the process is in another namespace of that kind than we are."""
        return os.readlink(self.folder / "ns" / kind) != os.readlink(f"/proc/self/ns/{kind}")  # noqa: PTH115

    def devices(self) -> set[str]:
        """Its network devices."""
        return {line.partition(":")[0].strip() for line in (self.folder / "net/dev").read_text().splitlines()[2:]}

    def has_no_new_privileges(self) -> bool:
        return re.search(r"^NoNewPrivs:\s*1$", (self.folder / "status").read_text(), re.MULTILINE) is not None


_SYSTEM = {"yes": ("/usr",), "full": ("/usr", "/etc"), "strict": ("/", "/usr", "/etc", "/var")}
"""What each level of ProtectSystem makes read-only, of the folders that every machine has."""

HOMES = ("/home", "/root", "/run/user")
"""What ProtectHome covers. A home that lies elsewhere is not protected by it."""


def _sandbox(sandbox: Sandbox, pid: int, home: str) -> list[str]:
    if not sandbox.is_asked_for:
        return []
    try:
        checks = dict(_checks(sandbox, _Process(pid), home))
    except (FileNotFoundError, ProcessLookupError):
        return []  # it has ended
    except (OSError, ValueError, IndexError):  # what cannot be looked at does not count as in force
        return list(msgspec.to_builtins(sandbox))
    return [key for key, holds in checks.items() if not holds]


def _checks(sandbox: Sandbox, process: _Process, home: str) -> Iterator[tuple[str, bool]]:
    """Each setting that was asked for, and whether the process shows it."""
    if sandbox.protect_system is not None:
        places = [place for place in _SYSTEM[sandbox.protect_system] if place not in sandbox.read_write_paths]
        yield "protect_system", all(map(process.is_read_only, places))
    if sandbox.protect_home is not None:
        yield "protect_home", _homes_are_protected(sandbox.protect_home, process, home)
    switches = {
        "private_tmp": lambda: process.has_other("/tmp") and process.has_other("/var/tmp"),  # noqa: S108
        "private_devices": lambda: process.has_other("/dev"),
        "private_network": lambda: process.has_namespace("net") and process.devices() == {"lo"},
        "protect_kernel_tunables": lambda: process.is_read_only("/proc/sys") and process.is_read_only("/sys"),
        "protect_control_groups": lambda: process.is_read_only("/sys/fs/cgroup"),
        "no_new_privileges": process.has_no_new_privileges,
    }
    for key, shows in switches.items():
        if getattr(sandbox, key):
            yield key, shows()
    paths = {
        "read_write_paths": (sandbox.read_write_paths, lambda path: not process.is_read_only(path)),
        "read_only_paths": (sandbox.read_only_paths, process.is_read_only),
        "inaccessible_paths": (sandbox.inaccessible_paths, process.is_hidden),
        "bind_paths": (sandbox.bind_paths, lambda path: process.has_mount(path) and not process.is_read_only(path)),
        "bind_read_only_paths": (
            sandbox.bind_read_only_paths,
            lambda path: process.has_mount(path) and process.is_read_only(path),
        ),
    }
    for key, (wanted, holds) in paths.items():
        if wanted:
            yield key, all(map(holds, wanted))


def _homes_are_protected(how: str, process: _Process, home: str) -> bool:
    real = os.path.realpath(home)
    holds = {
        "yes": process.is_hidden,
        "read-only": process.is_read_only,
        "tmpfs": lambda place: process.mount(place).kind == "tmpfs" and process.has_other(place),
    }[how]
    own = [place for place in HOMES if f"{real}/".startswith(f"{os.path.realpath(place)}/")]
    return bool(own) and all(map(holds, {*own, "/run/user"}))
