"""A command that belongs to the claim account, typed elsewhere or by another account, runs itself there over SSH.

The claim lock and the ledger are one account's on one box (`[claim] host`), so whoever else took a lock would take
another one. Here is where this account is the claim account and this box the claim host; from everywhere else:

1.  The command, its hatches and who asks travel as one argument of plain characters, which no shell changes.
2.  `ssh ops@box1 gtrun forwarded PAYLOAD`, without a terminal and without input, but for the bytes of a plugin, whose
    length and digest stand in the payload. What was forwarded is never forwarded again: if it is not at home there
    either, the two configurations disagree (78).
3.  There, both streams are framed: what a start-up file prints comes before, what ssh says comes outside. The last
    line has the exit code, so that ssh's own 255 is never taken for a run's.
4.  A connection that was refused or dropped is tried again as long as nothing can have been started, never afterwards.
5.  When the connection ends, so does the command there, unless it has asked for the start already.
"""

import base64
import binascii
import codecs
import json
import os
import random
import re
import shlex
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

import msgspec

from gtrun.account import Account
from gtrun.config import ClaimConfig, Fleet
from gtrun.errors import ConfigError, GtrunError, ManagerSilent, NoManager, UsageError
from gtrun.exits import Exit
from gtrun.machine import machine_id
from gtrun.model import Origin
from gtrun.process import pause, relay
from gtrun.reach.transport import over_ssh
from gtrun.text import plain, plain_lines, shorten

COMMANDS = frozenset({"dispatch", "pause", "preflight", "reconcile", "resume", "rigs", "shipped", "show", "sweep"})
"""What is forwarded: all that claims, and all that reads the claim account's state. Nothing else is accepted."""

HATCHES = ("DISPATCH_ALLOW_DUPLICATE", "DISPATCH_IGNORE_QUOTA", "GTRUN_BACKEND")
"""The variables that travel with a command."""

_VERSION = 1
_MAX_ARG_STRLEN = 131_071  # execve(2): sshd(8) gives a shell the whole command as one argument
_BEGIN_WAIT = 30.0  # seconds until the command there has begun
_DEAD_WAIT = 5.0  # seconds in which connections that nobody listens for are tried again: sshd may be restarting
_BUSY_WAIT = 30.0  # seconds in which those are that were dropped: MaxStartups in sshd_config(5)
_PATIENCE = 2.0  # seconds after which that is said
_CONNECT_WAIT = 10
_NONCE = re.compile(r"[0-9a-f]{32}", re.ASCII)
_KEPT = 4096  # bytes of what comes before the frame, for a message
# Last words of an ssh whose connection was not let in (sshconnect.c, kex.c, packet.c): no command was asked for yet.
# One whose connection was lost later says "closed by remote host" or "client_loop".
_NOT_LET_IN = re.compile(
    r"kex_exchange_identification|banner exchange|connect to host .*: Connection (?:refused|reset|timed out)"
    r"|Connection (?:closed|reset) by \S+ port \d+$"
)


class Attached(msgspec.Struct, frozen=True):
    """A file that comes with a command, on its standard input: how many bytes, and their SHA-256 in hexadecimal."""

    size: int
    digest: str


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A command on its way: its arguments without those for this gtrun (`--config`), the hatches, and who asks."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    origin: Origin
    version: int = _VERSION
    attached: Attached | None = None


def is_here(claim: ClaimConfig, account: str) -> bool:
    """Whether claims are made by this account of this box."""
    if claim.host is None:
        return True
    wanted, _, host = claim.host.partition("@")
    if account != wanted:
        return False
    return machine_id() == claim.machine_id if claim.machine_id else _is_this_box(host)


def _is_this_box(host: str) -> bool:
    if host.lower() in {"localhost", socket.gethostname().lower()}:
        return True
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    return any(_is_own_address(family, str(address[0])) for family, _, _, _, address in found)


def _is_own_address(family: int, address: str) -> bool:
    """A datagram to an address of this box comes from that very address; nothing is sent to find out."""
    if address.startswith("127."):
        return True
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect((address, 9))
        except OSError:
            return False
        return bool(asking.getsockname()[0] == address)


def pack(order: Order) -> str:
    """An order as one argument of plain characters, which begins with the frame's nonce."""
    text = json.dumps(msgspec.to_builtins(order))  # arguments that are no UTF-8 keep their bytes: PEP 383
    return os.urandom(16).hex() + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def nonce_of(payload: str) -> str:
    """The nonce that a payload begins with; empty if it is none."""
    return payload[:32] if _NONCE.fullmatch(payload[:32]) else ""


