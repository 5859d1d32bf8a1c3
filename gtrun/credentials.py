"""Secrets of a run: checked before the start, loaded by systemd, given to the agent program and to nobody else.

A file becomes a credential of the unit (systemd.exec(5), LoadCredential=): the manager puts a copy into
$CREDENTIALS_DIRECTORY, where this account alone can read it, for as long as the unit is there. What a command prints is
put into a folder of the unit's beside it (RuntimeDirectory=), by the runner. No secret is ever in an argument, a
property, the run record or a line of ours; in the environment only from execve(2) on, and only if the profile asks.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from gtrun.errors import LaunchFailed
from gtrun.files import describe
from gtrun.model import Credential, ResolvedRun
from gtrun.names import is_plain_argument
from gtrun.program import STRING_MAX, environment_of, expand_home, find

LARGEST = 1 << 20
"""Bytes that all credentials of a unit may have together (systemd.exec(5))."""

_DECRYPTS_ITSELF = 258  # before that a user manager tries the machine's key, which it cannot read (systemd#33796)
_DECRYPTS_FOR_USERS = 256  # systemd-creds(1), --user
_COMMAND_WAIT = 20.0
_DIRECTORY = "CREDENTIALS_DIRECTORY"


def folder(run: ResolvedRun) -> str | None:
    """The unit's folder, below the account's runtime folder, for what commands print; None if there are none."""
    return f"gtrun.{run.identifier}" if any(one.command for one in run.credentials.values()) else None


def expanded(credentials: Mapping[str, Credential], home: str) -> dict[str, Credential]:
    """With `~/` as the account means it."""
    return {
        name: Credential(
            path=expand_home(one.path, home),
            encrypted=one.encrypted,
            command=tuple(expand_home(word, home) if place == 0 else word for place, word in enumerate(one.command)),
        )
        for name, one in credentials.items()
    }


def check(run: ResolvedRun, *, systemd: int) -> dict[str, str]:
    """The variables that credentials will make, as far as that is known before the start.

    Raises LaunchFailed for what could not be loaded: the manager would end the unit with status 243/CREDENTIALS, and
    nobody would know why. `systemd` is the manager's version.
    """
    values, total = {}, 0
    for name, one in run.credentials.items():
        if one.command:
            find(one.command[0], run.path, run.workdir)
            continue
        data = _read(name, one)
        total += len(data)
        if total > LARGEST:
            raise LaunchFailed(f"credential {name} makes it more than {LARGEST} bytes for all of them together")
        if one.encrypted:
            if systemd < _DECRYPTS_ITSELF:
                by_hand = f'"systemd-creds", "decrypt", "--user", "--name={name}", "{one.path}", "-"'
                command = by_hand if systemd >= _DECRYPTS_FOR_USERS else '"PROGRAM", "ARGUMENT"'
                raise LaunchFailed(
                    f"credential {name} is encrypted, and a user manager of systemd {systemd} cannot decrypt it:"
                    f" that takes {_DECRYPTS_ITSELF}",
                    hint=f"let a command of the account's print it: {name} = {{ command = [{command}] }}",
                )
        else:
            values[name] = data
    return _variables(run, values)


def _read(name: str, one: Credential) -> bytes:
    """A credential's file, as the manager would load it. Raises LaunchFailed."""
    path = one.path
    if not is_plain_argument(path):
        raise LaunchFailed(
            f"the path {path!r} of credential {name} cannot stand in a unit",
            hint="give the file a path of letters, digits and _ . / = - only",
        )
    try:
        # O_NONBLOCK: a FIFO must not hang us
        with open(path, "rb", opener=lambda file, flags: os.open(file, flags | os.O_NONBLOCK)) as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise LaunchFailed(f"credential {name}: {path} is not a regular file")
            if info.st_mode & stat.S_IROTH and not one.encrypted:
                raise LaunchFailed(f"credential {name}: every account can read {path}", hint=f"sudo chmod o= {path}")
            data = file.read(LARGEST + 1)
    except OSError as error:
        what = "the encrypted secret" if one.encrypted else "the secret"
        raise LaunchFailed(
            f"credential {name} cannot be loaded: {describe(error)}",
            hint=f"put {what} there, readable by the agent's account, or mend the path in [run] credentials",
        ) from error
    if not data:
        raise LaunchFailed(f"credential {name}: {path} is empty")
    return data


def gather(run: ResolvedRun, inherited: Mapping[str, str]) -> dict[str, str]:
    """In the unit: run the commands, and give the variables that the agent program gets. Raises LaunchFailed."""
    if not run.credentials:
        return {}
    loaded = Path(inherited.get(_DIRECTORY, "/nonexistent"))
    own = folder(run)
    if own is not None:
        given = inherited.get("RUNTIME_DIRECTORY", "").split(":")
        place = next((Path(path) for path in given if path.endswith(f"/{own}")), None)
        if place is None:
            raise LaunchFailed(f"the unit has no folder {own} for its credentials: does a drop-in take it away?")
        for name, one in run.credentials.items():
            if one.command:
                _write(place / name, _printed(name, one, run, inherited))
            else:
                (place / name).symlink_to(loaded / name)
        loaded = place
    asked = set(run.credential_environment.values())
    values = {}
    for name in asked:
        try:
            values[name] = (loaded / name).read_bytes()
        except OSError as error:
            raise LaunchFailed(f"credential {name} was not loaded: {error.strerror}") from None
    return {_DIRECTORY: str(loaded)} | _variables(run, values)


def _printed(name: str, one: Credential, run: ResolvedRun, inherited: Mapping[str, str]) -> bytes:
    """What a credential's command prints. Raises LaunchFailed, which never says what that was."""
    from gtrun.process import printed_by  # noqa: PLC0415 - 3 ms that few runs pay

    program = find(one.command[0], run.path, run.workdir)
    what = f"credential {name}: {program}"
    environment = environment_of(run, inherited)
    try:
        code, data = printed_by([program, *one.command[1:]], environment, seconds=_COMMAND_WAIT, most=LARGEST)
    except TimeoutError:
        raise LaunchFailed(f"{what} did not end within {_COMMAND_WAIT:g} s") from None
    except OSError as error:
        raise LaunchFailed(f"{what} cannot be executed: {error.strerror}") from None
    if code != 0:
        raise LaunchFailed(f"{what} ended with {code}", hint="try it by hand, as this account and without a terminal")
    if not 0 < len(data) <= LARGEST:
        raise LaunchFailed(f"{what} printed {'too much' if data else 'nothing'}")
    return data


def _write(path: Path, data: bytes) -> None:
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o400)) as file:
            file.write(data)
    except OSError as error:
        raise LaunchFailed(f"cannot write the credential {path.name}: {error.strerror}") from None


def _variables(run: ResolvedRun, values: Mapping[str, bytes]) -> dict[str, str]:
    """The variables whose credentials are among `values`, without the line end that a file has. Raises LaunchFailed."""
    return {
        variable: _text(variable, name, values[name].removesuffix(b"\n"))
        for variable, name in run.credential_environment.items()
        if name in values
    }


def _text(variable: str, name: str, data: bytes) -> str:
    what = f"credential {name} cannot be the variable {variable}"
    if b"\0" in data:
        raise LaunchFailed(f"{what}: it has a NUL character")
    if len(variable) + 1 + len(data) > STRING_MAX:
        raise LaunchFailed(f"{what}: with {len(data)} bytes it is too long for the kernel")
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass  # not raised from there: that error holds the secret
    raise LaunchFailed(f"{what}: it is not UTF-8")
