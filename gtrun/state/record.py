"""The run record: one file a run, in the agent's account, from before the start until its last marker is posted.

A record is a list of facts, one JSON document a line. The first line is the resolved run; the file is published
with it, atomically, and with a reserve of line ends behind. Later facts overwrite the reserve in place, so that a full
disk later cannot keep the close-out from writing the truth (on file systems that copy on write, such as btrfs, the
reserve is no guarantee). A fact that was torn by a crash is a line that is no JSON: it never became true, and is
skipped. Appends are serialised by a lock on the file.

`open/` holds the runs with something left to happen: it is the outbox as well, since what a run owes stands in its
record. When a run has ended and every marker it owes is posted, its file moves to `closed/`, from where alone records
are pruned by age.
"""

import contextlib
import errno
import fcntl
import os
import re
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

import msgspec

from gtrun.errors import StateError
from gtrun.files import describe, ensure_private_folder, open_private, publish, publish_locked, sync_folder, write_all
from gtrun.model import ResolvedRun, Run
from gtrun.names import IssueKey, RunId
from gtrun.state.facts import EndedFor, Fact, Resolved, Told, owed_notices

RESERVE = 32 * 1024
"""Bytes kept free in each record for the facts of the run: these take about 2 KiB."""


_decoder = msgspec.json.Decoder(Fact)
_HEAD = 1024
_ISSUE = re.compile(
    rb'\{"type":"resolved","run":\{"token":"[^"\\]*","agent":"[^"\\]*","rig":"[^"\\]*","issue":\{"key":"([^"\\]*)"'
)
"""How a record begins, up to its issue, if nothing before that needed an escape; so many bytes have room for that."""

_NO_FACT = (msgspec.MsgspecError, RecursionError)  # RecursionError: what is nested too deeply


class RecordInUse(StateError):
    """A record that somebody else works on: a dispatcher, a runner or a close-out that lives."""


class CorruptRecord(StateError):
    """A record whose first line is not a resolved run."""


def open_folder(state: str) -> Path:
    """The folder of the records with something left to happen."""
    return Path(state, "runs", "open")


def closed_folder(state: str) -> Path:
    """The folder of the records that are history."""
    return Path(state, "runs", "closed")


def create(state: str, run: ResolvedRun) -> "Record":
    """Publish the record of a run that is about to start, with its reserve, and keep it locked. Raises StateError.

    While it is locked nobody can take the run for one that has lost its unit.
    """
    folder = open_folder(state)
    ensure_private_folder(folder)
    ensure_private_folder(closed_folder(state))
    path = folder / f"{run.token}.jsonl"
    try:
        descriptor = publish_locked(path, msgspec.json.encode(Resolved(run)) + b"\n" * (RESERVE + 1))
    except OSError as error:
        raise StateError(f"cannot write the run record {path}: {error.strerror}") from error
    return Record(path, descriptor)


def fold(path: Path, data: bytes) -> Told:
    """What the facts in a record tell. Raises CorruptRecord if there is no first fact."""
    lines = data.rstrip(b"\n").split(b"\n")  # without the reserve: 32,768 empty lines
    try:
        first = _decoder.decode(lines[0])
    except _NO_FACT:
        first = None
    if not isinstance(first, Resolved):
        raise CorruptRecord(f"the run record {path} is damaged")
    told = Told(Run(resolved=first.run))
    for line in filter(None, lines[1:]):
        with contextlib.suppress(*_NO_FACT):  # torn by a crash: it never became true
            told.learn(_decoder.decode(line))
    return told


