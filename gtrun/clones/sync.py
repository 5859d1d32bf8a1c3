"""Bringing the clones of a run to the remote's state before it begins."""

import contextlib
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from gtrun.clones import aside, interrupted, stashes, worktrees
from gtrun.clones.clone import Clone, Start, is_text, open_clone
from gtrun.clones.status import Untouchable
from gtrun.errors import GtrunError, LaunchFailed, StateError
from gtrun.git import Git, GitFailed
from gtrun.measures import human_seconds
from gtrun.model import ResolvedRun, Run
from gtrun.names import RunId
from gtrun.state import record as records
from gtrun.text import plain

_UNKNOWN = "no default branch of its remote is known"
_PRUNING = 1.0  # seconds that a run has for the worktrees of others


@dataclass(frozen=True, slots=True)
class Sync:
    """One run whose clones are brought to the remote's state.

    `note` tells a reader of the issue something; `works_in` writes down that the run uses a folder instead of a clone.
    """

    run: ResolvedRun
    run_id: RunId
    state: str
    git: Git
    note: Callable[[str], None]
    works_in: Callable[[str, str], None]

    def all(self) -> ResolvedRun:
        """Sync each clone; returns the run with its workdir where it is now.

        Raises LaunchFailed if a clone cannot be used and there is no worktree in its place either.
        """
        run = self.run
        for number, path in enumerate(run.clones):
            folder = self._one(number, path)
            run = msgspec.structs.replace(run, workdir=moved(run.workdir, path, folder))
        return run

    def _one(self, number: int, path: str) -> str:
        """Sync one clone; gives the folder to work in."""
        with contextlib.ExitStack() as held:
            try:
                clone = open_clone(path, self.git)
                remote = clone.remote(clone.branch())
                why = self._begin(clone, held)
                start = clone.start(remote, self._fetch(clone, remote), self.run.branch)
            except (Untouchable, GitFailed) as error:
                raise LaunchFailed(f"the clone {path} cannot be used: {error.message}") from error
            if self.run.worktree == "fresh":
                return self._fresh(number, clone, start, "")
            try:
                if why or start is None:
                    raise Untouchable(why or _UNKNOWN)
                self._bring(number, clone, start)
            except (Untouchable, GitFailed, StateError) as error:
                self._drop_locks(clone)
                return self._fresh(number, clone, start, error.message)
        if start.why:
            self.note(f"the clone {path} is at {start.name}: {start.why}")
        return path

    def _begin(self, clone: Clone, held: contextlib.ExitStack) -> str:
        """Have the clone for this sync alone until `held` is left; gives why it cannot be had, empty if it is."""
        try:
            held.enter_context(clone.locked())
            self._refuse_used(clone)
            killed = interrupted.recover(clone)
            held.enter_context(interrupted.under_way(clone, self.state, self.run_id))
        except (Untouchable, GitFailed, StateError) as error:
            return error.message
        if killed:
            before = f"the sync of the clone {clone.folder} before run {killed[:12]}"
            self.note(f"{before} was killed in the middle: what it left is set aside with the rest")
        return ""

    def _drop_locks(self, clone: Clone) -> None:
        """After a git that failed: it may have been killed at its deadline."""
        with contextlib.suppress(Untouchable):
            interrupted.drop_locks(clone, self.run_id)

    def _fetch(self, clone: Clone, remote: str) -> str | None:
        """Fetch; gives the remote's default branch, as `Clone.fetch` does."""
        at = clone.fetched_at()
        try:
            return clone.fetch(remote, self.run.branch)
        except GitFailed as error:
            self._drop_locks(clone)
            then = f"as fetched {human_seconds(max(0.0, time.time() - at))} ago" if at else "as of the last fetch"
            self.note(f"the remote of the clone {clone.folder} was not reached ({error.message}): {then}")
        return None

    def _refuse_used(self, clone: Clone) -> None:
        """Raises Untouchable if another live run of this account works in it."""
        for path in records.open_records(self.state):
            with contextlib.suppress(StateError, FileNotFoundError):
                other = records.read(path)
                if other.resolved.token != self.run.token and works_in(other, clone.folder) and _is_live(other):
                    raise Untouchable(f"{other.resolved.unit} works in it")

    def _bring(self, number: int, clone: Clone, start: Start) -> None:
        """Set aside what is in a clone, then bring it to the commit. Raises Untouchable, GitFailed, StateError."""
        work = aside.find_work(clone, most=self.run.stash_max, pushed=start.commit)
        status = work.seen.status
        if not work.is_uncommitted and (status.head, status.branch) == (start.commit, start.branch):
            return
        aside.check_overwritten(clone, work, start.commit)
        if work.is_uncommitted or work.commits:
            ref = self._ref(number)
            commit = aside.set_aside(clone, work, ref, self.run_id)
            there = f" on {plain(status.branch)}" if status.branch not in {"", start.branch} else ""
            how = ("stash", "branch") if work.is_uncommitted else ("checkout", "-b")
            self._record(f"{number}", clone, commit, work.described() + there, how)
        if start.branch not in {"", status.branch}:
            self._move_branch(number, clone, start)
        if work.is_uncommitted:
            aside.clear(clone, work)
        try:
            aside.check_out(clone, start)
        except GitFailed as error:
            raise Untouchable(f"it could not be reset: {error.message}") from error

    def _move_branch(self, number: int, clone: Clone, start: Start) -> None:
        """Bring the local branch, which the clone is not on, to the commit; what only it has is set aside."""
        part = f"{number}-branch"
        commits = aside.keep_branch(clone, start, self._ref(part))
        if commits:
            what = f"{commits} unpushed commit{'s' if commits > 1 else ''} on {plain(start.branch)}"
            self._record(part, clone, start.tip, what, ("checkout", "-b"))
        aside.move_branch(clone, start)

    def _ref(self, part: int | str) -> str:
        return f"refs/gtrun/{self.run_id}/{part}"

    def _record(self, part: str, clone: Clone, commit: str, what: str, how: tuple[str, ...]) -> None:
        """Write down what was set aside, durably, and tell the reader of the issue. Raises StateError."""
        ref = self._ref(part)
        command = ("git", "-C", clone.folder, *how, f"gtrun-{self.run_id[:12]}-{part}", ref)
        found = stashes.of_run(self.run, self.run_id, clone.folder, time.time(), what, command)
        stashes.write(self.state, f"{self.run_id}.{part}", msgspec.structs.replace(found, ref=ref, commit=commit))
        self.note(f"set aside from the clone {clone.folder}: {what}; to bring it back: {shlex.join(command)}")

    def _fresh(self, number: int, clone: Clone, start: Start | None, why: str) -> str:
        """Make a fresh worktree in the clone's place; gives its folder. Raises LaunchFailed."""
        left = f"the clone {clone.folder} is left as it is ({why})" if why else f"the clone {clone.folder} is not used"
        if start is None:
            raise LaunchFailed(f"{left}, and {_UNKNOWN}", hint='name a branch of the remote: [run] branch = "main"')
        worktrees.prune(self.state, replace(self.git, until=time.monotonic() + _PRUNING))
        folder = Path(self.state, "worktrees", self.run_id, str(number), Path(clone.folder).name)
        command = ("git", "-C", str(folder), "status")
        made = stashes.of_run(self.run, self.run_id, clone.folder, time.time(), "a worktree", command)
        try:
            worktrees.add(
                self.state, f"{self.run_id}.{number}.worktree", clone, start,
                msgspec.structs.replace(made, folder=str(folder), is_made=False),
            )  # fmt: skip
        except GtrunError as error:
            raise LaunchFailed(f"{left}, and there is no fresh worktree of {start.name}: {error.message}") from error
        self.works_in(clone.folder, str(folder))
        self.note(f"{left}: the run works in a fresh worktree of {start.name}, {folder}")
        return str(folder)


