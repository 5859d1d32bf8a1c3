"""The way to an account that this process cannot become: through a program that runs gtrun there as that account."""

import sys

import msgspec

from gtrun.account import Account
from gtrun.reach import transport
from gtrun.release import installation

LOCALHOST = "localhost"
CONNECT_TIMEOUT = 8
"""Seconds in which sshd must have answered."""

ONE_TRY = 20.0
"""Seconds in which a connection that sshd took must have come about."""

PATIENCE = 60.0
"""Seconds in which that must have happened, however often it was refused: so long does our own load keep us off."""

KEEP_ALIVE = 15.0
"""Seconds after which a far end that is not needed just now is told that it still may be."""

IDLE = 4 * KEEP_ALIVE
"""Seconds without a word after which a far end takes nobody to be there any more."""

LEASE = 15.0
"""Seconds after its last answer in which a far end may carry out what it was lent the claim lock for, and never later.

Shorter than `[claim] wait`, so that a lock which is kept for so long is still waited for.
"""

# with --user the bridge of systemd 252 talks to the system's bus; a login without PAM has no $XDG_RUNTIME_DIR
_BRIDGE = "exec systemd-stdio-bridge -p unix:path=${XDG_RUNTIME_DIR:-/run/user/$(id -u)}/bus"


class Far(msgspec.Struct, frozen=True, kw_only=True):
    """An account that ssh or sudo reaches, and the command that is gtrun there.

    `host` is what ssh is given, without an account. `uid` is known for accounts of this box only. `slots` is a private
    folder of whoever connects, where it counts the connections that are being made.
    """

    name: str
    host: str = LOCALHOST
    by: str = "ssh"
    gtrun: tuple[str, ...]
    uid: int | None = None
    slots: str

    @property
    def who(self) -> str:
        """The account as messages name it."""
        return self.name if self.by == "sudo" else self.destination

    @property
    def destination(self) -> str:
        """The account as ssh names it."""
        return f"{self.name}@{self.host}"

    def worker(self) -> list[str]:
        """The argument list that runs the far end of a worker."""
        return self._wrapped([*self.gtrun, "worker", self.name])

    @property
    def bridge(self) -> list[str] | None:
        """The argument list that carries the account's user bus; None by sudo, where it would need a second rule."""
        return None if self.by == "sudo" else self._wrapped(["sh", "-c", _BRIDGE])

    def _wrapped(self, command: list[str]) -> list[str]:
        if self.by == "sudo":
            return transport.by_sudo(self.name, command)
        return transport.over_ssh(self.destination, command, connect_timeout=CONNECT_TIMEOUT)


Route = Account | Far
"""An account of this box that this process is or may become, or the way to another."""


def this_installation() -> list[str]:
    """The command that runs this very gtrun: isolated, so that no variable and no folder of the agent changes it.

    Of a release it is that release's own program: what `current` is turned to meanwhile changes nothing.
    """
    folder = installation.this_folder()
    return [str(installation.program_of(folder))] if folder else [sys.executable, "-I", "-m", "gtrun"]
