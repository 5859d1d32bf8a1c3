"""A sync that was killed in the middle: what it leaves behind must not keep the next one out.

Before the first git that writes, a sync leaves a note in the clone's git folder, and takes it away when it is over. Who
has the clone's lock and finds a note knows that its sync was killed. Then a lock file of git's is removed if it is not
older than the note and no git is alive in the clone. What was set aside and has no record is dropped: before there is
one, nothing is touched.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from gtrun.clones import stashes
from gtrun.clones.clone import Clone
from gtrun.clones.status import Untouchable
from gtrun.files import ensure_private_folder, sync_folder
from gtrun.names import RunId

_RUN = re.compile(r"[0-9a-f]{32}")


def _note(clone: Clone) -> Path:
    """A symbolic link to the records of the run, without their ending: it is made whole, also on a full disk."""
    return Path(clone.git_folder, "gtrun-sync")


@contextlib.contextmanager
def under_way(clone: Clone, state: str, run_id: RunId) -> Iterator[None]:
    """A sync of the clone is on its way, which its lock belongs to.

    Raises Untouchable if that cannot be noted, StateError if there can be no records.
    """
    note, records = _note(clone), stashes.place(state, run_id)
    ensure_private_folder(records.parent)
    try:
        note.symlink_to(records)
        sync_folder(note.parent)
    except OSError as error:
        raise Untouchable(f"it cannot be written: {error.strerror}") from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            note.unlink()


def recover(clone: Clone) -> str:
    """Clean up behind a sync that was killed; gives its run, empty if there was none.

    The clone's lock is held. Raises Untouchable as long as a git is alive in it, GitFailed.
    """
    try:
        records = _note(clone).readlink()
    except OSError:
        return ""
    run = records.name
    if not _RUN.fullmatch(run):
        return ""
    drop_locks(clone, run)
    told = clone.git.run("for-each-ref", "--format=%(refname) %(objectname)", f"refs/gtrun/{run}").decode()
    for ref, commit in (line.split(" ") for line in told.splitlines()):
        record = f"{records}.{ref.rpartition('/')[2]}.json"
        if records.parent.is_dir() and not os.path.lexists(record):
            clone.git.run("update-ref", "-d", ref, commit)
    for path in records.parent.glob(f".{run}.*.tmp"):
        stashes.forget(path)
    _note(clone).unlink()
    return run


def drop_locks(clone: Clone, run: str) -> None:
    """Remove the lock files that a git of the run's sync left, which was killed. Raises Untouchable if one is alive."""
    note = _note(clone)
    try:
        if note.readlink().name != run:
            return
        since = note.lstat().st_mtime_ns
        locks = [path for path in _locks(clone) if path.lstat().st_ctime_ns >= since]
        if _is_git_alive(clone):
            raise Untouchable("a git that is alive works in it")
        for path in locks:
            path.unlink()
        for path in Path(clone.common_folder, "worktrees").glob("*"):
            if path.lstat().st_ctime_ns >= since and not (path / "gitdir").exists():
                shutil.rmtree(path)  # git-worktree(1) was killed in the middle of making it, and would let it lie
    except OSError as error:
        raise Untouchable(f"what a sync that was killed has left cannot be removed: {error.strerror}") from None


def _locks(clone: Clone) -> Iterator[Path]:
    for folder in {clone.git_folder, clone.common_folder}:
        yield from Path(folder).glob("*.lock")
        yield from Path(folder, "refs").rglob("*.lock")
        yield from Path(folder, "reftable").glob("*.lock")


def _is_git_alive(clone: Clone) -> bool:
    """Whether a git of this account, or one that root does not show, has its working directory in the clone."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if not (process / "comm").read_text().startswith("git") or process.stat().st_uid not in {0, os.geteuid()}:
                continue
            try:
                where = os.readlink(process / "cwd")  # noqa: PTH115
            except PermissionError:
                return True
            folders = (clone.folder, clone.git_folder, clone.common_folder)
            if any(f"{where}/".startswith(f"{each}/") for each in folders):
                return True
    return False
