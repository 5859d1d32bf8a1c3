"""An entry in the journal, as journald would read it; and what is no journal is no obstacle."""

import contextlib
import socket
import threading
from pathlib import Path

import pytest

from gtrun.systemd import entry
from gtrun.systemd.kinds import Kind


def parsed(datagram):
    """The fields of an entry, by the rules of the protocol's page."""
    fields = {}
    while datagram:
        name, _, rest = datagram.partition(b"\n")
        length = int.from_bytes(rest[:8], "little")
        fields[name.decode()] = rest[8 : 8 + length].decode()
        assert rest[8 + length : 9 + length] == b"\n"
        datagram = rest[9 + length :]
    return fields


@pytest.fixture
def journal(tmp_path, monkeypatch):
    path = str(tmp_path / "socket")
    monkeypatch.setattr(entry, "_SOCKET", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(path)
        yield bound


def test_fields_arrive_as_they_are(journal):
    reason = "two\nGTRUN_VERDICT=pass\nlines, \u00e9 and \udcff"
    entry.write(Kind.GUARD_OPEN, "claim guard failed open: \x1b[31mx", GTRUN_GUARD="claim", GTRUN_REASON=reason)
    assert parsed(journal.recv(1 << 16)) == {
        "MESSAGE": "claim guard failed open: \x1b[31mx",
        "MESSAGE_ID": Kind.GUARD_OPEN.message_id,
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "gtrun",
        "GTRUN_GUARD": "claim",
        "GTRUN_REASON": reason.encode("utf-8", "replace").decode(),
    }


def test_a_long_message_is_cut(journal):
    entry.write(Kind.NOT_UPDATED, "x" * 1_000_000)
    assert len(parsed(journal.recv(1 << 16))["MESSAGE"]) == 8192


def test_so_is_a_field_since_nothing_arrives_of_what_is_too_large(journal):
    entry.write(Kind.NOT_UPDATED, "x", GTRUN_REASON="\u00e9" * 1_000_000)
    assert parsed(journal.recv(1 << 16))["GTRUN_REASON"] == "\u00e9" * 8192


def fill():
    """Nobody reads, and the queue of a datagram socket is short."""
    how = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
    with socket.socket(socket.AF_UNIX, how) as other, contextlib.suppress(BlockingIOError):
        while True:
            other.sendto(b"", entry._SOCKET)


def test_a_journal_that_is_busy_is_waited_for(journal, monkeypatch):
    monkeypatch.setattr(entry, "_WAIT", 20.0)
    journal.settimeout(20.0)
    fill()
    writer = threading.Thread(target=entry.write, args=(Kind.NOT_UPDATED, "arrives"))
    writer.start()
    while not (datagram := journal.recv(1 << 16)):
        pass
    writer.join()
    assert parsed(datagram)["MESSAGE"] == "arrives"


def test_a_journal_that_is_full_or_gone_changes_nothing(journal):
    fill()
    entry.write(Kind.NOT_UPDATED, "said elsewhere as well")
    journal.close()
    entry.write(Kind.NOT_UPDATED, "refused: nobody is bound to it")
    Path(entry._SOCKET).unlink()
    entry.write(Kind.NOT_UPDATED, "no such file")
    before = sorted(Path("/proc/self/fd").iterdir())
    entry.write(Kind.NOT_UPDATED, "no such file")
    assert sorted(Path("/proc/self/fd").iterdir()) == before
