"""Which fleet.toml counts, and what it says."""

import os
import pwd
from collections.abc import Iterator, Mapping
from pathlib import Path

from gtrun.config.schema import DEFAULT_AGENT, DEFAULT_RIG, Agent, BoardConfig, ClaimConfig, Fleet, Rig
from gtrun.errors import ConfigError

SYSTEM = Path("/etc/gtrun/fleet.toml")
"""The file for everybody on this box."""


def load(environment: Mapping[str, str], explicit: Path | None) -> Fleet:
    """The configuration that counts for this process: the first file there is, or else the defaults.

    `explicit` is what `--config` named. Raises ConfigError with one line for each mistake, with file and key.
    """
    entry = _caller()
    board = str(_base(environment, "XDG_DATA_HOME", entry.pw_dir, ".local/share") / "gtrun/board/board.db")
    # in no folder of the environment: a timer and a shell, which differ in theirs, must meet at one lock
    lock = str(Path(entry.pw_dir, ".local/state/gtrun/claim.lock"))
    path = find(environment, explicit)
    if path is None:
        return Fleet(
            source=None,
            board=BoardConfig(path=board),
            claim=ClaimConfig(lock=lock),
            rigs={DEFAULT_RIG: Rig(name=DEFAULT_RIG)},
            agents={DEFAULT_AGENT: Agent(name=DEFAULT_AGENT, rig=DEFAULT_RIG)},
        )
    from gtrun.config.parse import parse  # noqa: PLC0415 - 8 ms that only a file costs
    from gtrun.config.trust import read_trusted  # noqa: PLC0415

    data = read_trusted(path, os.geteuid())
    return parse(data, str(path), caller=entry.pw_name, home=entry.pw_dir, board=board, lock=lock)


def find(environment: Mapping[str, str], explicit: Path | None) -> Path | None:
    """The file that counts, absolute; None if there is none. Raises ConfigError if a named one is missing."""
    named = explicit or _named(environment)
    if named is not None:
        if not _is_there(named):
            raise ConfigError(
                f"there is no file {named}, which {'--config' if explicit else 'GTRUN_CONFIG'} names",
                hint=f"gtrun init {named} writes one",
            )
        return Path.cwd() / named
    return next(filter(_is_there, places(environment)), None)


def places(environment: Mapping[str, str]) -> Iterator[Path]:
    """Where a fleet.toml is looked for, the first that exists counts."""
    yield _base(environment, "XDG_CONFIG_HOME", _caller().pw_dir, ".config") / "gtrun/fleet.toml"
    yield SYSTEM


def _named(environment: Mapping[str, str]) -> Path | None:
    return Path(environment["GTRUN_CONFIG"]) if environment.get("GTRUN_CONFIG") else None


def _is_there(path: Path) -> bool:
    """Whether there is anything of that name: a dangling link is there, and an error for whoever opens it."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ConfigError(f"cannot look for {path}: {error.strerror}") from error
    return True


def _base(environment: Mapping[str, str], variable: str, home: str, default: str) -> Path:
    """A folder of the XDG base directory specification, where relative ones count as unset."""
    path = Path(environment.get(variable, ""))
    return path if path.is_absolute() else Path(home, default)


def _caller() -> pwd.struct_passwd:
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        raise ConfigError(f"user ID {uid} has no account on this box") from None
