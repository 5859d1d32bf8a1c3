"""Private files: written whole or not at all, never through somebody's link."""

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

from gtrun.errors import StateError


def describe(error: OSError) -> str:
    """An OSError as one clause: `No space left on device: /path`."""
    where = f": {error.filename}" if error.filename else ""
    return f"{error.strerror or error}{where}"


def ensure_private_folder(path: Path) -> None:
    """The folder exists, belongs to this account and is its alone. Raises StateError."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.lstat()
    except OSError as error:
        raise StateError(f"cannot make the folder {path}: {error.strerror}") from error
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise StateError(
            f"{path} is not a folder of this account",
            hint=f"move it away: gtrun keeps private state there (found: {stat.filemode(info.st_mode)}, "
            f"owner {info.st_uid})",
        )


def lock_at_once(descriptor: int) -> bool:
    """Take the lock of an open file (flock(2)) without waiting; False if somebody else has it. Raises OSError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sync_folder(path: Path) -> None:
    """What was created, renamed or removed in the folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes, offset: int) -> None:
    """pwrite(2) until all is written; a short write is a full disk and raises OSError."""
    view = memoryview(data)
    while view:
        count = os.pwrite(descriptor, view, offset)
        if count == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[count:]
        offset += count


def publish(path: Path, data: bytes) -> None:
    """Write a private file atomically and durably: temporary, fsync, rename, fsync of the folder.

    Raises OSError with nothing changed and nothing left behind.
    """
    os.close(publish_locked(path, data))


def publish_locked(path: Path, data: bytes) -> int:
    """`publish`, and the file is locked (flock(2)) from before it has its name; the caller closes the descriptor."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        write_all(descriptor, data, 0)
        os.fsync(descriptor)
        temporary.rename(path)
        sync_folder(path.parent)
    except OSError:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return descriptor


def open_private(path: Path, flags: int) -> int:
    """Open a regular file of our own without following a link; the caller closes the descriptor. Raises OSError."""
    # O_NONBLOCK: a FIFO must not hang us
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor
