"""Where the token for GitHub comes from. It is never in a message: only the name of its source is."""

import contextlib
import os
import pwd
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from gtrun.account import TOKEN_VARIABLES
from gtrun.board.github.place import LOOPBACK, host
from gtrun.errors import BoardUnavailable
from gtrun.files import describe
from gtrun.model import GitHubPlace

CREDENTIAL = "github-token"
"""The name of the systemd credential (systemd.exec(5), LoadCredential=)."""

_LARGEST = 4096
_GH_WAIT = 5.0
_PUBLIC, _ENTERPRISE = TOKEN_VARIABLES[:2], TOKEN_VARIABLES[2:]
# what gh(1) needs to find its own configuration and keyring, and the network
_GH_ENVIRONMENT = ("HOME", "PATH", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "GH_CONFIG_DIR", "DBUS_SESSION_BUS_ADDRESS")


class Token:
    """A secret and where it came from. It has no text of its own, so that no message and no log can show it."""

    __slots__ = ("_value", "source")

    def __init__(self, value: str, source: str) -> None:
        """Raises BoardUnavailable for what cannot be a token: an HTTP library would quote it in its complaint."""
        if not re.fullmatch(r"[!-~]{1,4096}", value):
            raise BoardUnavailable(
                f"what {source} holds is no token for GitHub", hint="it is one word of printable ASCII characters"
            )
        self._value, self.source = value, source

    def reveal(self) -> str:
        """The secret."""
        return self._value

    def __repr__(self) -> str:
        return f"Token(from {self.source})"


def find(place: GitHubPlace, environment: Mapping[str, str]) -> Token:
    """The first token that there is: systemd credential, token_file, environment, gh. Raises BoardUnavailable.

    A run has its agent's own credential first. A token_file that this account cannot read is passed over, since the
    file may be the claim account's; one that everybody can read is refused.
    """
    passed_over = []
    where, folder = host(place), environment.get("CREDENTIALS_DIRECTORY", "")
    files = [(f"{folder}/{CREDENTIAL}", f"the systemd credential {CREDENTIAL}")] if folder.startswith("/") else []
    if place.token_file:
        files.append((_expanded(place.token_file), f"token_file {place.token_file}"))
    for path, source in files:
        try:
            text = _read(Path(path), source)
        except OSError as error:
            passed_over.append(f"{source}: {error.strerror or error}")
            continue
        return Token(text, source)
    for name in _variables(where):
        value = environment.get(name, "").strip()
        if value:
            return Token(value, f"the environment variable {name}")
    told = _ask_gh(where, environment)
    if told:
        return Token(told, f"gh auth token --hostname {where}")
    why = f" ({passed_over[-1]})" if passed_over and place.token_file else ""
    raise BoardUnavailable(
        f"there is no token for {where}{why}",
        hint=f"gh auth login --hostname {where}, or set token_file in [board], or {_variables(where)[0]}",
    )


def _expanded(path: str) -> str:
    """With `~/` as this account means it: each has a token of its own."""
    return f"{pwd.getpwuid(os.geteuid()).pw_dir}/{path.removeprefix('~/')}" if path.startswith("~/") else path


def _variables(where: str) -> tuple[str, ...]:
    """As gh(1) has them: one pair is for GitHub.com, the other for Enterprise servers."""
    if where == "github.com" or where.endswith(".ghe.com"):
        return _PUBLIC
    return (*_PUBLIC, *_ENTERPRISE) if where in LOOPBACK else _ENTERPRISE


def _read(path: Path, source: str) -> str:
    """Raises OSError if this account cannot read the file, BoardUnavailable if it should not be used."""
    # O_NONBLOCK: a FIFO must not hang us
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        with contextlib.suppress(OSError):
            if stat.S_ISLNK(path.lstat().st_mode):
                raise BoardUnavailable(f"{source} is a link, and a token is not read through one") from error
        raise
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise BoardUnavailable(f"{source} is not a regular file")
        if info.st_mode & (stat.S_IROTH | stat.S_IWOTH):
            raise BoardUnavailable(f"every account can read or write {source}", hint=f"chmod o= {path}")
        data = os.read(descriptor, _LARGEST + 1)
    except OSError as error:
        raise BoardUnavailable(f"{source} cannot be read: {describe(error)}") from error
    finally:
        os.close(descriptor)
    with contextlib.suppress(UnicodeDecodeError):
        return data.decode("ascii").strip()
    raise BoardUnavailable(f"what {source} holds is no token for GitHub")  # not from there: that error holds the text


def _ask_gh(where: str, environment: Mapping[str, str]) -> str | None:
    from gtrun.process import PATH, printed_by  # noqa: PLC0415 - the last resort

    closed = {name: environment[name] for name in _GH_ENVIRONMENT if name in environment}
    argv = ["gh", "auth", "token", "--hostname", where]
    try:
        code, data = printed_by(argv, {"PATH": PATH, **closed}, seconds=_GH_WAIT, most=_LARGEST)
    except (TimeoutError, OSError):
        return None
    return data.decode("ascii", "replace").strip() if code == 0 else None
