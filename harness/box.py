"""A throwaway machine with a real systemd, booted by systemd-nspawn from the host's own root.

    with Box(accounts=["alice"]) as box:
        box.run("systemctl", "--user", "list-units", account="alice")

Read-only below, writable in memory, gone afterwards however the owner ends: see `keeper`. Needs root.
`python -m harness.box [--account NAME] [-- COMMAND …]` boots one for a person.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar

from harness import guest, leftovers
from harness.outcome import Account, BoxError, Completed, Hung, NeedsRoot, Unexpected

__all__ = ["CHECKOUT", "Account", "Box", "BoxError", "Completed", "Hung", "NeedsRoot", "Unexpected"]

T = TypeVar("T")

CHECKOUT = Path(__file__).resolve().parent.parent
KEEPER = "import sys; sys.path.insert(0, sys.argv[1]); from harness.keeper import main; main()"
PATH = "/usr/local/bin:/usr/bin:/bin"
ROOT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BOOT_SECONDS = 35.0  # a little more than the keeper's own


class Box:
    """One booted machine; a context manager.

    accounts: made with UIDs from 1000, home /home/NAME, in `group` too if that is given.
    linger: their user managers run from boot on.
    venv: appears, writable for this box alone, as /opt/gtrun; None for no gtrun.
    tree: a root file system other than the host's, with everything of systemd's that a box needs.
    tmpfs_size: all that the box may write, in tmpfs(5)'s spelling.
    hostname: how it calls itself.
    Raises NeedsRoot, BoxError.
    """

    def __init__(
        self,
        *,
        accounts: Sequence[str] = ("alice", "bob"),
        linger: bool = True,
        venv: Path | None = CHECKOUT / ".venv",
        tree: Path | None = None,
        tmpfs_size: str = "2G",
        group: str | None = None,
        hostname: str = "box",
    ) -> None:
        self.hostname = hostname
        self.name = f"gtrun-box-{os.getpid()}-{secrets.token_hex(4)}"
        self.leader = 0
        self.boot_seconds = 0.0
        self._accounts = {
            name: Account(name, uid, f"/home/{name}") for name, uid in guest.numbered(list(accounts)).items()
        }
        self._order = {
            "name": self.name,
            "tree": str(tree or "/"),
            "venv": str(venv) if venv else None,
            "accounts": {account.name: account.uid for account in self._accounts.values()},
            "hostname": hostname,
            "linger": linger,
            "group": group,
            "tmpfs_size": tmpfs_size,
        }
        self._keeper: subprocess.Popen[bytes] | None = None
        self._cgroup = Path()

    def __enter__(self) -> Self:
        self.boot()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def boot(self) -> None:
        """Boot; returns when every lingering account's user manager is up."""
        if os.geteuid() != 0:
            raise NeedsRoot
        if self._order["venv"] and not Path(str(self._order["venv"])).is_dir():
            raise BoxError(f"{self._order['venv']}: no such environment; `scripts/setup test` makes it")
        began = time.monotonic()
        apart = ["unshare", "--mount", "--propagation", "private", "--"]
        self._keeper = subprocess.Popen(
            # -B: root, who boots boxes, leaves no compiled files of his in somebody's checkout
            [*apart, sys.executable, "-ISBc", KEEPER, str(CHECKOUT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a ^C at the terminal is the owner's, who then ends the box in order
        )
        try:
            self._await_keeper(self._keeper)
        except BaseException:
            self.close()
            raise
        self.boot_seconds = time.monotonic() - began

    def _await_keeper(self, keeper: subprocess.Popen[bytes]) -> None:
        assert keeper.stdin is not None
        keeper.stdin.write(json.dumps(self._order).encode() + b"\n")
        keeper.stdin.flush()
        self._await_report(keeper)

    def _await_report(self, keeper: subprocess.Popen[bytes]) -> None:
        assert keeper.stdout is not None
        ready, _, _ = select.select([keeper.stdout], [], [], BOOT_SECONDS)
        if not ready:
            raise BoxError(f"the box was not up within {BOOT_SECONDS:g} s")
        line = keeper.stdout.readline()
        if not line:
            raise BoxError(f"the box's keeper ended with {keeper.wait()} before the box was up")
        report = json.loads(line)
        if "failed" in report:
            raise BoxError(f"the box did not boot: {report['failed']}")
        self.leader, self._cgroup = report["leader"], Path(report["cgroup"])

    def close(self) -> None:
        """End the box: every process, mount, file and cgroup of it. A second call does nothing."""
        if self._keeper is None:
            return
        keeper, self._keeper = self._keeper, None
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        keeper.stdin.close()
        keeper.stdout.close()
        try:
            code = keeper.wait(timeout=15)
        except subprocess.TimeoutExpired:
            keeper.kill()  # the kernel ends the pid namespace with it; the next boot sweeps the cgroup
            keeper.wait()
            raise BoxError(f"{self.name}: the keeper did not end within 15 s and was killed") from None
        if code != 0:
            raise BoxError(f"{self.name}: the keeper ended with {code}")

    def lose_power(self) -> None:
        """End every process at once, as when the power fails, and boot again from what is on the disks.

        What lay in memory (/run, kernel state) is gone, the rest is kept; returns as `boot` does.
        """
        keeper = self._keeper
        if keeper is None:
            raise BoxError(f"{self.name} is not running")
        assert keeper.stdin is not None
        keeper.stdin.write(b"!")
        keeper.stdin.flush()
        self._await_report(keeper)

    # Commands

    def run(
        self,
        *argv: str | bytes,
        account: str = "root",
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        check: int | None = 0,
        timeout: float = 30.0,
        session: bool = True,
    ) -> Completed:
        """Run a command as an account in its home, and wait for it at most `timeout` seconds.

        The environment is closed: HOME, USER, LOGNAME, SHELL, PATH, LANG, with session XDG_RUNTIME_DIR,
        and `env` on top. check: the one exit code that is right, else Unexpected; None: the caller looks.
        Raises Unexpected, Hung.
        """
        process = self.spawn(*argv, account=account, env=env, session=session)
        try:
            stdout, stderr = process.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Hung(f"{list(argv)} as {account}: not done within {timeout:g} s\n{self._put_down(process)}") from None
        except BaseException:
            self.signal(process, signal.SIGKILL)
            process.wait()
            raise
        done = Completed(tuple(map(_text, argv)), account, process.returncode, stdout, stderr)
        if check is not None and done.code != check:
            raise Unexpected(done, check)
        return done

    def _put_down(self, process: subprocess.Popen[bytes]) -> str:
        """Kill a command that hangs; gives what it wrote, without a wait for children that hold the pipes."""
        self.signal(process, signal.SIGKILL)
        try:
            stdout, stderr = process.communicate(timeout=1)
        except subprocess.TimeoutExpired as late:
            stdout, stderr = late.stdout or b"", late.stderr or b""
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        return f"--- stdout\n{_text(stdout)}\n--- stderr\n{_text(stderr)}"

    def spawn(
        self,
        *argv: str | bytes,
        account: str = "root",
        env: Mapping[str, str] | None = None,
        session: bool = True,
        stdin: int | None = subprocess.PIPE,
        stdout: int | None = subprocess.PIPE,
        stderr: int | None = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        """Start a command as `run` does, with pipes.

        Signals go by `Box.signal`: Popen knows only the nsenter before the command.
        """
        entry = self._entry(account)
        environment = self.environment(account, session=session) | dict(env or {})
        settings = [f"{name}={value}" for name, value in environment.items()]
        return subprocess.Popen(
            [*entry, "env", "-i", f"--chdir={self.account(account).home}", *settings, *argv],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={"PATH": ROOT_PATH},
        )

    def _entry(self, account: str) -> list[str]:
        """The way in: the box's cgroup, then all of its init's namespaces, then the account."""
        if self._keeper is None:
            raise BoxError(f"{self.name} is not running")
        user = self.account(account)
        join = [
            "/bin/sh",
            "-c",
            'umask 022 && echo 0 >"$0" && exec "$@"',
            str(self.cgroup / "harness/cgroup.procs"),
        ]
        kinds = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]
        enter = ["nsenter", f"--target={self.leader}", *kinds, "--"]
        ids = [f"--reuid={user.uid}", f"--regid={user.uid}", "--init-groups"]
        drop = ["setpriv", *ids, "--pdeathsig=KILL", "--"]
        return [*join, *enter, *drop]

    def signal(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Send a signal to a spawned command itself."""
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in children.read_text().split():
                os.kill(int(child), number)
                return
            os.kill(process.pid, number)  # not yet inside, or over

    def environment(self, account: str, *, session: bool = True) -> dict[str, str]:
        """The closed environment of a command."""
        user = self.account(account)
        closed = {
            "HOME": user.home,
            "USER": user.name,
            "LOGNAME": user.name,
            "SHELL": "/bin/bash",
            "PATH": ROOT_PATH if user.uid == 0 else PATH,
            "LANG": "C.UTF-8",
        }
        if session:
            closed["XDG_RUNTIME_DIR"] = f"/run/user/{user.uid}"
        return closed

    def account(self, name: str) -> Account:
        """The account of that name; root, too. Raises BoxError."""
        if name == "root":
            return Account("root", 0, "/root")
        try:
            return self._accounts[name]
        except KeyError:
            raise BoxError(f"{name}: this box has {', '.join(self._accounts)} and root") from None

    # Files

    def path(self, inside: str) -> Path:
        """The same file as seen from the host, to read and write.

        An absolute symbolic link on the way would lead outside the box.
        """
        if not inside.startswith("/"):
            raise BoxError(f"{inside}: not absolute")
        return Path(f"/proc/{self.leader}/root{inside}")

    def write(self, inside: str, data: bytes | str, *, owner: str = "root", mode: int = 0o644) -> None:
        """Write a file, its missing folders as well (the owner's, 0755)."""
        user, path = self.account(owner), self.path(inside)
        for folder in [parent for parent in reversed(path.parents) if not parent.exists()]:
            folder.mkdir(mode=0o755)
            os.chown(folder, user.uid, user.uid)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        os.chown(path, user.uid, user.uid)
        path.chmod(mode)

    def replace(self, inside: str, old: str, new: str) -> None:
        """Put `new` for the one occurrence of `old` in the one file that `inside`, a glob, matches.

        Raises BoxError for none or several of either.
        """
        found = sorted(self.path("/").glob(inside.lstrip("/")))
        if len(found) != 1:
            raise BoxError(f"{inside}: {len(found)} files match, one is wanted")
        text = found[0].read_text()
        if text.count(old) != 1:
            raise BoxError(f"{inside}: {text.count(old)} occurrences of {old!r}, one is wanted")
        found[0].write_text(text.replace(old, new))
        for compiled in found[0].parent.glob(f"__pycache__/{found[0].stem}.*.pyc"):
            compiled.unlink()  # Python compares times in whole seconds

    def mount_small(self, path: str, size_bytes: int, owner: str) -> None:
        """Mount a file system of so many bytes (rounded up to pages) at a path, made if missing."""
        uid = self.account(owner).uid
        self.run("mkdir", "-p", path)
        options = f"size={size_bytes},mode=0700,uid={uid},gid={uid}"
        self.run("mount", "-t", "tmpfs", "-o", options, "box", path)

    def remount_read_only(self, path: str) -> None:
        """Make a directory read-only for everyone in the box, as a disk with an error is."""
        self.run("mount", "--bind", path, path)
        self.run("mount", "-o", "remount,bind,ro", path)

    def remount_writable(self, path: str) -> None:
        """Undo `remount_read_only`."""
        self.run("umount", path)

    def allow_ssh(self, caller: str, target: str, *, at: Box | None = None) -> None:
        """Give `caller` a key (once) that opens `target` in this box, or in another (see `harness.pair`)."""
        self.make_key(caller)
        there = at or self
        public = self.path(f"{self.account(caller).home}/.ssh/id_ed25519.pub").read_text()
        inside = f"{there.account(target).home}/.ssh/authorized_keys"
        before = there.path(inside).read_text() if there.path(inside).exists() else ""
        if public not in before:
            there.write(inside, before + public, owner=target, mode=0o600)

    def make_key(self, account: str) -> None:
        """Give an account an SSH key of its own, if it has none."""
        key = f"{self.account(account).home}/.ssh/id_ed25519"
        if not self.path(key).exists():
            self.run("mkdir", "-p", "-m", "0700", key.rpartition("/")[0], account=account)
            self.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", account, "-f", key, account=account)

    # Looking

    def wait_for(self, what: str, probe: Callable[[], T | None], *, timeout: float = 10.0) -> T:
        """What the probe gives once that is neither None nor False.

        It is asked every 10 ms for `timeout` seconds; then Hung.
        """
        deadline, pause = time.monotonic() + timeout, threading.Event()
        while True:
            found = probe()
            if found is not None and found is not False:
                return found
            if time.monotonic() >= deadline:
                raise Hung(f"{what}: not within {timeout:g} s")
            pause.wait(0.01)

    def journal(self, *arguments: str) -> str:
        """The box's journal, as root reads it (journalctl(1) arguments)."""
        return self.run("journalctl", "--no-pager", "--quiet", *arguments).out

    def leftovers(self) -> list[str]:
        """What gtrun left behind: units, processes, cgroups, files; empty after a good scenario."""
        return leftovers.of(self)

    @property
    def accounts(self) -> tuple[Account, ...]:
        """The accounts that the box was asked for."""
        return tuple(self._accounts.values())

    @property
    def running(self) -> bool:
        """Whether the guest's init is alive."""
        return self._keeper is not None and Path(f"/proc/{self.leader}").exists()

    @property
    def keeper(self) -> int:
        """The host's pid of the process that keeps the box; 0 when closed."""
        return self._keeper.pid if self._keeper else 0

    @property
    def cgroup(self) -> Path:
        """The guest's root cgroup as seen from the host."""
        return self._cgroup / "payload"


def _text(argument: str | bytes) -> str:
    return argument if isinstance(argument, str) else os.fsdecode(argument)


if __name__ == "__main__":
    from harness.visit import main

    sys.exit(main(sys.argv[1:]))
