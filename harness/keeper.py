"""Keeps one box: boots it, waits for the end of its owner, and leaves nothing behind.

    owner ──pipe──▶ keeper (own session, own mount namespace: tmpfs, overlays)
                      └─ unshare: own pid namespace, killed by the kernel when the keeper dies
                           └─ systemd-nspawn (own cgroup) ─ the guest's systemd

The owner's end of the pipe closes however the owner ends (return, exception, SIGKILL): then the keeper kills
the cgroup and removes it. The mounts end with the namespace, the tmpfs with the mounts, the processes with
the pid namespace, even when the keeper itself is killed; then only an empty cgroup directory is left, for the
next boot to sweep.

stdin: a line of JSON (`Box._order`), then a byte for each time that its power is to fail and come back, until EOF.
stdout: one line of JSON for each boot, {"leader": pid, "cgroup": path} or {"failed": text}.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from harness import cgroups, guest

# Covered by a tmpfs of the keeper's own, which so keeps nspawn's locks and sockets off the host as well.
HERE = Path("/run")
ROOT = HERE / "box/root"
VENV = HERE / "box/venv"
BOOT_SECONDS = 30.0
MS_NOSUID, MS_NODEV = 2, 4  # mount(2)


class BootFailed(Exception):
    """The guest did not come up; the text has its console."""


def mount(source: str, target: Path, kind: str, flags: int, options: str) -> None:
    """mount(2); by ctypes, since mount(8) would take the commas and colons of a path for its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), os.fsencode(target), kind.encode(), flags, options.encode()) != 0:
        code = ctypes.get_errno()
        raise BootFailed(f"mount {kind} at {target}: {os.strerror(code)}")


def overlay(lower: int, name: str, target: Path) -> Path:
    """Lay a writable layer over the directory behind a descriptor; gives the upper directory."""
    upper, work = HERE / "box" / f"{name}.upper", HERE / "box" / f"{name}.work"
    for directory in (upper, work, target):
        directory.mkdir(parents=True, exist_ok=True)
    if name == "root":
        guest.hide(Path(f"/proc/self/fd/{lower}"), upper)
    mount("overlay", target, "overlay", 0, f"lowerdir=/proc/self/fd/{lower},upperdir={upper},workdir={work}")
    return upper


