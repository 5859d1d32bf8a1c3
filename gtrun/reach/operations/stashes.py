"""Work of the account's clones that was set aside, or is in worktrees that a run has left."""

import os
import time
from typing import TYPE_CHECKING

import msgspec

from gtrun.clones import stashes
from gtrun.clones.stashes import Stash
from gtrun.reach.operations.session import Nothing, Session

if TYPE_CHECKING:
    from gtrun.git import Git

_SECONDS = 8.0
"""What git has for all of it: who asks waits a little longer. What it did not come to is listed."""


class Stashes(msgspec.Struct, frozen=True):
    """What is set aside, oldest first, and the records that are damaged."""

    stashes: list[Stash]
    damaged: list[str]


def stashes_of(session: Session, arguments: Nothing) -> Stashes:  # noqa: ARG001 - the signature of every operation
    """What is set aside and was not dropped since. A worktree counts once its run is over, if it holds something."""
    from gtrun.clones import worktrees  # noqa: PLC0415 - what no dispatch needs
    from gtrun.git import git_of  # noqa: PLC0415

    state = session.account.state
    git = git_of(session.account, os.environ, until=time.monotonic() + _SECONDS)
    recorded, damaged = stashes.read_all(state)
    found = []
    for _, stash in recorded:
        if not stash.folder:
            if not _is_dropped(git, stash):
                found.append(stash)
        elif not worktrees.is_in_use(state, stash.token):
            what = worktrees.held(git, stash)
            if what:
                found.append(msgspec.structs.replace(stash, what=f"worktree: {what}"))
    return Stashes(found, damaged)


def _is_dropped(git: "Git", stash: Stash) -> bool:
    """Whether somebody has removed the ref; not if that cannot be known."""
    from gtrun.git import GitFailed  # noqa: PLC0415

    try:
        return not git.at(stash.clone).run("for-each-ref", stash.ref)
    except GitFailed:
        return False
