"""The unit files that gtrun ships, put into an account's user manager and taken out again."""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec

import gtrun
from gtrun.account import Account
from gtrun.config import Fleet, find
from gtrun.errors import GtrunError, LaunchFailed
from gtrun.files import describe, publish
from gtrun.names import is_plain_argument
from gtrun.reach import operations as at_agent
from gtrun.reach.route import this_installation
from gtrun.reach.worker import as_account
from gtrun.release import installation

UNITS = ("reconcile", "sweep")
"""What there is to install; each has a service, and perhaps a timer that starts it."""

_MARK = "# Written by `gtrun units install`"
_HEADER = f"{_MARK}, which writes it again; a drop-in changes it (systemd.unit(5)).\n"
_PROGRAM = "ExecStart=gtrun "
# systemd.unit(5), the folders of user units that are not the account's own
_SYSTEM = ("/etc/systemd/user", "/run/systemd/user", "/usr/local/lib/systemd/user", "/usr/lib/systemd/user")
_FOLDERS = {"XDG_STATE_HOME": ".local/state", "XDG_DATA_HOME": ".local/share"}
_JITTER = 0.1  # of the time between two passes


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What the shipped files are completed with: variables for gtrun, and the seconds between two passes."""

    environment: Mapping[str, str]
    every: float


def terms_of(fleet: Fleet, account: Account, environment: Mapping[str, str], explicit: Path | None) -> Terms:
    """Those by which a unit of this account reads the same fleet.toml and the same state as this command.

    `explicit` is what `--config` named. What a unit finds by itself is left to it.
    """
    found = {
        name: environment[name]
        for name, usual in _FOLDERS.items()
        if environment.get(name, "").startswith("/") and Path(environment[name]) != Path(account.home, usual)
    }
    path = find(environment, explicit)
    if path is not None and path != find({}, None):
        found["GTRUN_CONFIG"] = str(path)
    return Terms(environment=found, every=fleet.schedule.every)


def shipped(names: Collection[str] = UNITS) -> list[Path]:
    """The unit files of this installation."""
    files = sorted(Path(gtrun.__file__).with_name("units").iterdir())
    return [file for file in files if file.stem.removeprefix("gtrun-") in names]


def install(account: Account, terms: Terms, names: Collection[str] = UNITS, *, rehearse: bool = False) -> Iterator[str]:
    """Write and enable units, start their timers, as that account, which is ours; yields what is done, line by line.

    What is right already is left alone, and so is a file of the same name that is not gtrun's; a copy that a package
    has brought is used as it is. Raises NoManager, LaunchFailed if a unit could not execute this gtrun.
    """
    folder, files = _folder(account), shipped(names)
    with as_account(account) as worker:
        lingers = worker.call(at_agent.does_linger, at_agent.Nothing())
        for file in files:
            yield from _put(file, folder, terms, rehearse=rehearse)
        enabled = [file.name for file in files if "[Install]" in file.read_text()]
        if rehearse:
            yield f"would enable {' '.join(enabled)}"
        else:
            yield from worker.call(at_agent.enable, at_agent.UnitFiles(enabled))
    if not lingers:
        mend = f"sudo loginctl enable-linger {account.name}"
        yield f"{account.name} does not linger, so nothing of this happens at boot, or while nobody is logged in;"
        yield f"mend it with: {mend}"


def uninstall(account: Account, names: Collection[str] = UNITS) -> Iterator[str]:
    """Stop the timers, disable the units, remove the files that gtrun wrote; yields what is done. Raises NoManager.

    A pass that is under way goes on to its end.
    """
    folder, files = _folder(account), shipped(names)
    with as_account(account) as worker:
        there = [file.name for file in files if os.path.lexists(folder / file.name) or _packaged(file)]
        yield from worker.call(at_agent.disable, at_agent.UnitFiles(there))
        for file in files:
            ours = folder / file.name
            if _is_ours(ours):
                _unlink(ours)
                yield f"removed {ours}"
        worker.call(at_agent.reload, at_agent.Nothing())


def are_in(account: Account) -> bool:
    """Whether an account has units that were installed for it."""
    return any(os.path.lexists(_folder(account) / file.name) for file in shipped())


def rendered(text: str, terms: Terms) -> str:
    """A shipped unit as it executes this very gtrun on these terms. Raises LaunchFailed."""
    folder = installation.this_folder()
    # of the releases the current one, whichever that is by then
    command = [str(installation.read(folder).root / "bin/gtrun")] if folder else this_installation()
    for word in command:
        if not is_plain_argument(word):
            raise LaunchFailed(
                f"{word!r} cannot stand on a unit's command line",
                hint="install gtrun under a path of letters, digits and _ . / = - only",
            )
    variables = "".join(f"{_assignment(name, value)}\n" for name, value in sorted(terms.environment.items()))
    text = text.replace(_PROGRAM, f"{variables}ExecStart={' '.join(command)} ")
    for key, seconds in (("OnUnitInactiveSec", terms.every), ("RandomizedDelaySec", _JITTER * terms.every)):
        text = re.sub(rf"^{key}=.*$", f"{key}={_span(seconds)}", text, flags=re.MULTILINE)
    return _HEADER + text


def _assignment(name: str, value: str) -> str:
    """A variable as a unit file has it, byte for byte (systemd.exec(5), Environment=). Raises LaunchFailed."""
    if re.search("[\0\ud800-\udfff]", value):
        raise LaunchFailed(f"{name} is {value!r}, which no unit file can carry", hint="give that file another path")
    escaped = re.sub(r'[\\"\x01-\x1f\x7f]', lambda match: f"\\x{ord(match[0]):02x}", value)
    return f'Environment="{name}={escaped.replace("%", "%%")}"'


def _span(seconds: float) -> str:
    """A time span of systemd.time(7)."""
    return f"{round(seconds)}s" if seconds == round(seconds) else f"{round(seconds * 1000)}ms"


def _folder(account: Account) -> Path:
    return Path(account.home, ".config/systemd/user")


def _put(file: Path, folder: Path, terms: Terms, *, rehearse: bool) -> Iterator[str]:
    ours, text = folder / file.name, rendered(file.read_text(), terms)
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
