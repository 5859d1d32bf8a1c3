"""Fresh worktrees: where a run works if its clone is not touched.

They lie in the account's state, and are removed once their run is over and they provably hold nothing that the remote
has not. What git ignores is nothing.
"""

import contextlib
import os
import shutil
import time
from pathlib import Path

import msgspec

from gtrun.clones import stashes
from gtrun.clones.aside import find_work
from gtrun.clones.clone import Clone, NotAClone, Start, open_clone
from gtrun.clones.stashes import Stash
from gtrun.clones.status import Untouchable
from gtrun.errors import GtrunError, StateError
from gtrun.files import ensure_private_folder
from gtrun.git import CHECKOUT, Git, GitFailed
from gtrun.names import Token
from gtrun.state import record as records

_UNLIMITED = 1 << 62


def add(state: str, name: str, clone: Clone, start: Start, stash: Stash) -> str:
    """Make a fresh worktree, which has a record from before it is there; gives its folder. Raises GtrunError."""
    folder = Path(stash.folder)
    path = stashes.write(state, name, stash)
    try:
        ensure_private_folder(folder.parent)
        clone.writing.run("worktree", "add", "--detach", "--quiet", str(folder), start.commit, deadline=CHECKOUT)
        made = clone.git.at(str(folder)).run("rev-parse", "--verify", "HEAD").decode().strip()
        if made != start.commit:
            raise GitFailed("git worktree did not do what it said")
        stashes.write(state, name, msgspec.structs.replace(stash, is_made=True))
    except (GitFailed, StateError):
        _drop(clone.git, path, stash)
        raise
    return str(folder)


def held(git: Git, stash: Stash) -> str:
    """What a worktree holds that is nowhere else, in words; empty if that is provably nothing."""
    if not stash.is_made or not os.path.lexists(stash.folder):
        return ""
    try:
        clone = open_clone(stash.folder, git)
        work = find_work(clone, most=_UNLIMITED)
        if work.is_uncommitted or work.commits:
            return work.described()
        lost = clone.git.run("log", "--walk-reflogs", "--format=%H", "HEAD").split()
        told = clone.git.run(
            "rev-list", "--count", "--stdin", "--not", "--remotes", "--branches", "--tags",
            feed=(oid + b"\n" for oid in lost),
        )  # fmt: skip
    except (NotAClone, Untouchable, GitFailed) as error:
        return f"not known: {error.message}"
    return f"{int(told)} {'commits' if int(told) > 1 else 'commit'} that no branch has" if int(told) else ""


def prune(state: str, git: Git) -> None:
    """Remove the worktrees of runs that are over if they hold nothing, until git's time is over."""
    for path, stash in stashes.read_all(state)[0]:
        if time.monotonic() > git.until:
            return
        if not stash.folder or is_in_use(state, stash.token) or held(git, stash):
            continue
        folder = Path(stash.folder)
        if not stash.is_made:
            _drop(git.at(stash.clone), path, stash)
            continue
        if folder.exists():
            try:
                git.at(stash.clone).run("worktree", "remove", str(folder), deadline=CHECKOUT)
            except GitFailed:
                continue  # git found something, or its clone is gone
        _drop_folders(folder)
        stashes.forget(path)


def _drop(git: Git, path: Path, stash: Stash) -> None:
    """Remove a worktree that was not made to its end, in which nobody has worked, and its record."""
    shutil.rmtree(stash.folder, ignore_errors=True)
    with contextlib.suppress(GitFailed):
        git.run("worktree", "remove", "--force", "--force", stash.folder)  # twice: it is locked while it is made
    _drop_folders(Path(stash.folder))
    stashes.forget(path)


def is_in_use(state: str, token: Token) -> bool:
    """Whether the run has not ended, as far as its record tells."""
    try:
        return records.read(records.open_folder(state) / f"{token}.jsonl").ending is None
    except FileNotFoundError:
        return False
    except (StateError, GtrunError):
        return True


def _drop_folders(folder: Path) -> None:
    """The folders around a worktree, if they are empty."""
    with contextlib.suppress(OSError):
        for each in (folder, folder.parent, folder.parent.parent):
            if each.exists():
                each.rmdir()