class Record:
    """An open record under its lock: read it, then append to it. A context manager."""

    def __init__(self, path: Path, descriptor: int | None = None, *, wait: bool = True) -> None:
        """Open and lock, or take over a descriptor that is locked; without `wait` only if nobody has the lock.

        Raises StateError (RecordInUse); FileNotFoundError if there is no such record (it may be closed).
        """
        self.path = path
        try:
            self._descriptor = open_private(path, os.O_RDWR) if descriptor is None else descriptor
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StateError(f"cannot open the run record: {describe(error)}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if not os.path.samestat(os.fstat(self._descriptor), path.lstat()):
                raise FileNotFoundError(errno.ENOENT, "replaced while its lock was waited for", str(path))
            self._data = _read(self._descriptor)
            self._told = fold(path, self._data)
        except BlockingIOError:
            self.close()
            raise RecordInUse(f"the run record {path} is in use") from None
        except BaseException:
            self.close()  # a damaged record must not stay locked by whoever found that out
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unlock and close; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def discard(self) -> None:
        """Take back the record of a run that was not started."""
        with contextlib.suppress(FileNotFoundError):
            payload_file(self.path).unlink(missing_ok=True)
            self.path.unlink()
        self.close()

    def append(self, *facts: Fact) -> None:
        """Add facts; they are on the disk when this returns. Raises StateError, and then none of them is true."""
        try:
            self._data = _append(self._descriptor, self._data, facts)
        except OSError as error:
            raise StateError(f"cannot write the run record {self.path}: {error.strerror}") from error
        self._told = fold(self.path, self._data)

    @property
    def run(self) -> Run:
        """The run as its facts tell it now."""
        return self._told.run

    @property
    def gave_up(self) -> str:
        """Why the runner ended the run without the agent program; empty if it did not."""
        return self._told.gave_up

    @property
    def ended_for(self) -> EndedFor | None:
        """Why what executes a plugin has ended it; None if it did not, or for an agent program."""
        return self._told.ended_for

    @property
    def entered(self) -> bool:
        """Whether anything was executed inside the run's sandbox."""
        return self._told.entered

    @property
    def disposed(self) -> str:
        """Why the run was disposed of; empty if it was not."""
        return self._told.disposed

    @property
    def updated_in(self) -> RunId | None:
        """The unit's invocation in which the run went on in another release; None if it did not."""
        return self._told.updated_in

    @property
    def handed_over_in(self) -> RunId | None:
        """The unit's invocation in which the close-out was given to that release; None if it was not."""
        return self._told.handed_over_in

    @property
    def is_settled(self) -> bool:
        """Whether the run has ended, owes no marker and no notice, and what it told of its agent's quota is noted."""
        run = self.run
        if run.ending is None or (run.ending.resets_at is not None and not run.is_quota_noted):
            return False
        return set(run.owed) <= set(run.posted) and not owed_notices(run)

    def close_if_settled(self) -> bool:
        """Move a settled record to the history. Raises StateError."""
        if not self.is_settled:
            return False
        closed = self.path.parent.parent / "closed"
        try:
            prompt_file(self.path).unlink(missing_ok=True)
            payload_file(self.path).unlink(missing_ok=True)
            self.path.rename(closed / self.path.name)
            sync_folder(closed)
            sync_folder(self.path.parent)
        except FileNotFoundError:
            pass  # another one closed it
        except OSError as error:
            raise StateError(f"cannot move the run record {self.path}: {error.strerror}") from error
        return True


def _read(descriptor: int) -> bytes:
    chunks = []
    offset = 0
    while chunk := os.pread(descriptor, 1 << 20, offset):
        chunks.append(chunk)
        offset += len(chunk)
    return b"".join(chunks)


def _append(descriptor: int, data: bytes, facts: Iterable[Fact]) -> bytes:
    """Add facts behind those in `data`, what the file has now; returns what it has then. Raises OSError."""
    end = len(data.rstrip(b"\n")) + 1
    added = b"".join(msgspec.json.encode(fact) + b"\n" for fact in facts)
    write_all(descriptor, added, end)
    os.fdatasync(descriptor)
    return data[:end] + added + data[end + len(added) :]


def append_through(descriptor: int, *facts: Fact) -> None:
    """Add facts to a record of which there is only a descriptor, as inside a sandbox. Raises StateError.

    Opened anew by way of /proc, which any file hidden by a sandbox can be: somebody else may keep the descriptor, and
    with it a lock of whoever is killed here.
    """
    try:
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(own, fcntl.LOCK_EX)
            _append(own, _read(own), facts)
        finally:
            os.close(own)
    except OSError as error:
        raise StateError(f"cannot write the run record: {error.strerror}") from error


def prompt_file(record: Path) -> Path:
    """Where the prompt of a run is written if its command asks for a file."""
    return record.with_suffix(".prompt")


def payload_file(record: Path) -> Path:
    """Where the bytes of a plugin lie from the check until the end of its run."""
    return record.with_suffix(".plugin")


def keep_payload(record: Record, data: bytes) -> None:
    """Put the bytes of a plugin beside its record, for nobody else to read. Raises StateError."""
    path = payload_file(record.path)
    try:
        publish(path, data)
        path.chmod(0o400)
    except OSError as error:
        raise StateError(f"cannot write the plugin {path}: {error.strerror}") from error


def read_payload(record: Path) -> bytes:
    """The bytes of a plugin, as they are now. Raises StateError."""
    try:
        with os.fdopen(open_private(payload_file(record), os.O_RDONLY), "rb") as file:
            return file.read()
    except OSError as error:
        raise StateError(f"cannot read the plugin: {describe(error)}") from error


def append_with_lock(path: Path, *facts: Fact, seconds: float = 0.0) -> Run:
    """Open, lock, append, close; returns the run as it is then. Raises as `Record` does.

    With `seconds` it raises RecordInUse after them, and takes SIGALRM for that, as flock(2) knows no deadline.
    """
    if not seconds:
        with Record(path) as record:
            record.append(*facts)
            return record.run

    def give_up(*_: object) -> None:
        raise RecordInUse(f"the run record {path} was in use for {seconds:g} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        record = Record(path)
        signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with record:
        record.append(*facts)
        return record.run


def read(path: Path) -> Run:
    """One record without its lock. Raises StateError, FileNotFoundError."""
    try:
        descriptor = open_private(path, os.O_RDONLY)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StateError(f"cannot read the run record: {describe(error)}") from error
    with os.fdopen(descriptor, "rb") as file:
        return fold(path, file.read()).run


def set_aside(path: Path, damage: CorruptRecord) -> str:
    """Move a damaged record out of the way with its bytes kept; returns what happened, in one line."""
    aside = path.with_name(f"{path.name}.corrupt-{time.time_ns()}")  # never over another one
    try:
        path.rename(aside)
    except OSError as error:  # or another one was faster
        return f"{damage.message} and cannot be moved out of the way: {error.strerror}"
    return f"{damage.message}; its bytes are kept in {aside}"


def open_records(state: str) -> list[Path]:
    """The records with something left to happen, oldest first."""
    return _listed(open_folder(state))


def newest_first(state: str) -> Iterator[Path]:
    """Every record, those with something left to happen before those that are history."""
    yield from reversed(open_records(state))
    yield from reversed(_listed(closed_folder(state)))


def _listed(folder: Path, issue: IssueKey | None = None) -> list[Path]:
    """The records in a folder, oldest first; without those that are of another issue, as far as their heads tell."""

    def age(path: Path) -> float:
        try:
            return path.lstat().st_mtime
        except FileNotFoundError:
            return 0.0

    try:
        names = [name for name in os.listdir(folder) if name.endswith(".jsonl")]  # noqa: PTH208 - thousands
        if issue is not None:
            names = _without_others(folder, names, issue)
        return sorted((folder / name for name in names), key=age)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return []
        raise StateError(f"cannot read the run records in {folder}: {error.strerror}") from error


def _without_others(folder: Path, names: list[str], issue: IssueKey) -> list[str]:
    """Thousands of records are several hundred MB, and only their heads are read. What cannot be told is kept."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return [name for name in names if _issue_in(place, name) in {None, issue.encode()}]
    finally:
        os.close(place)


def _issue_in(place: int, name: str) -> bytes | None:
    descriptor = -1
    try:
        # O_NONBLOCK: a FIFO must not hang us
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
        head = _ISSUE.match(os.pread(descriptor, _HEAD, 0))
    except OSError:  # moved meanwhile, or something else: whoever reads all of it finds out
        return None
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return head[1] if head else None


def runs(state: str, issue: IssueKey | None = None) -> Iterator[tuple[Path, Run | StateError]]:
    """Every run of an account, or every run of one issue, oldest first; unreadable records are given as their error."""
    still_open = _listed(open_folder(state), issue)  # first: what is closed meanwhile is then in either list
    closed = _listed(closed_folder(state), issue)
    names = {path.name for path in closed}
    for path in [*closed, *(path for path in still_open if path.name not in names)]:
        try:
            run = _read_wherever(path, closed_folder(state))
        except FileNotFoundError:
            continue  # pruned or discarded meanwhile
        except StateError as error:
            yield path, error
            continue
        if issue is None or run.resolved.issue.key == issue:
            yield path, run


def _read_wherever(path: Path, closed: Path) -> Run:
    """One record that may be closed since it was listed. Raises as `read` does."""
    try:
        return read(path)
    except FileNotFoundError:
        return read(closed / path.name)


def prune(state: str, keep: float) -> None:
    """Remove history older than `keep` seconds. What is still owed is not there, so it is never lost."""
    oldest = time.time() - keep
    # left by a dispatcher that was killed between write and rename, and by a record that was damaged
    stale = [*open_folder(state).glob(".*.tmp"), *_orphans(state)]
    for path in [*_listed(closed_folder(state)), *stale]:
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()


def _orphans(state: str) -> list[Path]:
    """The bytes of plugins beside which no record lies any more."""
    return [path for path in open_folder(state).glob("*.plugin") if not path.with_suffix(".jsonl").exists()]
