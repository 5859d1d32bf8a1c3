"""One connection to a user manager over D-Bus; bytes and signatures stay in here."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gtrun.account import Account
from gtrun.errors import GtrunError, NoManager

MANAGER = b"org.freedesktop.systemd1.Manager"
UNIT = b"org.freedesktop.systemd1.Unit"
SERVICE = b"org.freedesktop.systemd1.Service"
JOB = b"org.freedesktop.systemd1.Job"
SLICE = b"org.freedesktop.systemd1.Slice"
_BUS = b"org.freedesktop.DBus"
_SYSTEMD = b"org.freedesktop.systemd1"
OBJECT = "/org/freedesktop/systemd1"
"""The manager's own object; units have theirs below it."""
_OBJECT = OBJECT.encode()
_ADDRESS_SAFE = frozenset(b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz/.\\*")

_SYSTEM_BUS = "/run/dbus/system_bus_socket"
_NO_REPLY = "DBusNoReplyError"  # the binding gives some errors a class and no name
_SUBSCRIBED = "org.freedesktop.systemd1.AlreadySubscribed"
_REPEATS = 5

Property = tuple[str, str, Any]
"""A unit property: its name, its D-Bus signature, its value with text as str."""

UnitProperties = tuple[str, Sequence[Property]]
"""A unit that is made beside another one: its name and its properties."""


class BusError(GtrunError):
    """The manager answered with an error. `name` is the D-Bus error name, or the binding's class for it."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message or name)
        self.name = name

    @property
    def is_silence(self) -> bool:
        """Whether the manager left the bus before it answered, as it does when it re-executes itself."""
        return self.name == _NO_REPLY


class BusTimeout(GtrunError):
    """No signal came within the deadline."""


def _encoded(value: Any) -> Any:  # noqa: ANN401 - any D-Bus value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list | tuple):
        return [_encoded(item) for item in value]
    return value


def _decoded(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if isinstance(value, tuple):
        return tuple(map(_decoded, value))
    if isinstance(value, dict):
        return {_decoded(key): _decoded(item) for key, item in value.items()}
    return value


def _repeated(call: Callable[[], Any]) -> Any:  # noqa: ANN401
    """The reply of a call that may be made again: a manager that re-executes itself leaves the bus for a moment.

    No time has to pass in between: the bus keeps the next call until the manager is back.
    """
    for _ in range(_REPEATS):
        try:
            return call()
        except BusError as error:
            if not error.is_silence:
                raise
    return call()


def _ignore(msg: object, error: object = None, userdata: object = None) -> None:
    """A match needs a callback; the signal itself is then read by `signals`."""


def _escaped(value: str) -> str:
    """A value in a D-Bus address."""
    return "".join(chr(byte) if byte in _ADDRESS_SAFE else f"%{byte:02x}" for byte in value.encode())


class Bus:
    """A connection that is closed exactly once: a second close of the binding aborts the process."""

    def __init__(self, address: str, *, private: bool = False) -> None:
        """Connect to a D-Bus address. Raises BusError."""
        from pystemd.dbuslib import DBusAddress, apply_signature  # noqa: PLC0415 - 26 ms that only a worker pays

        self._apply = apply_signature
        self._connection = DBusAddress(address.encode(), peer_to_peer=private)
        try:
            self._connection.open()
        except Exception as error:
            raise self._translated(error) from error

    @classmethod
    def at(cls, path: str, *, private: bool = False) -> "Bus":
        """A connection to a socket. Raises BusError."""
        return cls(f"unix:path={_escaped(path)}", private=private)

    @classmethod
    def through(cls, argv: Sequence[str]) -> "Bus":
        """A connection through the standard streams of a program, which ends with it. Raises BusError at the latest
        when something is called.
        """
        arguments = "".join(f",argv{number}={_escaped(each)}" for number, each in enumerate(argv))
        return cls(f"unixexec:path={_escaped(argv[0])}{arguments}")

    @classmethod
    def of(cls, account: Account) -> "Bus":
        """The account's user bus, as that account. Raises NoManager with the command that starts the manager."""
        why = "there is no user bus"
        if Path(account.bus).exists():
            try:
                return cls.at(account.bus)
            except BusError as error:
                why = f"its user bus does not answer ({error.message})"
        raise NoManager(
            f"no user manager of {account.name} to talk to: {why} at {account.bus}",
            hint=f"start it with: {account.how_to_start_manager()}",
        )

    @classmethod
    def still_there(cls, account: Account) -> "Bus":
        """The manager's own socket, which outlives the bus while a manager shuts down, or else the user bus.

        In this order: the bus's socket may still take a connection that no bus will ever serve. Raises NoManager.
        """
        private = f"{account.runtime}/systemd/private"
        if Path(private).exists():
            with contextlib.suppress(BusError):
                return cls.at(private, private=True)
        return cls.of(account)

    @classmethod
    def of_system(cls) -> "Bus":
        """The bus of the machine's own manager. Raises BusError."""
        return cls.at(_SYSTEM_BUS)

    def call(self, member: str, signature: str = "", *values: Any) -> Any:  # noqa: ANN401
        """Call a method of the manager; returns the reply's body. Raises BusError.

        It is called again if the manager re-executed itself meanwhile, so it must be one that can be.
        """
        arguments = self._apply(signature.encode(), _encoded(values))
        return _repeated(lambda: self._call(_OBJECT, MANAGER, member, arguments))

    def call_unit(self, path: str, member: str) -> Any:  # noqa: ANN401
        """Call a method without arguments of one unit. Raises BusError."""
        return self._call(path.encode(), UNIT, member, [])

    def call_with_properties(
        self,
        member: str,
        name: str,
        mode: str,
        properties: Sequence[Property],
        beside: Sequence[UnitProperties] = (),
    ) -> Any:  # noqa: ANN401
        """Call a method of signature `ssa(sv)a(sa(sv))`. Raises BusError."""
        arguments = self._apply(b"ss", [name.encode(), mode.encode()])
        arguments += [*self._array(properties), (ord("a"), b"(sa(sv))")]
        for other, theirs in beside:
            arguments += [(ord("r"), b"sa(sv)"), (ord("s"), other.encode()), *self._array(theirs), (-1, None)]
        return self._call(_OBJECT, MANAGER, member, [*arguments, (-1, None)])

    def _array(self, properties: Sequence[Property]) -> list[Any]:
        """Properties as an argument of type `a(sv)`."""
        arguments: list[Any] = [(ord("a"), b"(sv)")]
        for key, signature, value in properties:
            arguments += [(ord("r"), b"sv"), (ord("s"), key.encode()), (ord("v"), signature.encode())]
            arguments += self._apply(signature.encode(), [_encoded(value)])
            arguments += [(-1, None), (-1, None)]
        return [*arguments, (-1, None)]

    def _call(self, path: bytes, interface: bytes, member: str, arguments: list[Any]) -> Any:  # noqa: ANN401
        try:
            reply = self._connection.call_method(_SYSTEMD, path, interface, member.encode(), arguments)
        except Exception as error:
            raise self._translated(error) from error
        return _decoded(reply.body)

    def get(self, path: str, interface: bytes, name: str, signature: str) -> Any:  # noqa: ANN401
        """One property of one unit. Raises BusError."""

        def once() -> Any:  # noqa: ANN401
            arguments = (_SYSTEMD, path.encode(), interface, name.encode(), signature.encode())
            try:
                return _decoded(self._connection.get_property(*arguments))
            except Exception as error:
                raise self._translated(error) from error

        return _repeated(once)

    def ping(self) -> None:
        """Have the bus itself answer, which does not ask the manager. Raises BusError."""
        try:
            self._connection.call_method(_BUS, b"/org/freedesktop/DBus", _BUS, b"GetId", [])
        except Exception as error:
            raise self._translated(error) from error

    def subscribe(self) -> None:
        """Have the manager send its signals, also if it does so already. Raises BusError."""
        try:
            self.call("Subscribe")
        except BusError as error:
            if error.name != _SUBSCRIBED:
                raise

    def listen(self, member: str) -> None:
        """From now on the manager's signal `member` is queued for `signals`. Raises BusError."""
        try:
            self._connection.match_signal(_SYSTEMD, _OBJECT, MANAGER, member.encode(), _ignore)
        except Exception as error:
            raise self._translated(error) from error

    def signals(self, *members: str, deadline: float | None) -> Iterator[tuple[Any, ...]]:
        """The bodies of signals as they come. `deadline` is on time.monotonic(); its expiry raises BusTimeout."""
        while True:
            try:
                message = self._connection.process()
                if any(message.is_signal(MANAGER, member.encode()) for member in members):
                    message.process_reply(False)  # noqa: FBT003 - the binding's signature
                    body = _decoded(message.body)
                    yield tuple(body) if isinstance(body, list | tuple) else (body,)
                elif message.is_empty():
                    left = 3600.0 if deadline is None else deadline - time.monotonic()
                    if left <= 0:
                        raise BusTimeout(f"no {members[0]} signal within the deadline")
                    self._connection.wait(int(left * 1_000_000))
            except GtrunError:
                raise
            except Exception as error:
                raise self._translated(error) from error

    def close(self) -> None:
        """Close the connection, which also gives up its references to units."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @staticmethod
    def _translated(error: Exception) -> GtrunError:
        from pystemd.dbusexc import DBusBaseError  # noqa: PLC0415

        if not isinstance(error, DBusBaseError):
            raise error
        name = getattr(error, "err_name", "") or type(error).__name__
        message = getattr(error, "err_message", "")
        return BusError(str(_decoded(name)), str(_decoded(message)) or str(error).strip())
