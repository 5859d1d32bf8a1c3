"""The account that a worker is, and what several operations share."""

import msgspec

from gtrun.account import Account
from gtrun.model import Run
from gtrun.names import RunId, Token, UnitName
from gtrun.state import record as records
from gtrun.state.record import Record
from gtrun.systemd.bus import Bus


class Session:
    """The account that this process is, and its connection to the manager, opened when first used."""

    def __init__(self, account: Account) -> None:
        """Nothing is opened yet."""
        self.account = account
        self.prepared: Record | None = None
        self._bus: Bus | None = None

    @property
    def bus(self) -> Bus:
        """The account's user bus. Raises NoManager."""
        if self._bus is None:
            self._bus = Bus.of(self.account)
        return self._bus

    def use_private_bus(self) -> None:
        """Talk to the manager itself, whose bus may be gone, as while it shuts down. Raises NoManager."""
        if self._bus is None:
            self._bus = Bus.still_there(self.account)


class Nothing(msgspec.Struct, frozen=True):
    """No arguments."""


class Name(msgspec.Struct, frozen=True):
    """One unit, and how long to wait for it, in seconds."""

    unit: UnitName
    seconds: float


class OfRun(msgspec.Struct, frozen=True):
    """One run of a unit."""

    unit: UnitName
    run: RunId | None


def by_token(session: Session, token: Token) -> Run | None:
    """The run of one record, open or closed."""
    state = session.account.state
    for folder in (records.open_folder(state), records.closed_folder(state)):
        try:
            return records.read(folder / f"{token}.jsonl")
        except FileNotFoundError:
            continue
    return None
