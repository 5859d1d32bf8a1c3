"""Enabling and disabling unit files in the account's own manager."""

import msgspec

from gtrun.reach.operations.session import Nothing, Session


class UnitFiles(msgspec.Struct, frozen=True):
    """Unit files by their names."""

    names: list[str]


def enable(session: Session, arguments: UnitFiles) -> list[str]:
    """Have the manager read its files anew and start these from its next start on; returns what changed, in words."""
    session.bus.call("Reload")
    _, changes = session.bus.call("EnableUnitFiles", "asbb", arguments.names, False, True)  # noqa: FBT003 - D-Bus's own
    session.bus.call("Reload")
    return _said(changes) or [f"{' '.join(arguments.names)}: enabled already"]


def disable(session: Session, arguments: UnitFiles) -> list[str]:
    """Undo `enable`; returns what changed, in words."""
    return _said(session.bus.call("DisableUnitFiles", "asb", arguments.names, False))  # noqa: FBT003


def reload(session: Session, arguments: Nothing) -> None:  # noqa: ARG001 - the signature of every operation
    """Have the manager read its files anew."""
    session.bus.call("Reload")


def _said(changes: list[tuple[str, str, str]]) -> list[str]:
    words = {"symlink": "enabled, by the link", "unlink": "disabled, without the link"}
    return [f"{words[kind]} {path}" for kind, path, _ in changes if kind in words]