def unpack(payload: str) -> Order:
    """The order that a payload holds. Raises UsageError; ConfigError for one of another version of gtrun."""
    try:
        told = json.loads(base64.urlsafe_b64decode(payload[32:] + "=" * (-len(payload[32:]) % 4)))
        if nonce_of(payload) and told["version"] != _VERSION:
            raise ConfigError(
                "this was forwarded by another version of gtrun than the one here",
                hint="install the same version on both sides",
            )
        order = msgspec.convert(told, Order)
    except (ValueError, KeyError, TypeError, binascii.Error, msgspec.ValidationError):
        order = None
    if order is None or not nonce_of(payload):
        raise UsageError(
            "what gtrun forwards is for gtrun alone",
            hint="if this came by ssh, the key opens no other command: type gtrun dispatch … where you are, with"
            " [claim] host in fleet.toml there",
        )
    words = order.arguments[1:] if order.arguments[:1] == ("--debug",) else order.arguments
    if not words or words[0] not in COMMANDS or not set(order.environment) <= set(HATCHES):
        raise UsageError(f"this is never forwarded: {shorten(' '.join(order.arguments), 80)!r}")
    return order


def received(attached: Attached, stream: BinaryIO) -> bytes:
    """The file that comes with a command. Raises UsageError if it is another one than was sent."""
    from gtrun.plugins.payload import MOST, digest_of  # noqa: PLC0415 - only a plugin comes so

    data = stream.read(min(attached.size, MOST))
    if len(data) != attached.size or digest_of(data) != attached.digest:
        raise UsageError(
            f"the plugin did not arrive as it was sent: {len(data)} of {attached.size} bytes",
            hint="does a start-up file of the login shell there read the standard input?",
        )
    return data


def disagreement(fleet: Fleet, origin: Origin, account: str) -> ConfigError:
    """What a forwarded command says that is not at home where it was sent."""
    here, host = f"{account}@{socket.gethostname()}", str(fleet.claim.host)
    hint = "let [claim] host name one account of one box in both"
    if host.partition("@")[0] == account:
        hint += f'; if {host} is this box, add to [claim] in both: machine_id = "{machine_id()}"'
    return ConfigError(
        f"two configurations disagree: {_short(origin.source)} of {_short(origin.by)} sent this here, to {here},"
        f" and {fleet.source} here sends it to {host}",
        hint=hint,
    )


def _short(text: str) -> str:
    return shorten(plain(text), 100)


def run_there(
    fleet: Fleet,
    account: Account,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    write: Callable[[int, bytes], None],
    *,
    starts: str | None = None,
    attached: bytes | None = None,
) -> int:
    """Have a command run by the claim account on the claim host; returns its own exit code.

    `write` gets what it prints, for stdout (1) and stderr (2); the latter with control characters escaped. `starts` is
    the command that tells whether it has started a run. `attached` comes with it, as a plugin does.

    Raises UsageError (too large), NoManager (69: nothing was started), ManagerSilent (69: it may have been),
    ConfigError (78: no gtrun there), GtrunError (130).
    """
    claim, host = fleet.claim, str(fleet.claim.host)
    origin = Origin(by=f"{account.name}@{socket.gethostname()}", source=str(fleet.source))
    hatches = {name: environment[name] for name in HATCHES if name in environment}
    file = None if attached is None else _attached(attached)
    payload = pack(Order(arguments=tuple(arguments), environment=hatches, origin=origin, attached=file))
    argv = over_ssh(host, [claim.gtrun, "forwarded", payload], connect_timeout=_CONNECT_WAIT)
    if len(argv[-1]) > _MAX_ARG_STRLEN:
        raise UsageError(f"the arguments are too large to forward to {host}: at most about 96 KB travel")
    began, is_told = time.monotonic(), False
    while True:
        heard = _Heard(nonce_of(payload), write)
        try:
            deadline = heard.deadline(time.monotonic() + _BEGIN_WAIT)
            code = relay(argv, heard, environment=environment, deadline=deadline, given=attached or b"")
        except TimeoutError:
            raise _unknown(f"{host} did not begin within {_BEGIN_WAIT:g} s", starts, heard) from None
        except KeyboardInterrupt:
            raise GtrunError(
                f"interrupted: it may have started on {host}" if starts else "interrupted",
                hint=f"ask: {starts}" if starts else "",
                code=Exit.INTERRUPTED,
            ) from None
        if heard.code is not None:
            return heard.code
        if heard.has_begun:
            raise _unknown(f"the connection to {host} was lost", starts, heard)
        patience = _DEAD_WAIT if "Connection refused" in heard.before else _BUSY_WAIT
        if code != 255 or not _NOT_LET_IN.search(heard.before) or time.monotonic() > began + patience:
            raise _not_begun(claim, code, heard.before, fleet.source, starts)
        if time.monotonic() > began + _PATIENCE and not is_told:
            is_told = True
            write(2, f"gtrun: {host} lets nobody in, trying again for {patience:g} s\n".encode())
        pause(random.uniform(0.1, 0.5))  # noqa: S311 - many that were refused together come back apart


def _attached(data: bytes) -> Attached:
    from gtrun.plugins.payload import digest_of  # noqa: PLC0415 - only a plugin goes so

    return Attached(len(data), digest_of(data))


