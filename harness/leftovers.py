"""What a scenario must not leave behind in a box."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.box import Account, Box

OURS = re.compile(r"^(task|plugin|gtrun-idle)-")
# A user manager, its PAM helper, its bus, the ways in; all else of an account's belongs to some run.
STANDING = {"systemd", "(sd-pam)", "dbus-daemon", "dbus-broker", "dbus-broker-lau", "sshd", "sshd-session"}


def of(box: Box) -> list[str]:
    """Units, processes, cgroups and files of gtrun's that are still there, one line each."""
    found: list[str] = []
    for account in box.accounts:
        found += [f"{account.name}: unit {unit}" for unit in _units(box, account)]
    found += _processes(box)
    cgroups = [path for path in box.cgroup.rglob("*") if path.is_dir() and OURS.match(path.name)]
    found += [f"cgroup /{path.relative_to(box.cgroup)}" for path in cgroups]
    found += [f"file {file}" for file in _files(box)]
    return found


def _units(box: Box, account: Account) -> list[str]:
    if not box.path(f"/run/user/{account.uid}/systemd/private").exists():
        return []  # no manager, no units
    listed = box.run(
        "systemctl", "--user", "list-units", "--all", "--plain", "--no-legend", "task-*", "plugin-*", "gtrun-idle-*",
        account=account.name,
    )  # fmt: skip
    return [" ".join(line.split()[:4]) for line in listed.out.splitlines()]


def _processes(box: Box) -> list[str]:
    owners = {account.uid: account.name for account in box.accounts}
    found = []
    for procs in box.cgroup.rglob("cgroup.procs"):
        for pid in procs.read_text().split():
            process = Path("/proc") / pid
            try:
                uid = process.stat().st_uid
                name = (process / "comm").read_text().strip()
                state = (process / "stat").read_text().rpartition(")")[2].split()[0]
                command = (process / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if uid in owners and name not in STANDING and state != "Z":
                group = procs.parent.relative_to(box.cgroup)
                found.append(f"{owners[uid]}: process {pid} {command or name} in /{group}")
    return found


def _files(box: Box) -> list[str]:
    found = []
    inside = ["/tmp", "/var/tmp", *(f"/run/user/{account.uid}" for account in box.accounts)]  # noqa: S108
    root = f"/proc/{box.leader}/root"
    for place in map(box.path, inside):
        for directory, folders, files in os.walk(place):
            ours = [name for name in [*folders, *files] if "gtrun" in name or OURS.match(name)]
            found += [f"{directory}/{name}".removeprefix(root) for name in ours]
    return found
