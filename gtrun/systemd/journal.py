"""What a run printed, read from the journal by its identifier."""

import contextlib
import json
import re
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gtrun.model import Run
from gtrun.process import capture, pause, quick, stream
from gtrun.text import plain

_MESSAGE_SUPPRESSED = "a596d6fe7bfa4994828e72309e95d61e"  # SD_MESSAGE_JOURNAL_DROPPED of sd-messages(3)
_STABLE = 0.08  # seconds between two readings that must agree
_MESSAGE_PROCESS_EXIT = "98e322203f7a4ed290d09fe03c09fe15"  # SD_MESSAGE_UNIT_PROCESS_EXIT
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_STATUS = re.compile(r"[0-9]{1,3}")  # any account can write such an entry of its own, with whatever in it
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def _select(run: Run, uid: int) -> list[str]:
    """By identifier, which travels with the stream, and by user, which nobody else can have."""
    return [f"SYSLOG_IDENTIFIER={run.resolved.identifier}", f"_UID={uid}"]


def _text(entry: bytes | str) -> str:
    message = json.loads(entry).get("MESSAGE") or ""
    if isinstance(message, list):  # what is not printable UTF-8 comes as its bytes
        message = bytes(message).decode("utf-8", "replace")
    return plain(_COLOUR.sub("", message).expandtabs())


def lines(run: Run, uid: int, *, last: int | None = None) -> list[str]:
    """What is in the journal of one run by now, oldest first, each line escaped."""
    return since(run, uid, "", last=last)[0]


def since(run: Run, uid: int, cursor: str, *, last: int | None = None) -> tuple[list[str], str]:
    """`lines` after a cursor (from the beginning, for an empty one), and the cursor behind them."""
    where = [f"--after-cursor={cursor}"] if cursor else []
    count = [f"--lines={last}"] if last is not None else []
    argv = ["journalctl", "--quiet", "--all", "--output=json", "--output-fields=MESSAGE", *where, *count]
    entries = capture([*argv, *_select(run, uid)], deadline=60).output.splitlines()
    behind = str(json.loads(entries[-1])["__CURSOR"]) if entries else cursor
    return [_text(entry) for entry in entries], behind


def last_lines(identifier: str, uid: int, count: int, *, seconds: float) -> Iterator[list[str]]:
    """The last lines with that identifier, read as they are, again and again until two readings agree.

    journald may still be writing when the process is gone. It stops after `seconds`, or where the journal cannot be
    read by this account, which gives nothing.
    """
    deadline, before, found = time.monotonic() + seconds, None, None
    argv = ["journalctl", "--quiet", "--all", "--output=cat", f"--lines={count}"]
    while before is None or found != before:
        before = found
        left = deadline - time.monotonic()
        printed = quick([*argv, f"SYSLOG_IDENTIFIER={identifier}", f"_UID={uid}"], seconds=left) if left > 0 else None
        if printed is None:
            return
        found = printed.decode("utf-8", "replace").split("\n")[:-1]
        if found != before:
            yield found
            pause(min(_STABLE, max(0.0, deadline - time.monotonic())))


def last_line_at(run: Run, uid: int) -> float | None:
    """When the run's last line came, on CLOCK_MONOTONIC in seconds, 0 if it has none; None if that cannot be told."""
    for match, found in ((_select(run, uid), True), ([f"_UID={uid}"], False)):
        argv = ["journalctl", "--quiet", "--boot", "--output=json", "--output-fields=_UID", "--lines=1", *match]
        printed = quick(argv, seconds=10.0)
        if printed and printed.strip():
            return int(json.loads(printed)["__MONOTONIC_TIMESTAMP"]) / 1_000_000 if found else 0.0
    return None  # not even what the manager itself says of this account: it may not read it