def _unknown(what: str, starts: str | None, heard: "_Heard") -> GtrunError:
    """The command may be under way there."""
    said = f" ({heard.before})" if heard.before and not heard.has_begun else ""
    if starts is None:
        return NoManager(what + said)
    return ManagerSilent(f"{what}{said}: it may have started there", hint=f"ask: {starts}")


def _not_begun(claim: ClaimConfig, code: int, said: str, source: str | None, starts: str | None) -> GtrunError:
    """What kept the command from its beginning, by the exit code of ssh or of the shell there."""
    host = claim.host
    if code < 0:
        what = f"ssh to {host} was ended by signal {-code}" + (": it may have started there" if starts else "")
        return ManagerSilent(what, hint=f"ask: {starts}" if starts else "")
    if said.startswith("setpriv:"):
        return NoManager(f"ssh cannot be executed here: {said}", hint="install the OpenSSH client")
    if code in {126, 127}:
        return ConfigError(
            f"{host} cannot execute {claim.gtrun}: {said or 'no such program'}",
            hint=f"install gtrun there, or set gtrun in [claim] of {source} to its path there",
        )
    if code != 255:
        return NoManager(
            f"{host} ended with {code} before gtrun began there: {said or 'it said nothing'}",
            hint=f"look what it says to: {shlex.join(['ssh', str(host), claim.gtrun, 'info'])}",
        )
    hint = f"see what is wrong with: ssh -T {host} {claim.gtrun} info"
    if "Permission denied" in said:
        hint = f"nothing is asked here, so it needs a key that opens it by itself: ssh-copy-id {host}"
    elif "Host key verification failed" in said:
        hint = f"its host key is unknown or has changed; compare it, then connect once by hand: ssh {host}"
    elif "Connection refused" in said:
        hint = f"is sshd running there? Try: ssh -T {host} {claim.gtrun} info"
    return NoManager(f"{host} is not to be reached over SSH: {said or 'ssh said nothing'}", hint=hint)


def begin_line(nonce: str) -> str:
    """What comes before a forwarded command's own output, on both streams."""
    return f"gtrun-{nonce} begin\n"


def end_line(nonce: str, code: int | str) -> str:
    """What comes after it."""
    return f"gtrun-{nonce} end {code}\n"


class _Heard:
    """What has come over the connection so far, both streams; ended when both frames are."""

    def __init__(self, nonce: str, write: Callable[[int, bytes], None]) -> None:
        self._streams = {1: _Framed(nonce), 2: _Framed(nonce)}
        self._write = write
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._line = ""

    def __call__(self, number: int, chunk: bytes) -> bool:
        told = self._streams[number].feed(chunk)
        if number == 2:
            told = self._escaped(told, is_end=self._streams[2].code is not None)
        if told:
            self._write(number, told)
        return self.code is not None

    def _escaped(self, chunk: bytes, *, is_end: bool) -> bytes:
        """The whole lines of it: a character or an escape may be in two chunks."""
        self._line += self._decoder.decode(chunk, final=is_end)
        whole, newline, self._line = (self._line, "", "") if is_end else self._line.rpartition("\n")
        return (plain_lines(whole) + newline).encode()

    def deadline(self, until: float) -> Callable[[], float | None]:
        """The instant when it must have begun; none from then on."""
        return lambda: None if self.has_begun else until

    @property
    def has_begun(self) -> bool:
        """Whether the command there runs, or ran."""
        return any(stream.has_begun for stream in self._streams.values())

    @property
    def code(self) -> int | None:
        """The command's exit code, once both streams are complete."""
        codes = [stream.code for stream in self._streams.values()]
        return None if None in codes else codes[0]

    @property
    def before(self) -> str:
        """The last line on stderr from before the command, which is ssh's or the shell's."""
        lines = self._streams[2].before.decode(errors="replace").split("\n")
        return shorten(plain(next((line.strip() for line in reversed(lines) if line.strip()), "")), 200)


class _Framed:
    """One stream: what lies between the frame's two lines, as soon as it is known not to be the second."""

    def __init__(self, nonce: str) -> None:
        self._begin = begin_line(nonce).encode()
        self._end = end_line(nonce, "").rstrip("\n").encode()
        self._rest = b""
        self.has_begun = False
        self.before = b""
        self.code: int | None = None

    def feed(self, chunk: bytes) -> bytes:
        """The command's own output in what has come."""
        if self.code is not None:
            return b""
        self._rest += chunk
        if not self.has_begun:
            before, mark, after = self._rest.partition(self._begin)
            self.before = before[-_KEPT:]
            if not mark:
                self._rest = self._rest[-_KEPT:]
                return b""
            self.has_begun, self._rest = True, after
        told, mark, after = self._rest.partition(self._end)
        if mark:
            self._rest = mark + after
            code, newline, _ = after.partition(b"\n")
            if newline:
                self.code = int(code)
            return told
        held = next((n for n in range(len(self._end) - 1, 0, -1) if told.endswith(self._end[:n])), 0)
        self._rest = told[len(told) - held :]
        return told[: len(told) - held]
