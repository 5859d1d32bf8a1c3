"""What lies in the box's own layer over the host's root: accounts, units, sshd, journal.

Everything is written into the merged tree, so the kernel copies up what it must. Nothing is ever written
through a symbolic link: what is there is unlinked first.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

# Directories of the host that the guest sees empty: homes, its own units, state and journal.
HIDDEN = (
    "root", "home", "srv", "tmp", "var/tmp", "var/log", "var/spool", "var/cache", "var/lib/systemd",
    "etc/systemd/system", "etc/systemd/user", "etc/cron.d", "etc/update-motd.d",
)  # fmt: skip

# Units of sysinit.target that take time and mean nothing in a guest of an hour at most.
MASKED = (
    "systemd-ask-password-console.path", "systemd-ask-password-wall.path", "systemd-binfmt.service",
    "systemd-firstboot.service", "systemd-hwdb-update.service",
    "systemd-journal-catalog-update.service", "systemd-machine-id-commit.service",
    "systemd-modules-load.service", "systemd-networkd.service", "systemd-networkd.socket",
    "systemd-network-generator.service", "systemd-random-seed.service", "systemd-resolved.service",
    "systemd-sysctl.service", "systemd-sysusers.service", "systemd-timesyncd.service",
    "systemd-tmpfiles-clean.timer", "systemd-udevd.service", "systemd-udev-trigger.service",
    "systemd-update-done.service", "systemd-update-utmp.service", "systemd-userdbd.socket",
    "ldconfig.service", "keyboard-setup.service", "kmod-static-nodes.service", "console-getty.service",
    "getty.target", "dev-hugepages.mount", "sys-kernel-config.mount", "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount", "sys-fs-fuse-connections.mount", "proc-sys-fs-binfmt_misc.automount",
)  # fmt: skip

SSHD_CONFIG = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM yes
PrintMotd no
Subsystem sftp internal-sftp
"""

SSHD_UNIT = """\
[Unit]
Description=OpenBSD Secure Shell server on whatever network the box has
After=network.target
[Service]
Type=notify
ExecStart=/usr/sbin/sshd -D
KillMode=process
RuntimeDirectory=sshd
RuntimeDirectoryPreserve=yes
"""

LAUNCHER = """\
#!/opt/gtrun/bin/python -P
import sys

from {module} import {function}

sys.exit({function}())
"""


def hide(lower: Path, upper: Path) -> None:
    """Make the HIDDEN directories opaque in an upper layer (kernel documentation, overlayfs.rst)."""
    for name in HIDDEN:
        if not (lower / name).is_dir() or (lower / name).is_symlink():
            continue
        made = upper
        for part in Path(name).parts:
            made /= part
            if not made.exists():
                was = (lower / made.relative_to(upper)).stat()
                made.mkdir()
                os.chown(made, was.st_uid, was.st_gid)
                made.chmod(was.st_mode & 0o7777)
        os.setxattr(made, "trusted.overlay.opaque", b"y")


def furnish(root: Path, accounts: Mapping[str, int], *, hostname: str, linger: bool, group: str | None) -> None:
    """Write the box's own files into its merged tree; `accounts` maps names to user IDs."""
    _identity(root, hostname)
    _accounts(root, accounts, group)
    _units(root, accounts if linger else {})
    _journal(root)
    _sshd(root, hostname)
    if linger:
        for name in accounts:
            put(root / "var/lib/systemd/linger" / name, "")


def furnish_venv(venv: Path) -> None:
    """Give the venv, at its place in the box, the launcher that pip wrote for its place on the host."""
    module, function = "gtrun.cli", "main"
    script = venv / "bin/gtrun"
    if script.exists():
        found = re.search(r"^from ([\w.]+) import (\w+)$", script.read_text(), re.MULTILINE)
        if found:
            module, function = found.groups()
    put(script, LAUNCHER.format(module=module, function=function), mode=0o755)
    # as installed by root, whoever owns the checkout: their number may be an agent's in the box
    (packages,) = venv.glob("lib/python3*/site-packages")
    owned = [venv, *venv.glob("bin/python*"), venv / "bin", *packages.parents[:2], packages, packages / "gtrun"]
    for path in [*owned, *(packages / "gtrun").rglob("*")]:
        if path.lstat().st_uid != 0:
            os.chown(path, 0, 0, follow_symlinks=False)


