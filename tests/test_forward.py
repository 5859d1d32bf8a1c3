"""What travels to the claim host and back: packed for any shell, framed against everything else on the way."""

import base64
import json
import os
import re
import signal
import socket
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtrun import forward
from gtrun.account import Account
from gtrun.config import ClaimConfig, Fleet, Rig
from gtrun.config.schema import BoardConfig
from gtrun.errors import ConfigError, ManagerSilent, NoManager, UsageError
from gtrun.forward import COMMANDS, HATCHES, Order, is_here, nonce_of, pack, unpack
from gtrun.model import Origin

ORIGIN = Origin(by="carol@laptop", source="/home/carol/fleet.toml")
# what sys.argv can hold: text, and bytes that are none (PEP 383)
ARGUMENT = st.binary(max_size=60).map(lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
NONCE = "0123456789abcdef" * 2
BEGIN, END = forward.begin_line(NONCE).encode(), forward.end_line(NONCE, 7).encode()


def order(*arguments: str, environment: dict[str, str] | None = None, version: int = 1) -> Order:
    return Order(arguments=arguments, environment=environment or {}, origin=ORIGIN, version=version)


class TestPayload:
    @given(
        st.sampled_from(sorted(COMMANDS)),
        st.lists(ARGUMENT, max_size=5),
        st.dictionaries(st.sampled_from(HATCHES), ARGUMENT),
    )
    def test_it_is_plain_and_comes_back_byte_for_byte(self, command, arguments, environment):
        sent = order(command, *arguments, environment=environment)
        payload = pack(sent)
        assert re.fullmatch(r"[A-Za-z0-9_-]+", payload)
        assert unpack(payload) == sent

    def test_no_two_have_the_same_nonce(self):
        payloads = [pack(order("dispatch")) for _ in range(2)]
        assert nonce_of(payloads[0]) != nonce_of(payloads[1])
        assert all(re.fullmatch("[0-9a-f]{32}", nonce_of(payload)) for payload in payloads)

    @pytest.mark.parametrize(
        "sent",
        [
            order(),
            order("--debug"),
            order("run", "x"),
            order("board", "add", "x"),
            order("forwarded", "x"),
            order("--config", "/x", "dispatch"),
            order("dispatch", environment={"LD_PRELOAD": "x"}),
        ],
        ids=str,
    )
    def test_what_is_never_forwarded_is_refused(self, sent):
        with pytest.raises(UsageError, match="never forwarded") as caught:
            unpack(pack(sent))
        assert caught.value.code == 2

    def test_debug_may_come_before_the_command(self):
        assert unpack(pack(order("--debug", "show", "1"))).arguments == ("--debug", "show", "1")

    @pytest.mark.parametrize(
        "payload",
        ["", "x", NONCE, NONCE + "!!!", NONCE + "aGk", NONCE + "W10", NONCE + base64.urlsafe_b64encode(b"{}").decode(),
         "z" + pack(order("show"))[1:], NONCE[:31] + "é" + "aGk"],
    )  # fmt: skip
    def test_what_is_none_is_refused(self, payload):
        with pytest.raises(UsageError, match="for gtrun alone"):
            unpack(payload)

    def test_another_version_is_said(self):
        with pytest.raises(ConfigError, match="another version"):
            unpack(pack(order("show", "1", version=2)))
        with pytest.raises(ConfigError, match="another version"):  # whatever else that has changed
            unpack(NONCE + base64.urlsafe_b64encode(json.dumps({"version": 3}).encode()).decode())


class TestHere:
    @pytest.mark.parametrize(
        ("host", "account", "here"),
        [
            (None, "anybody", True),
            ("ops@localhost", "ops", True),
            ("ops@LocalHost", "ops", True),
            ("ops@127.0.0.1", "ops", True),
            ("ops@127.0.1.1", "ops", True),
            (f"ops@{socket.gethostname()}", "ops", True),
            ("ops@localhost", "carol", False),
            ("ops@192.0.2.1", "ops", False),  # TEST-NET-1: nobody's
            ("ops@no-such-host.invalid", "ops", False),
        ],
    )
    def test_by_account_and_name(self, host, account, here):
        assert is_here(ClaimConfig(lock="/l", host=host), account) is here

    def test_by_machine_id_whatever_the_name(self, monkeypatch):
        monkeypatch.setattr(forward, "machine_id", lambda: "a" * 32)
        assert is_here(ClaimConfig(lock="/l", host="ops@192.0.2.1", machine_id="a" * 32), "ops")
        assert not is_here(ClaimConfig(lock="/l", host="ops@localhost", machine_id="b" * 32), "ops")
        assert not is_here(ClaimConfig(lock="/l", host="ops@localhost", machine_id="a" * 32), "carol")


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges) if a != b]


