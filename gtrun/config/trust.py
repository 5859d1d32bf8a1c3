"""Who could have written a file: what gtrun obeys must belong to root or the caller alone, link by link."""

import errno
import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from gtrun.errors import ConfigError
from gtrun.files import describe

LARGEST = 1 << 20
"""Bytes of a configuration file; a larger one is a mistake, or somebody's attempt to keep us busy."""

_LINKS = 40  # as the kernel has it (path_resolution(7))


def read_trusted(path: Path, uid: int) -> bytes:
    """The bytes of a file that nobody but root and user ID `uid` could have written. Raises ConfigError.

    Links are followed, as dotfiles are often links into a repository; and whoever could change a link on the
    way, or a folder that any name on the way is looked up in, could have written the file too.
    """
    try:
        # O_NONBLOCK: a FIFO must not hang us
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration: {describe(error)}") from error
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise ConfigError(f"{path} is not a regular file")
        if info.st_size > LARGEST:
            raise ConfigError(f"{path} is larger than {LARGEST >> 20} MiB: that is no fleet.toml")
        try:
            _check(path, info, uid)
        except OSError as error:
            raise ConfigError(f"cannot see who may write {path}: {describe(error)}") from error
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(LARGEST + 1)
    finally:
        os.close(descriptor)


def _check(path: Path, opened: os.stat_result, uid: int) -> None:
    steps = list(_steps(path))
    place, last = steps[-1]
    if not os.path.samestat(last, opened):
        raise ConfigError(f"{path} was replaced while it was being read", hint="run it again")
    for place, info in reversed(steps):
        fault = weakness(info.st_uid, info.st_mode, uid)
        if fault:
            of = "" if place == path else f", on the way to {path}"
            raise ConfigError(f"{place} {fault}{of}", hint=f"{_mend(place, info, uid)} (or move the file)")


def check_executed(paths: Iterable[Path], uid: int) -> None:
    """Nobody but root and `uid` could have written what is executed from these paths. Raises ConfigError.

    What is not there is not executed.
    """
    seen: set[Path] = set()
    for path in paths:
        try:
            for place, info in _steps(path):
                if place in seen:
                    continue
                seen.add(place)
                fault = weakness(info.st_uid, info.st_mode, uid)
                if fault:
                    of = "" if place == path else f" (on the way to {path})"
                    mend = f"{_mend(place, info, uid)}, or install gtrun where only root writes"
                    told = f"{place} {fault}{of}: with it, whoever that is decides what this gtrun does for all agents"
                    raise ConfigError(told, hint=f"{mend}: scripts/install /opt/gtrun")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise ConfigError(f"cannot see who may write {path}: {describe(error)}") from error


def weakness(owner: int, mode: int, uid: int) -> str:
    """What lets somebody besides root and `uid` change this file, link or folder; empty if nothing does."""
    if owner not in {0, uid}:
        return f"belongs to user ID {owner}, not to root or user ID {uid}"
    if stat.S_ISLNK(mode):
        return ""  # its own mode bits mean nothing
    if stat.S_ISDIR(mode) and mode & stat.S_ISVTX:
        return ""  # as /tmp: only the owner of an entry can rename or remove it
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        who = "anybody" if mode & stat.S_IWOTH else "its group"
        return f"can be written by {who} (mode {stat.S_IMODE(mode):04o})"
    return ""


def _mend(place: Path, info: os.stat_result, uid: int) -> str:
    if info.st_uid not in {0, uid}:
        return f"chown {'-h ' if stat.S_ISLNK(info.st_mode) else ''}{uid} {shlex.quote(str(place))}"
    return f"chmod go-w {shlex.quote(str(place))}"


def _steps(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every folder and link that the kernel passes on its way to a file, then the file. Raises OSError."""
    here, links = Path("/"), 0
    yield here, here.lstat()
    names = list(reversed((Path.cwd() / path).parts[1:]))
    while names:
        name = names.pop()
        if name == "..":
            here = here.parent
            continue
        place = here / name
        info = place.lstat()
        yield place, info
        if not stat.S_ISLNK(info.st_mode):
            here = place
            continue
        links += 1
        if links > _LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(place))
        target = place.readlink()
        here = Path("/") if target.is_absolute() else here
        names += reversed(target.parts[1:] if target.is_absolute() else target.parts)