class Remains(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal still knows of a run. Instants are in seconds since the epoch; None is not known."""

    last_line_at: float | None = None
    is_of_another_boot: bool = False
    exit_code: int | None = None
    signal: str | None = None
    exited_at: float | None = None


def remains(run: Run, uid: int) -> Remains:
    """The last line of a run that nobody closed out, and what its manager said of the end of its main process."""
    last = _newest(*_select(run, uid))
    of_manager = (f"USER_UNIT={run.resolved.unit}", f"USER_INVOCATION_ID={run.run}", f"_UID={uid}")
    end = _newest(f"MESSAGE_ID={_MESSAGE_PROCESS_EXIT}", *of_manager)
    newest = _newest(*of_manager)
    boot = _BOOT_ID.read_text().strip().replace("-", "")
    how, status = str(end.get("EXIT_CODE", "")), str(end.get("EXIT_STATUS", ""))
    return Remains(
        last_line_at=_instant(last),
        is_of_another_boot=any(one and one["_BOOT_ID"] != boot for one in (last, newest)),
        exit_code=int(status) if how == "exited" and _STATUS.fullmatch(status) else None,
        signal=_signal_name(status) if how in {"killed", "dumped"} else None,
        exited_at=_instant(end),
    )


def _signal_name(status: str) -> str | None:
    """As $EXIT_STATUS has it; the manager's entry has the number."""
    if not _STATUS.fullmatch(status):
        return None
    with contextlib.suppress(ValueError):
        return signal.Signals(int(status)).name.removeprefix("SIG")
    return status


def _newest(*matches: str) -> dict[str, Any]:
    argv = ["journalctl", "--quiet", "--output=json", "--output-fields=EXIT_CODE,EXIT_STATUS", "--lines=1", *matches]
    printed = quick(argv, seconds=10.0)
    found: dict[str, Any] = json.loads(printed) if printed and printed.strip() else {}
    return found


def _instant(entry: Mapping[str, Any]) -> float | None:
    return int(entry["__REALTIME_TIMESTAMP"]) / 1_000_000 if entry else None


def await_line(run: Run, uid: int, cursor: str) -> None:
    """Wait until there is a line after the cursor."""
    where = [f"--after-cursor={cursor}"] if cursor else []
    argv = ["journalctl", "--quiet", "--follow", "--output=cat", "--lines=all", *where, *_select(run, uid)]
    with contextlib.closing(stream(argv)) as found:
        next(found, None)


def follow(run: Run, uid: int, *, last: int | None, until: int | None) -> Iterator[str]:
    """Lines as they come, from the beginning or the last few, until descriptor `until` is readable and all is read.

    journalctl that follows can miss the last lines for longer than anybody waits, so those are read once more.
    """
    count, cursor = f"--lines={'all' if last is None else last}", ""
    argv = ["journalctl", "--quiet", "--all", "--follow", "--output=json", "--output-fields=MESSAGE", count]
    for entry in stream([*argv, *_select(run, uid)], until=until):
        cursor = str(json.loads(entry)["__CURSOR"])
        yield _text(entry)
    found, cursor = since(run, uid, cursor, last=None if cursor else last)
    while found:
        yield from found
        found, cursor = since(run, uid, cursor)


def suppressed(run: Run, uid: int) -> int:
    """How many lines journald dropped during the run for the whole user manager: its rate limit knows only that.

    They are told in the system's journal, which root and the group systemd-journal can read; others get 0. What comes
    by `driver` is journald's own: anybody can write the same message by another way.
    """
    if run.begun_at is None:
        return 0
    window = [f"--since=@{int(run.begun_at)}"]
    if run.ended_at is not None:
        window.append(f"--until=@{int(run.ended_at) + 60}")
    argv = ["journalctl", "--quiet", "--output=json", *window, "_TRANSPORT=driver", f"MESSAGE_ID={_MESSAGE_SUPPRESSED}"]
    return sum(_dropped(capture(argv).output.splitlines(), f"user@{uid}.service"))


def _dropped(entries: Iterable[str], unit: str) -> Iterator[int]:
    for entry in entries:
        fields = json.loads(entry)
        if str(fields.get("MESSAGE", "")).endswith(unit):
            yield int(fields.get("N_DROPPED") or 0)
