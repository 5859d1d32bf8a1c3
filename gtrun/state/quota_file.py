"""The quota state file of an account: `quota.json` in its state folder."""

import contextlib
import os
from pathlib import Path

import msgspec

from gtrun.errors import StateError
from gtrun.files import ensure_private_folder, open_private, publish, sync_folder
from gtrun.quota import Quota, QuotaFile

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