def moved(workdir: str, clone: str, folder: str) -> str:
    """A workdir in a clone as it is in the folder that is used in the clone's place; any other as it is.

    Raises LaunchFailed for one that cannot be told.
    """
    if folder == clone:
        return workdir
    inside = os.path.relpath(os.path.realpath(workdir), os.path.realpath(clone))
    if inside == ".." or inside.startswith("../"):
        return workdir
    if not is_text(inside):
        raise LaunchFailed(f"the workdir {workdir} is in {plain(inside)} of the clone, which is not UTF-8")
    return os.path.normpath(os.path.join(folder, inside))  # noqa: PTH118


def works_in(run: Run, folder: str) -> bool:
    """Whether a run that has begun and not ended works in the clone at a path without symbolic links."""
    if run.begun_at is None or run.ending is not None or folder in dict(run.works_in):
        return False
    return any(
        os.path.commonpath((os.path.realpath(path), folder)) == folder
        for path in (run.resolved.workdir, *run.resolved.clones)
    )


def _is_live(run: Run) -> bool:
    """Whether the unit of a run that has not ended is there: its manager may have been killed with it."""
    from gtrun.systemd.transient import cgroup_folder  # noqa: PLC0415 - the D-Bus binding, which hardly any run needs

    try:
        (own,) = (line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    except (OSError, ValueError):
        return True
    parts = Path(own).parts
    manager = next((count for count, part in enumerate(parts, 1) if part.startswith("user@")), len(parts) - 1)
    return any(cgroup_folder(str(Path(*parts[:manager]))).rglob(run.resolved.unit))
