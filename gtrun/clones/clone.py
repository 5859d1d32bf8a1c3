"""One clone: whose it is, what it is on, what it follows, and what keeps it from being touched."""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gtrun.clones.status import Status, Untouchable, hidden, parse_config, parse_status
from gtrun.errors import LaunchFailed
from gtrun.git import Git, GitFailed
from gtrun.text import plain

FETCH = 30.0
"""Seconds that a remote has for its answer."""

_UNDER_WAY = {
    "rebase-merge": "a rebase is in progress",
    "rebase-apply": "a rebase is in progress",
    "MERGE_HEAD": "a merge is in progress",
    "CHERRY_PICK_HEAD": "a cherry-pick is in progress",
    "REVERT_HEAD": "a revert is in progress",
    "sequencer": "a cherry-pick or revert is in progress",
    "BISECT_LOG": "a bisect is in progress",
    "index.lock": "its index is locked (index.lock)",
    "HEAD.lock": "its HEAD is locked (HEAD.lock)",
}
_STATUS = (
    "status", "--porcelain=v2", "-z", "--branch", "--untracked-files=all", "--no-renames", "--ignore-submodules=none",
)  # fmt: skip
_LISTING = ("ls-files", "-v", "-s", "-z")
_REMOTE = re.compile(r"remote\..+\.url", re.DOTALL)
_REF = "%(refname)%00%(objectname)%00%(upstream)%00%(symref)"
_SSH = "ssh -oBatchMode=yes -oConnectTimeout=10"


class NotAClone(LaunchFailed):
    """A path of fleet.toml that is no clone."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """What a run starts from: a commit, and the remote-tracking branch that has it, to be shown: `origin/main`.

    `is_default` is also true if the remote's default branch is not known here.
    """

    commit: str
    name: str
    is_default: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """A clone at one instant; two looks that are equal saw the same."""

    status: Status
    listing: bytes


@dataclass(frozen=True, slots=True)
class Clone:
    """A clone with a working tree; `folder` has no symbolic links in it.

    `git` runs none of the configured filters, so what it reads are the bytes on the disk; `writing` does.
    """

    folder: str
    git: Git
    writing: Git
    git_folder: str
    config: dict[str, list[str]]

    def value(self, key: str) -> str:
        """The value of a configuration key, empty if there is none."""
        return self.config.get(key, [""])[-1]

    def look(self) -> Seen:
        """What is in it. Raises Untouchable if something is under way or hidden, GitFailed."""
        for name, why in _UNDER_WAY.items():
            if os.path.lexists(f"{self.git_folder}/{name}"):
                raise Untouchable(why)
        status = parse_status(self.git.run(*_STATUS))
        listing = self.git.run(*_LISTING)
        root = os.fsencode(self.folder)
        if any(os.path.lexists(os.path.join(root, path)) for path in hidden(listing)):  # noqa: PTH118
            raise Untouchable("git was told not to look at some of its files (assume-unchanged or skip-worktree)")
        return Seen(status, listing)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """No other run syncs it meanwhile. Raises Untouchable if one does."""
        try:
            descriptor = os.open(self.git_folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Untouchable(f"it cannot be locked: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise Untouchable("another run is preparing it") from None
        finally:
            os.close(descriptor)

    def branch(self) -> str:
        """The branch that it is on; empty if HEAD is detached."""
        with contextlib.suppress(GitFailed):
            name = os.fsdecode(self.git.run("symbolic-ref", "--quiet", "HEAD")).rstrip("\n")
            return name.removeprefix("refs/heads/")
        return ""

    def remote(self, branch: str) -> str:
        """The remote that a branch follows, else `origin`, else the only one. Raises Untouchable if there is none."""
        known = [key.removeprefix("remote.").removesuffix(".url") for key in self.config if _REMOTE.fullmatch(key)]
        wanted = [self.value(f"branch.{branch}.remote"), "origin", *(known if len(known) == 1 else ())]
        name: str | None = next((each for each in wanted if each in known), None)
        if name is None:
            raise Untouchable("it has no remote")
        for rule in self.config.get(f"remote.{name}.fetch", []):
            into = rule.partition(":")[2]
            if (into and not into.startswith("refs/")) or into.startswith(("refs/*", "refs/heads/", "refs/gtrun/")):
                raise Untouchable("a fetch would overwrite its branches")
        return name

    def fetch(self, remote: str) -> None:
        """Ask the remote for what is new. Raises GitFailed, also at the deadline."""
        git = self.git if self.value("core.sshcommand") else self.git.given(GIT_SSH_COMMAND=_SSH)
        git.run("fetch", "--quiet", "--no-recurse-submodules", "--", remote, deadline=FETCH)

    def fetched_at(self) -> float | None:
        """When a fetch last ended, in seconds since the epoch; None if that is not known."""
        with contextlib.suppress(OSError):
            return Path(self.git_folder, "FETCH_HEAD").stat().st_mtime
        return None

    def upstreams(self, branch: str, remote: str) -> tuple[Upstream | None, Upstream | None]:
        """What the branch that it is on follows, and the remote's default branch, each None if there is none known.

        A detached HEAD follows the default branch. Raises GitFailed.
        """
        place = f"refs/remotes/{remote}"
        told = os.fsdecode(self.git.run("for-each-ref", f"--format={_REF}", f"refs/heads/{branch}", place))
        refs = {line.partition("\0")[0]: line.split("\0")[1:] for line in told.splitlines()}
        default = refs.get(f"{place}/HEAD", ["", "", ""])[2]
        followed = refs.get(f"refs/heads/{branch}", ["", "", ""])[1] if branch else default

        def upstream(ref: str) -> Upstream | None:
            if ref not in refs or not ref.startswith(f"{place}/"):
                return None
            return Upstream(refs[ref][0], plain(ref.removeprefix("refs/remotes/")), default in {"", ref})

        return upstream(followed), upstream(default)


def open_clone(path: str, git: Git) -> Clone:
    """The clone at a path. Raises NotAClone, Untouchable if it is somebody else's."""
    folder = os.path.realpath(path)
    if not os.path.isdir(folder):  # noqa: PTH112
        raise NotAClone(f"the clone {path} is not there", hint="clone it as the agent, or mend [run] clones")
    git = git.at(folder)
    try:
        told = git.run("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-dir", "--git-common-dir")
        top, git_folder, common = os.fsdecode(told).removesuffix("\n").split("\n")
        config = parse_config(replace(git, settings=()).run("config", "--list", "-z", "--includes"))
    except (GitFailed, ValueError):
        why = _whose(folder, f"{folder}/.git")
        if why:
            raise Untouchable(why) from None
        raise NotAClone(f"{path} is not a clone that git can work in", hint="look with: git status") from None
    if os.path.realpath(top) != folder:
        raise NotAClone(f"the files of the clone {path} are elsewhere, in {top} (core.worktree)")
    why = _whose(folder, git_folder, common, f"{common}/objects")
    if why:
        raise Untouchable(why)
    drivers = {key.rpartition(".")[0] for key in config if key.startswith("filter.")}
    if any("=" in one for one in drivers):
        raise Untouchable("one of its filters cannot be turned off")
    off = [f"{one}.{what}" for one in drivers for what in ("clean=", "smudge=", "process=", "required=false")]
    return Clone(folder, git.given(*off), git, git_folder, config)


def _whose(*folders: str) -> str:
    for folder in folders:
        try:
            if os.stat(folder).st_uid != os.geteuid():  # noqa: PTH116
                return "it is not this account's own"
        except OSError:
            continue
    return ""