def put(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a file of root's, in place of whatever is there, following no link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(descriptor, "w") as file:
        os.fchmod(descriptor, mode)
        file.write(text)


def link(path: Path, target: str) -> None:
    """Make a symbolic link, in place of whatever is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    path.symlink_to(target)


def _identity(root: Path, hostname: str) -> None:
    put(root / "etc/machine-id", secrets.token_hex(16) + "\n", mode=0o444)
    put(root / "etc/hostname", f"{hostname}\n")
    put(root / "etc/hosts", f"127.0.0.1 localhost {hostname}\n")
    put(root / "etc/fstab", "")
    put(root / "etc/crypttab", "")
    put(root / "etc/environment", "")
    for stamp in ("etc/.updated", "var/.updated"):  # else /etc is outdated: systemd-update-done.service(8)
        put(root / stamp, "")


def _accounts(root: Path, accounts: Mapping[str, int], group: str | None) -> None:
    def people_dropped(name: str) -> list[str]:
        lines = (root / "etc" / name).read_text().splitlines()
        return [line for line in lines if not 1000 <= int(line.split(":")[2]) < 60000]

    passwd, groups = people_dropped("passwd"), people_dropped("group")
    kept = {line.split(":")[0] for line in passwd}
    shadow = [line for line in (root / "etc/shadow").read_text().splitlines() if line.split(":")[0] in kept]
    for name, uid in accounts.items():
        if name in kept:
            raise ValueError(f"{name}: the tree has a system account of this name")
        passwd.append(f"{name}:x:{uid}:{uid}:{name}:/home/{name}:/bin/bash")
        groups.append(f"{name}:x:{uid}:")
        shadow.append(f"{name}:*:19700:0:99999:7:::")  # no password, and not locked: sshd takes keys
        home = root / "home" / name
        shutil.copytree(root / "etc/skel", home, symlinks=True)
        for path in (home, *home.rglob("*")):
            os.chown(path, uid, uid, follow_symlinks=False)
        home.chmod(0o700)
    if group is not None:
        groups.append(f"{group}:x:900:{','.join(accounts)}")
    put(root / "etc/passwd", "\n".join(passwd) + "\n")
    put(root / "etc/group", "\n".join(groups) + "\n")
    put(root / "etc/shadow", "\n".join(shadow) + "\n", mode=0o600)
    put(root / "etc/gshadow", "", mode=0o600)
    put(root / "etc/subuid", "")
    put(root / "etc/subgid", "")


def _units(root: Path, lingering: Mapping[str, int]) -> None:
    system = root / "etc/systemd/system"
    wanted = ["dbus.socket", "systemd-logind.service", "systemd-user-sessions.service"]
    wanted += [f"user@{uid}.service" for uid in lingering.values()]
    if (root / "usr/sbin/sshd").exists():
        put(system / "ssh.service", SSHD_UNIT)
        wanted.append("ssh.service")
    names = " ".join(wanted)
    put(
        system / "box.target",
        "[Unit]\nDescription=All that a box has\nRequires=basic.target\nAllowIsolate=yes\n"
        f"Wants={names}\nAfter=basic.target {names}\n",
    )
    link(system / "default.target", "box.target")
    for name in MASKED:
        link(system / name, "/dev/null")
    if (root / "usr/lib/systemd/system/dbus-broker.service").exists():  # Fedora enables it by this alias
        link(system / "dbus.service", "/usr/lib/systemd/system/dbus-broker.service")
        link(root / "etc/systemd/user/dbus.service", "/usr/lib/systemd/user/dbus-broker.service")


def _journal(root: Path) -> None:
    """Persistent, so that an account reads its own lines without being in a group (journald.conf(5))."""
    put(root / "etc/systemd/journald.conf.d/box.conf", "[Journal]\nStorage=persistent\n")
    journal = root / "var/log/journal"
    journal.mkdir(parents=True)
    for line in (root / "etc/group").read_text().splitlines():
        name, _, gid, _ = line.split(":", 3)
        if name == "systemd-journal":
            os.chown(journal, 0, int(gid))
    journal.chmod(0o2755)


def _sshd(root: Path, hostname: str) -> None:
    if not (root / "usr/sbin/sshd").exists():
        return
    directory = root / "etc/ssh"
    put(directory / "sshd_config", SSHD_CONFIG)
    shutil.rmtree(directory / "sshd_config.d", ignore_errors=True)
    for old in directory.glob("ssh_host_*"):
        old.unlink()
    key = directory / "ssh_host_ed25519_key"
    make_key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "box", "-f", str(key)]
    subprocess.run(make_key, check=True)
    kind, public, *_ = key.with_name(key.name + ".pub").read_text().split()
    put(directory / "ssh_known_hosts", f"127.0.0.1,localhost,{hostname} {kind} {public}\n")


def numbered(names: Sequence[str]) -> dict[str, int]:
    """User IDs from 1000: below it an account cannot read its own journal."""
    return {name: uid for uid, name in enumerate(names, start=1000)}
