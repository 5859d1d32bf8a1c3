"""The commented fleet.toml that `gtrun init` writes."""

import contextlib
import os
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from gtrun.config.source import SYSTEM, places
from gtrun.errors import GtrunError
from gtrun.files import describe, sync_folder, write_all


def template() -> bytes:
    """The file as it is shipped: it loads as it is, and each setting that is commented out is a valid one."""
    return Path(__file__).with_name("fleet.toml").read_bytes()


def target(environment: Mapping[str, str], explicit: Path | None, uid: int) -> Path:
    """Where a new fleet.toml belongs: where one was named, else for root the place for the whole box."""
    if explicit is not None:
        return explicit
    if environment.get("GTRUN_CONFIG"):
        return Path(environment["GTRUN_CONFIG"])
    return SYSTEM if uid == 0 else next(places(environment))


def write(path: Path, *, force: bool = False) -> Path | None:
    """Write the template atomically; returns where the file that was there is kept, if there was another one.

    Root's is for everybody to read, anybody else's is private. A link is followed: a dotfile stays a link.
    Raises GtrunError if the file exists and `force` is false, and if it cannot be written.
    """
    if os.path.lexists(path) and not force:
        raise _exists(path)
    try:
        return _write(Path(os.path.realpath(path)), force=force)
    except OSError as error:
        raise GtrunError(f"cannot write {path}: {describe(error)}") from error


def _exists(path: Path) -> GtrunError:
    return GtrunError(f"{path} exists", hint=f"gtrun init --force {path} replaces it and keeps it as {path.name}.bak")


def _write(path: Path, *, force: bool) -> Path | None:
    everybody = os.geteuid() == 0
    _make_folders(path.parent, 0o755 if everybody else 0o700)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600)
    try:
        try:
            write_all(descriptor, template(), 0)
            os.fchmod(descriptor, 0o644 if everybody else 0o600)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        kept = _keep(path) if force else None
        if force:
            temporary.rename(path)
        else:
            _publish_new(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    sync_folder(path.parent)
    return kept


def _publish_new(temporary: Path, path: Path) -> None:
    """As a rename, but it fails if somebody else was faster. Raises GtrunError."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        raise _exists(path) from None


def _make_folders(folder: Path, mode: int) -> None:
    """The folder and those above it, none of them writable by a group, whatever the umask."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(mode)


def _keep(path: Path) -> Path | None:
    """A second name for a file about to be replaced, beside earlier ones; None if nothing would be lost."""
    try:
        if path.read_bytes() == template():
            return None
    except FileNotFoundError:
        return None
    for number in count(1):
        backup = path.with_name(f"{path.name}.bak{number if number > 1 else ''}")
        with contextlib.suppress(FileExistsError):
            backup.hardlink_to(path)
            return backup
    return None
