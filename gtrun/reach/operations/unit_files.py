"""Enabling and disabling unit files in the account's own manager; their timers begin and end with that."""

import msgspec

from gtrun.reach.operations.session import Nothing, Session
from gtrun.systemd import units


class UnitFiles(msgspec.Struct, frozen=True):
    """Unit files by their names."""

    names: list[str]

    @property
    def timers(self) -> list[str]:
        """Those that start others by the clock."""
        return [name for name in self.names if name.endswith(".timer")]


def enable(session: Session, arguments: UnitFiles) -> list[str]:
    """Have the manager read its files anew and start these from its next start on, and timers also now.

    Returns what changed, in words.
    """
    bus, timers = session.bus, arguments.timers
    bus.call("Reload")
    _, changes = bus.call("EnableUnitFiles", "asbb", arguments.names, False, True)  # noqa: FBT003 - D-Bus's own
    bus.call("Reload")
    said = _said(changes) or [f"{' '.join(arguments.names)}: enabled already"]
    waiting = {unit.name for unit in units.list_units(bus, timers) if units.is_live(unit)} if timers else set()
    for timer in timers:
        if timer not in waiting:
            bus.call("StartUnit", "ss", timer, "replace")
            said.append(f"started {timer}")
    return said


def disable(session: Session, arguments: UnitFiles) -> list[str]:
    """Undo `enable`; returns what changed, in words."""
    for timer in arguments.timers:
        session.bus.call("StopUnit", "ss", timer, "replace")
    return _said(session.bus.call("DisableUnitFiles", "asb", arguments.names, False))  # noqa: FBT003


def reload(session: Session, arguments: Nothing) -> None:  # noqa: ARG001 - the signature of every operation
    """Have the manager read its files anew."""
    session.bus.call("Reload")


def _said(changes: list[tuple[str, str, str]]) -> list[str]:
    words = {"symlink": "enabled, by the link", "unlink": "disabled, without the link"}
    return [f"{words[kind]} {path}" for kind, path, _ in changes if kind in words]