CONTENT = st.lists(
    st.one_of(st.binary(max_size=30), st.sampled_from([BEGIN[:-1], BEGIN[1:], b"gtrun-", b"\n", END[:-4]])), max_size=8
).map(b"".join).filter(lambda data: END[:-3] not in data)  # fmt: skip


class TestFrame:
    @given(st.binary(max_size=50), CONTENT, st.binary(max_size=50), st.lists(st.integers(0, 1000), max_size=6))
    def test_what_is_inside_comes_out_whole_however_it_is_cut(self, before, content, after, cuts):
        written: dict[int, bytes] = {1: b"", 2: b""}

        def write(number: int, data: bytes) -> None:
            written[number] += data

        heard = forward._Heard(NONCE, write)
        for chunk in chunks(before + BEGIN + content + END, cuts):
            assert not heard(1, chunk)
        heard(1, after)
        assert (written[1], heard.code) == (content, None)
        assert heard(2, BEGIN + END) is True
        assert (written[2], heard.code) == (b"", 7)

    def test_nothing_is_held_back_that_is_no_end(self):
        written = []
        heard = forward._Heard(NONCE, lambda number, data: written.append((number, data)))
        heard(1, b"hello from .bashrc" + BEGIN + b"started task-1.service\n")
        heard(2, BEGIN + b"a warning\nand ha")
        assert written == [(1, b"started task-1.service\n"), (2, b"a warning\n")]
        heard(2, b"lf a line\n")
        assert written[-1] == (2, b"and half a line\n")

    def test_stderr_cannot_move_a_cursor(self):
        written = []
        heard = forward._Heard(NONCE, lambda _, data: written.append(data))
        for byte in BEGIN + "é\x1b[2J\u202e\r\xff".encode("utf-8", "surrogatepass") + END:
            heard(2, bytes([byte]))
        assert b"".join(written) == "é\\x1b[2J\\u202e\\x0dÿ".encode()

    def test_the_last_words_of_ssh_are_kept(self):
        heard = forward._Heard(NONCE, lambda *_: None)
        heard(2, b"x" * 9000 + b"\nops@box1: Permission denied \x1b(publickey).\r\n\n")
        assert heard.before == "ops@box1: Permission denied \\x1b(publickey)."
        assert not heard.has_begun


@pytest.fixture
def there(tmp_path, monkeypatch):
    """Runs a command there, where `ssh` is a script; gives the code and what was written."""
    (tmp_path / "bin").mkdir()
    account = Account("carol", 1000, 1000, str(tmp_path), str(tmp_path), str(tmp_path))
    claim = ClaimConfig(lock="/l", host="ops@box1")
    fleet = Fleet(
        source="/f.toml", board=BoardConfig(path="/b"), claim=claim, rigs={"here": Rig(name="here")}, agents={}
    )
    monkeypatch.setattr(forward, "_BUSY_WAIT", 9.0)
    monkeypatch.setattr(forward, "_DEAD_WAIT", 1.0)
    monkeypatch.setattr(forward, "_BEGIN_WAIT", 3.0)
    monkeypatch.setattr(forward, "_PATIENCE", 0.0)

    def run(script: str, *arguments: str, starts: str | None = "gtrun live 142") -> tuple[int, bytes, bytes]:
        ssh = tmp_path / "bin/ssh"
        # the last word of the last argument is the payload, its first 32 characters the nonce
        ssh.write_text(f"#!/bin/bash\ncd {tmp_path}\neval last=\\${{$#}}\np=${{last##* }}; n=${{p:0:32}}\n{script}\n")
        ssh.chmod(0o755)
        written = {1: b"", 2: b""}

        def write(number: int, data: bytes) -> None:
            written[number] += data

        environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
        words = arguments or ("dispatch", "alice", "142")
        code = forward.run_there(fleet, account, words, environment, write, starts=starts)
        return code, written[1], written[2]

    return run