def lay_out(order: dict[str, Any]) -> list[str]:
    """Mount and furnish the guest's tree; gives the binds that nspawn has to make."""
    tree = os.open(order["tree"], os.O_PATH | os.O_DIRECTORY)
    venv = os.open(order["venv"], os.O_PATH | os.O_DIRECTORY) if order["venv"] else None
    apart = {}  # an overlay does not cross mount points: what the host mounts apart needs a layer of its own
    if order["tree"] == "/":
        apart = {
            name: os.open(f"/{name}", os.O_PATH | os.O_DIRECTORY)
            for name in ("usr", "etc", "var", "opt")
            if os.path.ismount(f"/{name}")
        }
    mount("tmpfs", HERE, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=755,size={order['tmpfs_size']}")
    overlay(tree, "root", ROOT)
    for name, lower in apart.items():
        overlay(lower, name, ROOT / name)
    guest.furnish(ROOT, order["accounts"], hostname=order["hostname"], linger=order["linger"], group=order["group"])
    if venv is None:
        return []
    overlay(venv, "venv", VENV)
    guest.furnish_venv(VENV)
    (ROOT / "opt/gtrun").mkdir(parents=True, exist_ok=True)
    guest.link(ROOT / "usr/local/bin/gtrun", "/opt/gtrun/bin/gtrun")
    return [f"--bind={VENV}:/opt/gtrun"]


def start(cgroup: Path, binds: list[str], notify: str) -> subprocess.Popen[bytes]:
    """Start nspawn in the box's cgroup and in a pid namespace that dies with us."""
    # unshare dies with us, its child with unshare, and with that child, their init, all in the pid namespace
    bound = ["setpriv", "--pdeathsig=KILL", "--"]
    apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
    enter = ["/bin/sh", "-c", 'echo 0 >"$0" && exec "$@"', str(cgroup / "cgroup.procs")]
    nspawn = [
        "systemd-nspawn", "--quiet", f"--directory={ROOT}", "--machine=box", "--boot",
        "--register=no", "--keep-unit", "--settings=no", "--notify-ready=yes",
        "--private-network", "--link-journal=no", "--resolv-conf=off", "--timezone=off",
        "--console=read-only", *binds,
    ]  # fmt: skip
    with (HERE / "box/console").open("wb") as console:
        return subprocess.Popen(
            [*bound, *apart, *enter, *nspawn],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            env={
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "LANG": "C.UTF-8",
                "NOTIFY_SOCKET": notify,
                "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
            },
        )


def await_ready(notices: socket.socket, child: subprocess.Popen[bytes]) -> None:
    """Wait for READY=1 of the guest's systemd (sd_notify(3), by way of nspawn), its end, or the owner's."""
    deadline = time.monotonic() + BOOT_SECONDS
    ended = os.pidfd_open(child.pid)
    try:
        while True:
            ready = _readable([notices.fileno(), ended, 0], deadline)
            if not ready:
                raise BootFailed(f"not up within {BOOT_SECONDS:g} s\n{console()}")
            if 0 in ready:
                raise BootFailed("the owner is gone")
            if ended in ready:
                raise BootFailed(f"systemd-nspawn ended with {child.wait()}\n{console()}")
            if b"READY=1" in notices.recv(4096).splitlines():
                return
    finally:
        os.close(ended)


def _readable(descriptors: list[int], deadline: float) -> list[int]:
    return select.select(descriptors, [], [], max(0.0, deadline - time.monotonic()))[0]


def console() -> str:
    """The end of what nspawn and the guest wrote to the console."""
    return (HERE / "box/console").read_text(errors="replace")[-4000:]


def leader(cgroup: Path) -> int:
    """The guest's init, by the number that it has on the host."""
    for pid in (cgroup / "payload/init.scope/cgroup.procs").read_text().split():
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:") and line.split()[-1] == "1":
                return int(pid)
    raise BootFailed("the guest has no init")


def end(child: subprocess.Popen[bytes], cgroup: Path) -> None:
    """Kill the guest and nspawn; unshare, left without a child, then ends and is reaped here, not by init."""
    cgroups.kill_all(cgroup)
    try:
        child.wait(timeout=1)
    except subprocess.TimeoutExpired:  # it had not come as far as the cgroup
        child.kill()
        child.wait()


def keep(order: dict[str, Any]) -> None:
    """Boot, report, wait for EOF, clean up; boot what is on the disks again as often as that is asked for."""
    report: dict[str, Any]
    cgroup, _lock = cgroups.claim(order["name"])
    child, binds = None, None
    notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    while True:
        try:
            if binds is None:
                notices.bind("\0" + order["name"])  # abstract: no file, and reachable from every mount namespace
                binds = lay_out(order)
            child = start(cgroup, binds, "@" + order["name"])
            await_ready(notices, child)
            (cgroup / "payload/harness").mkdir()
            report = {"leader": leader(cgroup), "cgroup": str(cgroup)}
        except (BootFailed, OSError, ValueError) as error:
            report = {"failed": str(error)}
        with contextlib.suppress(BrokenPipeError):
            os.write(1, json.dumps(report).encode() + b"\n")  # print() would keep it, and fail once more at the exit
        is_asked_again = "leader" in report and os.read(0, 1)
        if child is not None:
            end(child, cgroup)
        if not is_asked_again:
            break
        cgroups.remove(cgroup / "payload")
        forget(notices)
    cgroups.release(cgroup)


def forget(notices: socket.socket) -> None:
    """What the last boot said of itself is not the next one's."""
    with contextlib.suppress(BlockingIOError):
        while True:
            notices.recv(4096, socket.MSG_DONTWAIT)


def _overhear(number: int, frame: object) -> None:
    """Do nothing about a signal."""


def main() -> NoReturn:
    """Read the order from the owner and keep the box."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the pipe says when, and nothing else
        signal.signal(number, _overhear)  # not SIG_IGN, which the guest would inherit
    os.umask(0o022)
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(0, 1) or sys.exit("no order")
    keep(json.loads(line))
    sys.exit(0)
