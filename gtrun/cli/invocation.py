"""What every command is given besides its own arguments."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from gtrun.account import Account, own
from gtrun.config import Fleet, load
from gtrun.model import Origin
from gtrun.text import plain, shorten


class Invocation(msgspec.Struct, frozen=True):
    """The environment and the global options of one command line.

    `arguments` are the command and its own, as they were typed; `origin` is who forwarded it to here, if anybody did,
    and `attached` the bytes of the file that came with it.
    """

    environment: Mapping[str, str]
    config: Path | None = None
    arguments: Sequence[str] = ()
    origin: Origin | None = None
    attached: bytes | None = None

    @classmethod
    def of(
        cls, environment: Mapping[str, str], config: Path | None = None, arguments: Sequence[str] = ()
    ) -> "Invocation":
        """An invocation with a copy of the environment."""
        return cls(dict(environment), config, tuple(arguments))

    @property
    def is_remote(self) -> bool:
        """Whether it came over SSH and has no terminal, whose end would be a signal (sshd(8))."""
        return self.origin is not None or ("SSH_CONNECTION" in self.environment and "SSH_TTY" not in self.environment)

    def fleet(self) -> Fleet:
        """The configuration that counts here. Raises ConfigError."""
        return load(self.environment, self.config)

    def caller(self) -> Account:
        """The account that typed the command. Raises NoManager for somebody else's session."""
        return own(self.environment)

    def by(self) -> str:
        """Who asked: the account, or what the other side says of itself, in one short line."""
        return shorten(plain(self.origin.by), 100) if self.origin else self.caller().name
