"""The unit files that gtrun ships, put into an account's user manager and taken out again."""

import os
from collections.abc import Iterator
from pathlib import Path

import gtrun
from gtrun.account import Account
from gtrun.errors import GtrunError, LaunchFailed
from gtrun.files import describe, publish
from gtrun.names import is_plain_argument
from gtrun.reach import operations as at_agent
from gtrun.reach.route import this_installation
from gtrun.reach.worker import as_account
from gtrun.release import installation

_MARK = "# Written by `gtrun units install`"
_HEADER = f"{_MARK}, which writes it again; a drop-in changes it (systemd.unit(5)).\n"
_PROGRAM = "ExecStart=gtrun "
# systemd.unit(5), the folders of user units that are not the account's own
_SYSTEM = ("/etc/systemd/user", "/run/systemd/user", "/usr/local/lib/systemd/user", "/usr/lib/systemd/user")


def shipped() -> list[Path]:
    """The unit files of this installation."""
    return sorted(Path(gtrun.__file__).with_name("units").iterdir())


def install(account: Account, *, rehearse: bool = False) -> Iterator[str]:
    """Write, enable and explain the units, as that account, which is ours; yields what is done, one line each.

    What is right already is left alone, and so is a file of the same name that is not gtrun's; a copy that a package
    has brought is used as it is. Raises NoManager, LaunchFailed if a unit could not execute this gtrun.
    """
    folder = _folder(account)
    with as_account(account) as worker:
        lingers = worker.call(at_agent.does_linger, at_agent.Nothing())
        for file in shipped():
            yield from _put(file, folder, rehearse=rehearse)
        names = [file.name for file in shipped() if "[Install]" in file.read_text()]
        if rehearse:
            yield f"would enable {' '.join(names)}"
        else:
            yield from worker.call(at_agent.enable, at_agent.UnitFiles(names))
    if not lingers:
        mend = f"sudo loginctl enable-linger {account.name}"
        yield f"{account.name} does not linger, so nothing of this happens at boot; mend it with: {mend}"


def uninstall(account: Account) -> Iterator[str]:
    """Disable the units and remove the files that gtrun wrote; yields what is done, one line each. Raises NoManager."""
    folder = _folder(account)
    with as_account(account) as worker:
        there = [file.name for file in shipped() if os.path.lexists(folder / file.name) or _packaged(file)]
        yield from worker.call(at_agent.disable, at_agent.UnitFiles(there))
        for file in shipped():
            ours = folder / file.name
            if _is_ours(ours):
                _unlink(ours)
                yield f"removed {ours}"
        worker.call(at_agent.reload, at_agent.Nothing())


def rendered(text: str) -> str:
    """A shipped unit as it executes this very gtrun. Raises LaunchFailed."""
    folder = installation.this_folder()
    # of the releases the current one, whichever that is by then
    command = [str(installation.read(folder).root / "bin/gtrun")] if folder else this_installation()
    for word in command:
        if not is_plain_argument(word):
            raise LaunchFailed(
                f"{word!r} cannot stand on a unit's command line",
                hint="install gtrun under a path of letters, digits and _ . / = - only",
            )
    return _HEADER + text.replace(_PROGRAM, f"ExecStart={' '.join(command)} ")


def _folder(account: Account) -> Path:
    return Path(account.home, ".config/systemd/user")


def _put(file: Path, folder: Path, *, rehearse: bool) -> Iterator[str]:
    ours, text = folder / file.name, rendered(file.read_text())
    packaged = _packaged(file)
    if packaged is not None:
        yield f"{file.name} is there already, from {packaged}"
    elif os.path.lexists(ours) and not _is_ours(ours):
        yield f"{ours} is not gtrun's: left alone"
    elif _read(ours) == text:
        yield f"{ours} is as it should be"
    elif rehearse:
        yield f"would write {ours}"
    else:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            publish(ours, text.encode())
        except OSError as error:
            raise GtrunError(f"cannot write {ours}: {describe(error)}") from error
        yield f"wrote {ours}"


def _packaged(file: Path) -> Path | None:
    """Where a package or the administrator has put the same unit."""
    return next((Path(place, file.name) for place in _SYSTEM if Path(place, file.name).is_file()), None)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _is_ours(path: Path) -> bool:
    return not path.is_symlink() and _read(path).startswith(_MARK)


def _unlink(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        raise GtrunError(f"cannot remove {path}: {describe(error)}") from error
