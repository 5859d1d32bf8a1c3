"""The quota state file of an account: `quota.json` in its state folder."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gtrun.errors import StateError
from gtrun.files import ensure_private_folder, open_private, publish, sync_folder
from gtrun.quota import Quota, QuotaFile, dark_until, instant

_LARGEST = 64 * 1024


def _path(state: str) -> Path:
    return Path(state, "quota.json")


def read(state: str) -> QuotaFile:
    """What the file says; it is nobody's fault if it says nothing, so every trouble is an answer."""
    path = _path(state)
    try:
        descriptor = open_private(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return QuotaFile()
    except OSError as error:
        return QuotaFile(problem=f"cannot read {path}: {error.strerror}")
    with os.fdopen(descriptor, "rb") as file:
        try:
            return QuotaFile(quota=msgspec.json.decode(file.read(_LARGEST), type=Quota))
        except OSError as error:
            return QuotaFile(problem=f"cannot read {path}: {error.strerror}")
        except (msgspec.MsgspecError, RecursionError) as error:
            return QuotaFile(problem=f"{path} is not a quota state: {error}")


def write(state: str, quota: Quota | None) -> None:
    """Replace the file, or remove it for None. Raises StateError."""
    path = _path(state)
    try:
        if quota is not None:
            ensure_private_folder(path.parent)
            publish(path, msgspec.json.encode(quota) + b"\n")
            return
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            sync_folder(path.parent)
    except OSError as error:
        raise StateError(f"cannot write {path}: {error.strerror}") from error


def darken(state: str, quota: Quota, now: float) -> bool:
    """Note that the quota is used up; the later of two resets stays. Raises StateError.

    Whether that is news: the agent was not dark, or only by this very word, whose notice may not have been given.
    Several runs that end at once come here one after the other, so it is news to one of them.
    """
    with _alone(state):
        until = instant(quota.resets_at)
        try:
            known = dark_until(read(state), now)
        except ValueError:  # what cannot be read stops nobody
            known = None
        if until <= now:
            return False
        if known is None or known.at < until:
            write(state, quota)
        return known is None or known.source == quota.source


@contextlib.contextmanager
def _alone(state: str) -> Iterator[None]:
    """Under the lock of the account's state folder. Raises StateError."""
    try:
        ensure_private_folder(Path(state))
        folder = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StateError(f"cannot lock the folder {state}: {error.strerror}") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