FRAMED = 'printf "gtrun-$n begin\\n" | tee /dev/stderr; %s; printf "gtrun-$n end %d\\n" | tee /dev/stderr'


class TestConversation:
    def test_output_and_code_are_the_commands_own(self, there):
        banner = "echo Welcome; echo oops >&2; "
        script = banner + FRAMED % ("printf out; printf 'err\\n' >&2", 255) + "; echo bye; echo bye >&2; exit 0"
        assert there(script) == (255, b"out", b"err\n")

    def test_a_program_that_keeps_the_pipes_open_is_not_waited_for(self, there, tmp_path):
        try:
            assert there(FRAMED % ("sleep 77 & echo $! >pid", 0)) == (0, b"", b"")
            with pytest.raises(NoManager, match="permission denied"):
                there("sleep 77 & echo $! >>pid; echo permission denied >&2; exit 255")
        finally:
            for pid in (tmp_path / "pid").read_text().split():
                os.kill(int(pid), signal.SIGKILL)

    def test_a_connection_that_is_not_let_in_is_tried_again(self, there):
        closed = "{ echo 'Connection closed by 10.0.0.1 port 22' >&2; exit 255; }\n"
        code, out, err = there(f"echo x >>tries; [ $(wc -l <tries) = 3 ] || {closed}" + FRAMED % ("echo done", 0))
        assert (code, out) == (0, b"done\n")
        assert err == b"gtrun: ops@box1 lets nobody in, trying again for 9 s\n"

    def test_and_in_the_end_that_is_said(self, there):
        with pytest.raises(
            NoManager, match=r"^ops@box1 is not to be reached over SSH: ssh: connect to host box1 p"
        ) as caught:
            there("echo 'ssh: connect to host box1 port 22: Connection refused' >&2; exit 255")
        assert (type(caught.value), caught.value.code) == (NoManager, 69)
        assert caught.value.hint.startswith("is sshd running there?")

    @pytest.mark.parametrize(
        "last",
        [
            "Connection to box1 closed by remote host.",
            "client_loop: send disconnect: Broken pipe",
            "Permission denied (publickey).",
            "Host key verification failed.",
            "Timeout, server box1 not responding.",
        ],
    )
    def test_anything_else_is_not_tried_again(self, there, tmp_path, last):
        with pytest.raises(NoManager, match=re.escape(last.rstrip("."))):
            there(f"echo x >>tries; echo '{last}' >&2; exit 255")
        assert (tmp_path / "tries").read_text() == "x\n"

    @pytest.mark.parametrize("stream", [1, 2])
    def test_nothing_is_tried_again_once_it_has_begun(self, there, tmp_path, stream):
        script = (
            f"echo x >>tries; printf \"gtrun-$n begin\\n\" >&{stream}; echo 'Connection closed by 10.0.0.1 port 22' >&2"
        )
        with pytest.raises(ManagerSilent, match=r"was lost: it may have started there$") as caught:
            there(script + "; exit 255")
        assert caught.value.hint == "ask: gtrun live 142"
        assert (tmp_path / "tries").read_text() == "x\n"

    def test_it_must_begin_in_time(self, there):
        with pytest.raises(ManagerSilent, match=r"^ops@box1 did not begin within 3 s: it may have started there$"):
            there("echo Welcome; exec sleep 77")

    def test_and_may_then_take_longer(self, there):
        assert there(FRAMED % ("sleep 3.2", 9)) == (9, b"", b"")

    def test_no_gtrun_there(self, there):
        with pytest.raises(
            ConfigError, match=r"^ops@box1 cannot execute gtrun: bash: line 1: gtrun: not found$"
        ) as caught:
            there("echo 'bash: line 1: gtrun: not found' >&2; exit 127")
        assert caught.value.hint == "install gtrun there, or set gtrun in [claim] of /f.toml to its path there"

    def test_too_large(self, there, tmp_path):
        with pytest.raises(UsageError, match="too large to forward"):
            there("echo x >>tries", "dispatch", "alice", "1" * 100_000)
        assert not (tmp_path / "tries").exists()

    def test_what_is_no_dispatch_cannot_have_started_anything(self, there):
        with pytest.raises(NoManager, match=r"^the connection to ops@box1 was lost$"):
            there('printf "gtrun-$n begin\\n"', "show", "1", starts=None)
