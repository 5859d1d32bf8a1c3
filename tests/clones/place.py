"""A clone, its remote, and the account that works in it."""

import os
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gtrun.account import own
from gtrun.clones import stashes
from gtrun.clones.sync import Sync
from gtrun.git import git_of
from gtrun.model import Issue, Limits, ResolvedRun
from gtrun.names import IssueKey, RunId, Token, UnitName

RUN = RunId("a" * 32)
IDENTITY = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b"}


class Place:
    """A remote with two commits, a clone of it that is one behind, and an account's state."""

    def __init__(self, root: Path) -> None:
        self.root, self.clone, self.remote, self.state = root, root / "app", root / "remote.git", root / "state"
        self.home = root / "home"
        self.notes: list[str] = []
        self.moved: dict[str, str] = {}
        self.tip = ""

    def copy(self, like: "Place") -> "Place":
        """Make it as another is."""
        self.home.mkdir(parents=True)
        for name in ("app", "remote.git"):
            shutil.copytree(like.root / name, self.root / name, symlinks=True)
        self.git(self.clone, "remote", "set-url", "origin", str(self.remote))
        self.tip = like.tip
        return self

    def make(self) -> "Place":
        self.home.mkdir()
        seed = self.root / "seed"
        self.git(self.root, "init", "-q", "--bare", "-b", "main", str(self.remote))
        self.git(self.root, "init", "-q", "-b", "main", str(seed))
        write(seed / "kept", "kept\n")
        write(seed / "changed", "one\n")
        write(seed / "dir/inner", "inner\n")
        write(seed / "run.sh", "#!/bin/sh\n")
        (seed / "link").symlink_to("kept")
        write(seed / ".gitignore", "*.log\nbuild/\n")
        self.commit(seed, "one")
        self.git(seed, "remote", "add", "origin", str(self.remote))
        self.git(seed, "push", "-q", "origin", "main")
        self.git(self.root, "clone", "-q", str(self.remote), str(self.clone))
        write(seed / "changed", "two\n")
        write(seed / "new", "new\n")
        self.commit(seed, "two")
        self.git(seed, "push", "-q", "origin", "main")
        self.tip = self.git(seed, "rev-parse", "HEAD").strip()
        return self

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            **IDENTITY,
        }

    def git(self, folder: Path, *arguments: str | bytes) -> str:
        done = subprocess.run(
            ["git", "-C", folder, *arguments],  # noqa: S607
            env=self.environment(), check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        return os.fsdecode(done.stdout)

    def sh(self, script: str) -> None:
        """Do something in the clone."""
        subprocess.run(["bash", "-euc", script], cwd=self.clone, env=self.environment(), check=True, timeout=60)  # noqa: S607

    def commit(self, folder: Path, message: str) -> None:
        self.git(folder, "add", "-A")
        self.git(folder, "commit", "-q", "-m", message)

    def resolved(self, **changes: object) -> ResolvedRun:
        run = ResolvedRun(
            token=Token("b" * 32), agent="me", rig="here", issue=Issue(key=IssueKey("1"), title="T"),
            unit=UnitName("task-1.service"), identifier="task-1", board="/b", terminal_labels=(), terminal_glyphs=(),
            backend="x", command=("x",), prompt="", workdir=f"{self.clone}/dir", environment={}, path=("/usr/bin",),
            time_limit=None, stop_timeout=30, limits=Limits(), keep=1, dispatched_at=1, dispatched_by="me",
            clones=(str(self.clone),),
        )  # fmt: skip
        return msgspec.structs.replace(run, **changes)

    def sync(self, run_id: RunId = RUN, programs: Sequence[str] = (), **changes: object) -> str:
        """Sync; gives the workdir of the run."""
        account = msgspec.structs.replace(own({}), home=str(self.home))
        git = git_of(account, {}, programs).given(GIT_CONFIG_NOSYSTEM="1")
        run = self.resolved(**changes)
        return Sync(run, run_id, str(self.state), git, self.notes.append, self.moved.__setitem__).all().workdir

    def bring_back(self, stash: stashes.Stash) -> None:
        """Type the command that a stash tells."""
        subprocess.run(stash.command, env=self.environment(), check=True, capture_output=True, timeout=60)

    def stashes(self) -> list[stashes.Stash]:
        return [stash for _, stash in stashes.read_all(str(self.state))[0]]


def write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


def tree(folder: Path) -> dict[bytes, tuple[str, bytes]]:
    """Every file below, but what is git's own: its kind and its bytes."""
    found = {}
    for path in map(Path, folder.rglob("*")):
        inside = os.fsencode(path.relative_to(folder))
        if inside.startswith(b".git/") or inside == b".git":
            continue
        if path.is_symlink():
            found[inside] = ("link", os.fsencode(path.readlink()))
        elif path.is_file():
            found[inside] = ("program" if path.stat().st_mode & stat.S_IXUSR else "file", path.read_bytes())
    return found


def everything(place: Place) -> tuple[object, ...]:
    """What a clone is: its files, its index and its HEAD."""
    return (
        tree(place.clone),
        place.git(place.clone, "ls-files", "-s", "-z"),
        place.git(place.clone, "rev-parse", "HEAD"),
        place.git(place.clone, "status", "--porcelain", "-z", "--untracked-files=all"),
    )


def others(place: Place) -> list[str]:
    """Every local branch but the remote's default one, with its commit."""
    listed = place.git(place.clone, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads")
    return [line for line in listed.splitlines() if not line.startswith("refs/heads/main ")]


def on(place: Place) -> tuple[str, str]:
    """The branch that the clone is on, and its commit."""
    return (
        place.git(place.clone, "branch", "--show-current").strip(),
        place.git(place.clone, "rev-parse", "HEAD").strip(),
    )
