"""git(1) in the clones that agents work in: as this account, asking nobody, and with a deadline.

Hooks and the file system monitor are off, nothing of it stays behind, and what it says to people is dropped: it repeats
URLs, which may carry a token, and what a remote's hooks print.
"""

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gtrun.errors import GtrunError
from gtrun.process import converse

if TYPE_CHECKING:
    from gtrun.account import Account  # scripts/install has no package of others yet, as that one needs

LOCAL = 60.0
"""Seconds for what reads or writes a clone."""

CHECKOUT = 300.0
"""Seconds for what writes out all files of a commit."""

_MOST = 1 << 28  # bytes of an answer, which is kept in memory
_PATH = "/usr/local/bin:/usr/bin:/bin"
_PASSED_ON = frozenset(
    {
        "ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "SSH_AUTH_SOCK", "SSL_CERT_DIR",
        "SSL_CERT_FILE", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR",
    }
)  # fmt: skip
ALONE = (
    # no program of the repository's: not before, not after, not beside
    "core.hooksPath=/dev/null", "core.fsmonitor=false",
    # nothing that git leaves behind in the unit
    "gc.auto=0", "maintenance.auto=false",
)  # fmt: skip
"""Settings by which git does what it is told, and that alone."""

_SSH = "-oBatchMode=yes -oConnectTimeout=8 -oControlMaster=no -oControlPath=none -oForwardAgent=no"
_SETTINGS = (
    *ALONE,
    "core.untrackedCache=false",  # these too are believed, not looked at
    "core.trustctime=true",
    "core.checkStat=default",
    "core.fileMode=true",
    "core.symlinks=true",
    "core.fsync=all",
    "submodule.recurse=false",
    "protocol.ext.allow=never",
    "credential.interactive=false",
)


class GitFailed(GtrunError):
    """What git could not do, in our words."""


@dataclass(frozen=True, slots=True)
class Git:
    """git in one clone or worktree, a path without symbolic links; nothing above that folder is taken for it.

    After the instant `until` (time.monotonic()) it does nothing any more.
    """

    folder: str
    environment: Mapping[str, str]
    until: float = math.inf
    settings: tuple[str, ...] = _SETTINGS

    def at(self, folder: str) -> "Git":
        """The same in another folder."""
        return replace(self, folder=folder).given(GIT_CEILING_DIRECTORIES=folder.rpartition("/")[0] or "/")

    def given(self, *settings: str, **environment: str) -> "Git":
        """The same with further settings, each `name=value`, and variables."""
        merged = {**self.environment, **environment}
        return replace(self, settings=(*self.settings, *settings), environment=merged)

    def run(
        self, *arguments: str | bytes, feed: Iterable[bytes] = (), deadline: float = LOCAL, umask: int = -1
    ) -> bytes:
        """What git prints. Raises GitFailed unless it ends with 0 in time."""
        heard = bytearray()

        def hear(chunk: bytes) -> None:
            heard.extend(chunk)
            if len(heard) > _MOST:
                raise GitFailed(f"git {_said(arguments)} answered more than {_MOST} bytes")

        self.stream(*arguments, hear=hear, feed=feed, deadline=deadline, umask=umask)
        return bytes(heard)

    def stream(
        self,
        *arguments: str | bytes,
        hear: Callable[[bytes], None],
        feed: Iterable[bytes] = (),
        deadline: float = LOCAL,
        umask: int = -1,
    ) -> None:
        """`run` for what is too much to be kept."""
        code = self._code(arguments, hear, feed, deadline, umask)
        if code != 0:
            ended = f"ended with {code}" if code > 0 else f"was ended by signal {-code}"
            raise GitFailed(f"git {_said(arguments)} {ended}")

    def says(self, *arguments: str | bytes) -> bool:
        """The answer of a command that ends with 0 for yes and 1 for no. Raises GitFailed."""
        code = self._code(arguments, lambda _: None, (), LOCAL, -1)
        if code not in {0, 1}:
            raise GitFailed(f"git {_said(arguments)} ended with {code}")
        return code == 0

    def _code(
        self,
        arguments: Sequence[str | bytes],
        hear: Callable[[bytes], None],
        feed: Iterable[bytes],
        deadline: float,
        umask: int,
    ) -> int:
        settings = [part for setting in self.settings for part in ("-c", setting)]
        argv = ["git", "-C", self.folder, *settings, *arguments]
        deadline = max(0.0, min(deadline, self.until - time.monotonic()))
        try:
            return converse(argv, environment=self.environment, deadline=deadline, hear=hear, feed=feed, umask=umask)
        except TimeoutError:
            raise GitFailed(f"git {_said(arguments)} did not end within {deadline:g} s") from None
        except OSError as error:
            raise GitFailed(f"git cannot be executed: {error.strerror}") from error


def passed_on(inherited: Mapping[str, str]) -> dict[str, str]:
    """What git needs of this process's environment to speak to a remote: little."""
    return {name: value for name, value in inherited.items() if name.upper() in _PASSED_ON}


def over_ssh(configured: str) -> str:
    """GIT_SSH_COMMAND: the configured `core.sshCommand`, or ssh, so that it asks nobody and leaves nothing behind."""
    return f"{configured or 'ssh'} {_SSH}"


def _said(arguments: Sequence[str | bytes]) -> str:
    """The subcommand, and nothing of what may be secret."""
    return os.fsdecode(arguments[0])


def git_of(
    account: "Account", inherited: Mapping[str, str], folders: Sequence[str] = (), *, until: float = math.inf
) -> Git:
    """git for an account's clones; begin with `at`. `inherited` is this process's environment: little is passed on.

    `folders` are searched for programs, of which git may call some (credential helpers), before the system's.
    """
    ours = {
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "PATH": ":".join((*folders, _PATH)),
        "LC_ALL": "C.UTF-8",
        "GIT_ASKPASS": "false",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "SSH_ASKPASS_REQUIRE": "never",
    }
    return Git("/", passed_on(inherited) | ours, until)
