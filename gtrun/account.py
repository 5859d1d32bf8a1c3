"""Unix accounts: whose manager, whose state."""

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gtrun.errors import ConfigError, NoManager

TOKEN_VARIABLES = ("GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
"""Where gh(1) takes a token from; an account's own, not to be passed on to another."""


class Account(msgspec.Struct, frozen=True):
    """A unix account with the folders that belong to it. `runtime` is its $XDG_RUNTIME_DIR."""

    name: str
    uid: int
    gid: int
    home: str
    state: str
    runtime: str

    @property
    def bus(self) -> str:
        """The socket of its user bus."""
        return f"{self.runtime}/bus"

    def how_to_start_manager(self) -> str:
        """The command that brings its user manager up, and keeps it up."""
        return f"sudo loginctl enable-linger {self.name} && sudo systemctl restart user@{self.uid}.service"


def named(name: str) -> Account:
    """Another account by its name, with its default folders. Raises ConfigError."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise ConfigError(
            f"there is no account {name!r} on this box",
            hint=f"useradd {name}, or set account of its agent in fleet.toml",
        ) from None
    state, runtime = f"{entry.pw_dir}/.local/state/gtrun", f"/run/user/{entry.pw_uid}"
    return Account(name, entry.pw_uid, entry.pw_gid, entry.pw_dir, state, runtime)


def own(environment: Mapping[str, str]) -> Account:
    """The account of this process; $XDG_STATE_HOME and $XDG_RUNTIME_DIR count if they are its own.

    Without $XDG_RUNTIME_DIR (su, sudo, cron) it is derived, as pam_systemd(8) would have set it; one that is relative
    or names nothing counts as unset. Raises NoManager if it names a folder of somebody else, as after `su` without a
    login: talking to that manager would fail later with a message that nobody understands.
    """
    uid = os.geteuid()
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise ConfigError(f"user ID {uid} has no account on this box") from None
    state = _absolute(environment.get("XDG_STATE_HOME")) or f"{entry.pw_dir}/.local/state"
    derived = f"/run/user/{uid}"
    runtime = _absolute(environment.get("XDG_RUNTIME_DIR")) or derived
    if runtime != derived:
        try:
            owner = Path(runtime).stat().st_uid
        except OSError:
            owner = None
        if owner not in {None, uid}:
            raise NoManager(
                f"XDG_RUNTIME_DIR is {runtime}, which belongs to user ID {owner}, and this is {entry.pw_name}"
                f" (user ID {uid})",
                hint=f"unset XDG_RUNTIME_DIR, or log in as {entry.pw_name} with a session of its own",
            )
        if owner is None:
            runtime = derived
    return Account(entry.pw_name, uid, entry.pw_gid, entry.pw_dir, f"{state}/gtrun", runtime)


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where this process's account keeps what may be deleted at any time (XDG base directory specification)."""
    home = pwd.getpwuid(os.geteuid()).pw_dir
    return Path(_absolute(environment.get("XDG_CACHE_HOME")) or f"{home}/.cache", "gtrun")


def _absolute(path: str | None) -> str | None:
    """A folder of the XDG base directory specification: relative ones are to be ignored."""
    return path if path and path.startswith("/") else None


def lingers(account: Account) -> bool:
    """Whether its manager outlives its last logout (loginctl(1), enable-linger)."""
    return Path("/var/lib/systemd/linger", account.name).exists()
