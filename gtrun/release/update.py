"""Which release a run should go on with: the newest commit of the upstream branch, or why it is not to be had."""

import contextlib
import os
import time
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum

from gtrun.errors import GtrunError, StateError
from gtrun.files import describe
from gtrun.release.build import BuildFailed, Busy, EnvironmentFailed, build, locked, make_current, prune
from gtrun.release.git import Checkout, GitError, State
from gtrun.release.installation import Release


class Reason(StrEnum):
    """Why a run goes on with the release that it has."""

    NOT_A_CHECKOUT = "not-a-checkout"
    NOT_OURS = "not-ours"
    BUSY = "another-update"
    DETACHED = "detached"
    NO_UPSTREAM = "no-upstream"
    OFFLINE = "offline"
    DIRTY = "dirty"
    DIVERGED = "diverged"
    REWRITTEN = "rewritten"
    UNUSABLE = "unusable"
    DEPENDENCIES = "dependencies"
    FAILED = "failed"


class NotUpdated(GtrunError):
    """The run goes on with what it has; `behind` is by how many commits, as of the last fetch, if that is known."""

    def __init__(self, reason: Reason, message: str, behind: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.behind = behind

    @property
    def said(self) -> str:
        """All of it in one clause."""
        if self.behind is None:
            return self.message
        commits = "1 commit" if self.behind == 1 else f"{self.behind} commits"
        return f"{self.message}; {commits} behind as of the last fetch"


def judge(state: State, offline: str, *, was_upstream: bool) -> tuple[Reason, str] | None:
    """Why the branch cannot be fast-forwarded, if it cannot. Pure."""
    if not state.branch:
        return Reason.DETACHED, "no branch is checked out"
    if not state.upstream:
        return Reason.NO_UPSTREAM, f"branch {state.branch} has no upstream branch"
    if offline:
        return Reason.OFFLINE, f"the remote could not be asked ({offline})"
    if state.ahead is None or state.behind is None:
        return Reason.NO_UPSTREAM, f"the upstream branch {state.upstream} is gone"
    if state.is_dirty:
        return Reason.DIRTY, "the checkout has changes that are not committed"
    if state.ahead and state.behind:
        if was_upstream:
            return Reason.REWRITTEN, f"{state.upstream} was rewritten"
        return Reason.DIVERGED, f"{state.branch} and {state.upstream} have diverged"
    return None


def newest(own: Release, *, environment: Mapping[str, str], in_use: Callable[[], Collection[str] | None]) -> Release:
    """The release that should run now; `own` if that is it. Raises NotUpdated.

    The branch is fast-forwarded, the release made and proven, `current` turned to it. `in_use` gives the folders of
    releases that runs still need, or None if that cannot be told: then none is removed.
    """
    checkout = Checkout(own.checkout, environment)
    _require_ours(own, checkout)
    try:
        with locked(own.root):
            return _newest(own, checkout, environment, in_use)
    except Busy as error:
        raise NotUpdated(Reason.BUSY, error.message, _behind(own, checkout)) from None
    except EnvironmentFailed as error:
        raise NotUpdated(Reason.DEPENDENCIES, error.message, _behind(own, checkout)) from None
    except BuildFailed as error:
        raise NotUpdated(Reason.UNUSABLE, error.message, _behind(own, checkout)) from None
    except (GitError, StateError) as error:
        raise NotUpdated(Reason.FAILED, error.message, _behind(own, checkout)) from None
    except OSError as error:
        raise NotUpdated(Reason.FAILED, describe(error), _behind(own, checkout)) from None


def _newest(
    own: Release,
    checkout: Checkout,
    environment: Mapping[str, str],
    in_use: Callable[[], Collection[str] | None],
) -> Release:
    offline = ""
    try:
        checkout.fetch()
    except GitError as error:
        offline = error.message
    state = checkout.state()
    was_upstream = bool(state.ahead and state.behind) and checkout.was_upstream()
    why = judge(state, offline, was_upstream=was_upstream)
    if why is not None:
        raise NotUpdated(*why, _behind(own, checkout))
    wanted = checkout.upstream_commit() if state.behind else state.head
    if wanted == own.commit:
        return own
    release = build(own.root, checkout, wanted, own.python, environment, before=own)
    if state.behind:
        checkout.fast_forward(wanted)
    make_current(release)
    used = in_use()
    if used is not None:
        with contextlib.suppress(OSError, StateError):  # what is left over is tried again by the next one
            prune(own.root, {*used, str(own.folder)}, time.time())
    return release


def _require_ours(own: Release, checkout: Checkout) -> None:
    """Both the clone and the installation belong to this account, which can write them. Raises NotUpdated."""
    for place in (checkout.path, checkout.path / ".git", own.root, own.root / "releases"):
        try:
            is_ours = place.stat().st_uid == os.geteuid() and os.access(place, os.W_OK)
        except PermissionError:
            is_ours = False
        except OSError as error:
            raise NotUpdated(Reason.NOT_A_CHECKOUT, f"there is no checkout any more: {describe(error)}") from None
        if not is_ours:
            raise NotUpdated(Reason.NOT_OURS, f"{place} is not this account's to write", _behind(own, checkout))


def _behind(own: Release, checkout: Checkout) -> int | None:
    """git obeys the configuration of a repository: it is asked only where that is root's or our own."""
    with contextlib.suppress(OSError, GitError):
        if checkout.path.stat().st_uid in {0, os.geteuid()}:
            return checkout.count_behind(own.commit)
    return None
