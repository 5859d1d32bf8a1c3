"""What GitHub answered before: a private folder of files that may all be deleted at any time.

With it a question whose answer is the same costs nothing of the rate limit (a conditional request, 304). What cannot
be read, or is not ours, counts as not there, and a folder that cannot be written is done without.
"""

import contextlib
import hashlib
import os
import time
from pathlib import Path
from typing import TypeVar

import msgspec

from gtrun.errors import StateError
from gtrun.files import ensure_private_folder, open_private, write_all

T = TypeVar("T")

MOST_BYTES = 64 << 20
LONGEST = 30 * 86_400.0
"""Seconds for which nobody asks, and then an answer goes."""

_ONE = 48 << 20
_SUFFIX = ".gh"
_PRUNE_EVERY = 3600.0
_STAMP = ".pruned"


class Answer(msgspec.Struct, frozen=True):
    """An answer that had an ETag. `links` is its Link header."""

    etag: str
    body: bytes
    links: str = ""


class Cache:
    """The answers to one token: others may see less, or more. Whatever is kept has a name that says of which server.

    Nothing here raises.
    """

    def __init__(self, folder: Path | None, token: str) -> None:
        """None: nothing is kept. The token itself is not kept either, only a digest of it and the address."""
        self._folder = folder
        self._salt = hashlib.sha256(b"gtrun github cache\0" + token.encode()).digest()
        if folder is not None:
            try:
                ensure_private_folder(folder)
                folder.chmod(0o700)
            except (OSError, StateError):
                self._folder = None

    def answer(self, url: str) -> Answer | None:
        """The answer that is kept for an address."""
        return self.get(url, Answer)

    def get(self, name: str, kind: type[T]) -> T | None:
        """A value that was kept; None if it is not there, or not of that kind any more."""
        path = self._path(name)
        if path is None:
            return None
        try:
            descriptor = open_private(path, os.O_RDONLY)
            with open(descriptor, "rb") as file:
                if os.fstat(descriptor).st_uid != os.geteuid():
                    return None
                data = file.read(_ONE + 1)
                os.utime(descriptor)
            return msgspec.msgpack.decode(data, type=kind)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def put(self, name: str, value: object) -> None:
        """Keep a value, whole or not at all."""
        path = self._path(name)
        if path is None:
            return
        data = msgspec.msgpack.encode(value)
        if len(data) <= _ONE:
            with contextlib.suppress(OSError):
                _replace(path, data)
                _prune(path.parent)

    def _path(self, name: str) -> Path | None:
        if self._folder is None:
            return None
        return self._folder / (hashlib.sha256(self._salt + name.encode()).hexdigest()[:40] + _SUFFIX)


def _replace(path: Path, data: bytes) -> None:
    """Whole or not at all, but not durably: what a power cut takes was only kept for speed. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600)
    try:
        write_all(descriptor, data, 0)
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _prune(folder: Path) -> None:
    """Now and then, take away what nobody asked for, and the oldest of what is too much. Raises OSError."""
    stamp, now = folder / _STAMP, time.time()
    with contextlib.suppress(FileNotFoundError):
        if 0 <= now - stamp.stat().st_mtime < _PRUNE_EVERY:
            return
    stamp.touch(mode=0o600)
    kept = 0
    found = []
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):
            if entry.name != _STAMP and entry.is_file(follow_symlinks=False):
                info = entry.stat(follow_symlinks=False)
                found.append((info.st_mtime, info.st_size, entry.path))
    for at, size, path in sorted(found, reverse=True):
        kept += size
        if kept > MOST_BYTES or now - at > LONGEST:
            Path(path).unlink(missing_ok=True)
