"""One clone: whose it is, what it is on, what it follows, and what keeps it from being touched."""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gtrun.clones.status import Status, Untouchable, hidden, parse_config, parse_status
from gtrun.errors import LaunchFailed
from gtrun.files import lock_at_once
from gtrun.git import Git, GitFailed, over_ssh
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
_REF = "%(refname)%00%(objectname)%00%(upstream)%00%(symref)%00%(worktreepath)"


class NotAClone(LaunchFailed):
    """A path of fleet.toml that is no clone."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a run starts from: a commit, and the remote-tracking branch that has it (`refs/remotes/origin/main`).

    `branch` is the local branch that goes with it, empty if HEAD is to be detached, and `tip` the commit of that, empty
    if it is not there. `why` says what is not as usual, as a clause about the clone.
    """

    commit: str
    ref: str
    branch: str
    tip: str
    why: str = ""

    @property
    def name(self) -> str:
        """The remote-tracking branch as it is shown: `origin/main`."""
        return plain(self.ref.removeprefix("refs/remotes/"))


@dataclass(frozen=True, slots=True)
class Seen:
    """A clone at one instant; two looks that are equal saw the same."""

    status: Status
    listing: bytes


@dataclass(frozen=True, slots=True)
class Clone:
    """A clone with a working tree; `folder` has no symbolic links in it.

    `git` runs none of the configured filters, so what it reads are the bytes on the disk; `writing` does.
    `git_folder` is that of this worktree, `common_folder` has what it shares with others (git-worktree(1)).
    """

    folder: str
    git: Git
    writing: Git
    git_folder: str
    common_folder: str
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
            if not lock_at_once(descriptor):
                raise Untouchable("another run is preparing it")
            yield
        finally:
            os.close(descriptor)

    def branch(self) -> str:
        """The branch that it is on; empty if HEAD is detached."""
        with contextlib.suppress(GitFailed):
            name = os.fsdecode(self.git.run("symbolic-ref", "--quiet", "HEAD")).rstrip("\n")
            return name.removeprefix("refs/heads/")
        return ""

    def remote(self, branch: str) -> str:
        """`checkout.defaultRemote`, else `origin`, else the only one, else the one that the branch follows.

        A run that leaves the clone on a branch of another remote decides nothing. Raises Untouchable if there is none.
        """
        known = [key.removeprefix("remote.").removesuffix(".url") for key in self.config if _REMOTE.fullmatch(key)]
        only = known if len(known) == 1 else [self.value(f"branch.{branch}.remote")]
        wanted = [self.value("checkout.defaultremote"), "origin", *only]
        name: str | None = next((each for each in wanted if each in known), None)
        if name is None:
            raise Untouchable("it has no remote")
        for rule in self.config.get(f"remote.{name}.fetch", []):
            into = rule.partition(":")[2]
            if (into and not into.startswith("refs/")) or into.startswith(("refs/*", "refs/heads/", "refs/gtrun/")):
                raise Untouchable("a fetch would overwrite its branches")
        return name

    def fetch(self, remote: str, wanted: str) -> str | None:
        """Ask the remote for what is new; gives its default branch, empty if it has none, None if it does not say.

        Raises GitFailed, also at the deadline, and Untouchable if it has no branch `wanted`, which may be empty.
        """
        git = self.git.given(GIT_SSH_COMMAND=over_ssh(self.value("core.sshcommand")))
        refs = ("HEAD", *((f"refs/heads/{wanted}",) if wanted else ()))
        told = os.fsdecode(git.run("ls-remote", "--symref", "--", remote, *refs, deadline=FETCH))
        default: str | None = ""
        found = set()
        for line in told.split("\n"):
            what, _, ref = line.partition("\t")
            found.add(ref)
            if ref == "HEAD":
                default = what.removeprefix("ref: refs/heads/") if what.startswith("ref: ") else default or None
        if wanted and refs[1] not in found:
            raise Untouchable(f"its remote has no branch {plain(wanted)}")
        git.run("fetch", "--quiet", "--no-recurse-submodules", "--", remote, deadline=FETCH)
        return default

    def fetched_at(self) -> float | None:
        """When a fetch last ended, in seconds since the epoch; None if that is not known: one that fails empties it."""
        with contextlib.suppress(OSError):
            info = Path(self.git_folder, "FETCH_HEAD").stat()
            return info.st_mtime if info.st_size else None
        return None

    def start(self, remote: str, default: str | None, wanted: str) -> Start | None:
        """What a run starts from: the branch `wanted` of the remote, else its default branch, which is remembered.

        `default` is as `fetch` gave it. If it is not known here, that is the branch which the clone is on, if it
        follows one of the remote's; None if it does not. Raises GitFailed, Untouchable if there is no branch `wanted`.
        """
        place = f"refs/remotes/{remote}"
        told = os.fsdecode(self.git.run("for-each-ref", f"--format={_REF}", "refs/heads", place))
        refs = {line.partition("\0")[0]: line.split("\0")[1:] for line in told.split("\n") if line}
        _, _, remembered, _ = refs.pop(f"{place}/HEAD", ("", "", "", ""))
        if default and f"{place}/{default}" in refs and remembered != f"{place}/{default}":
            self.git.run("symbolic-ref", "-m", "gtrun: as the remote says", f"{place}/HEAD", f"{place}/{default}")
        branch = wanted or (remembered.removeprefix(f"{place}/") if default is None else default)
        ref, why = f"{place}/{branch}", ""
        if wanted and ref not in refs:
            raise Untouchable(f"there is no branch {plain(wanted)} in what was fetched of its remote")
        if ref not in refs:
            why = "no default branch of the remote is known"
            if branch:
                why = f"the remote's default branch {plain(branch)} is not fetched"
            branch = self.branch()
            ref = refs[f"refs/heads/{branch}"][1] if f"refs/heads/{branch}" in refs else ""
            if ref not in refs or not ref.startswith(f"{place}/"):
                return None
            why = f"it stays on its branch {plain(branch)}, since {why}"
        tip, _, _, used_in = refs.get(f"refs/heads/{branch}", ("", "", "", ""))
        if used_in and os.path.realpath(used_in) != self.folder:
            why = f"it is on no branch, since {plain(branch)} is checked out in {plain(used_in)}"
            branch = tip = ""
        return Start(refs[ref][0], ref, branch, tip, why)


def is_text(path: str) -> bool:
    """Whether a path can be told: it is UTF-8, which a link in one that is need not lead to."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def open_clone(path: str, git: Git) -> Clone:
    """The clone at a path. Raises NotAClone, Untouchable if it is somebody else's."""
    folder = os.path.realpath(path)
    if not os.path.isdir(folder):  # noqa: PTH112
        raise NotAClone(f"the clone {path} is not there", hint="clone it as the agent, or mend [run] clones")
    if not is_text(folder):
        raise Untouchable(f"it is in {plain(folder)}, which is not UTF-8")
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
    return Clone(folder, git.given(*off), git, git_folder, common, config)


def _whose(*folders: str) -> str:
    for folder in folders:
        try:
            if os.stat(folder).st_uid != os.geteuid():  # noqa: PTH116
                return "it is not this account's own"
        except OSError:
            continue
    return ""
