"""What every command is given besides its own arguments."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from gtrun.account import Account, own
from gtrun.config import Fleet, load


class Invocation(msgspec.Struct, frozen=True):
    """The environment and the global options of one command line."""

    environment: Mapping[str, str]
    config: Path | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str], config: Path | None = None) -> "Invocation":
        """An invocation with a copy of the environment."""
        return cls(dict(environment), config)

    def fleet(self) -> Fleet:
        """The configuration that counts here. Raises ConfigError."""
        return load(self.environment, self.config)

    def caller(self) -> Account:
        """The account that typed the command. Raises NoManager for somebody else's session."""
        return own(self.environment)
