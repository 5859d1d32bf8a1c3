"""Credentials before the start and in the unit: what cannot be loaded is refused, and no message tells a secret."""

import os
import sys
import time
from pathlib import Path

import pytest

from gtrun import credentials
from gtrun.errors import LaunchFailed
from gtrun.model import Credential, Issue, Limits, ResolvedRun

SECRET = "hush-0451"  # noqa: S105 - of nobody
LONGEST = 131_071


def run_with(wanted, variables=None, path=("/usr/bin", "/bin")):
    return ResolvedRun(
        token="0" * 32, agent="me", rig="here", issue=Issue(key="1", title="t"), unit="task-1.service",
        identifier="task-1.00000000", board="/b", terminal_labels=(), terminal_glyphs=(), backend="x", command=("x",),
        prompt="", workdir="/", environment={}, path=path, time_limit=None, stop_timeout=30.0, limits=Limits(),
        keep=1.0, dispatched_at=0.0, dispatched_by="me", credentials=wanted, credential_environment=variables or {},
    )  # fmt: skip


@pytest.fixture
def file(tmp_path):
    def write(data, mode=0o600, name="token"):
        path = tmp_path / name
        path.write_bytes(data)
        path.chmod(mode)
        return Credential(path=str(path))

    return write


@pytest.mark.parametrize(
    ("data", "value"),
    [(b"x\n", "x"), (b"x\n\n", "x\n"), (b"x\r\n", "x\r"), (b"x", "x"), (b"\n", ""), ("é🦀".encode(), "é🦀")],
)
def test_a_variable_loses_the_line_end_of_its_file(file, data, value):
    run = run_with({"t": file(data), "other": file(b"y", name="other")}, {"GH_TOKEN": "t"})
    assert credentials.check(run, systemd=252) == {"GH_TOKEN": value}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (SECRET.encode() + b"\0", "it has a NUL character"),
        (SECRET.encode() + b"\xff", "it is not UTF-8"),
        (SECRET.encode() * (LONGEST // len(SECRET)), "it is too long for the kernel"),
    ],
)
def test_what_cannot_be_a_variable_is_refused(file, data, why):
    assert credentials.check(run_with({"t": file(data)}), systemd=252) == {}
    with pytest.raises(LaunchFailed, match=why) as caught:
        credentials.check(run_with({"t": file(data)}, {"GH_TOKEN": "t"}), systemd=252)
    assert SECRET not in caught.value.message + caught.value.hint + repr(caught.value.__context__)


def test_what_cannot_be_loaded_is_refused(file, tmp_path):
    def refusal(*wanted):
        with pytest.raises(LaunchFailed) as caught:
            credentials.check(run_with({f"c{n}": one for n, one in enumerate(wanted)}), systemd=252)
        assert SECRET not in caught.value.message + caught.value.hint
        return caught.value.message

    os.mkfifo(tmp_path / "fifo")
    assert "No such file or directory" in refusal(Credential(path="/nowhere/token"))
    assert "is not a regular file" in refusal(Credential(path=str(tmp_path / "fifo")))
    assert "cannot be loaded: Is a directory" in refusal(Credential(path=str(tmp_path)))
    assert "is empty" in refusal(file(b""))
    assert "every account can read" in refusal(file(SECRET.encode(), 0o604))
    assert "cannot stand in a unit" in refusal(Credential(path=f"{tmp_path}/a\\"))
    assert "more than 1048576 bytes for all of them" in refusal(file(b"x" * 700_000), file(b"x" * 700_000, name="b"))
    assert "more than 1048576 bytes for all of them" in refusal(file(b"x" * 1_048_577))
    assert "the program 'pass-not-there' is not there" in refusal(Credential(command=("pass-not-there",)))
    encrypted = Credential(path=file(SECRET.encode(), 0o644).path, encrypted=True)
    assert "a user manager of systemd 252 cannot decrypt it: that takes 258" in refusal(encrypted)
    assert credentials.check(run_with({"t": encrypted}, {"A": "t"}), systemd=258) == {}


class TestGather:
    @pytest.fixture
    def unit(self, tmp_path):
        """The folders that a unit would have."""
        loaded, made = tmp_path / "loaded", tmp_path / "gtrun.task-1.00000000"
        loaded.mkdir()
        made.mkdir(0o700)
        (loaded / "file").write_bytes(b"from-a-file\n")
        return {"CREDENTIALS_DIRECTORY": str(loaded), "RUNTIME_DIRECTORY": f"/other:{made}", "HOME": str(tmp_path)}

    def gather(self, unit, script, **variables):
        command = Credential(command=("sh", "-c", script))
        run = run_with({"file": Credential(path="/f"), "made": command}, variables)
        return credentials.gather(run, unit)

    def test_without_credentials_nothing_is_said(self, unit):
        assert credentials.gather(run_with({}), unit) == {}

    def test_what_systemd_loaded_is_left_where_it_is(self, unit):
        run = run_with({"file": Credential(path="/f")}, {"A": "file"})
        loaded = unit["CREDENTIALS_DIRECTORY"]
        assert credentials.gather(run, unit) == {"CREDENTIALS_DIRECTORY": loaded, "A": "from-a-file"}

    def test_what_a_command_prints_lies_beside_it(self, unit, tmp_path):
        gathered = self.gather(unit, "cat; echo loud >&2; echo $HOME", A="made")
        folder = tmp_path / "gtrun.task-1.00000000"
        assert gathered == {"CREDENTIALS_DIRECTORY": str(folder), "A": str(tmp_path)}
        assert {path.name: path.read_text() for path in folder.iterdir()} == {
            "file": "from-a-file\n",
            "made": f"{tmp_path}\n",
        }
        assert (folder / "made").stat().st_mode & 0o777 == 0o400

    @pytest.mark.parametrize(
        ("script", "why"),
        [
            (f"echo {SECRET}; exit 3", "/sh ended with 3$"),
            (f"echo {SECRET}; kill -9 $$", "/sh ended with -9$"),
            ("exit 0", "/sh printed nothing$"),
            ("exec yes", "/sh printed too much$"),
        ],
    )
    def test_a_command_that_does_not_do(self, unit, script, why):
        with pytest.raises(LaunchFailed, match=why) as caught:
            self.gather(unit, script)
        assert SECRET not in caught.value.message

    def test_a_command_that_hangs_is_ended_with_its_children(self, unit, tmp_path, monkeypatch):
        monkeypatch.setattr(credentials, "_COMMAND_WAIT", 0.5)
        began = time.monotonic()
        with pytest.raises(LaunchFailed, match=r"did not end within 0\.5 s"):
            self.gather(unit, f"sleep 600 & echo $! > {tmp_path}/child; wait")
        assert time.monotonic() - began < 60
        child, deadline = Path("/proc", (tmp_path / "child").read_text().strip(), "exe"), time.monotonic() + 10
        while child.exists() and time.monotonic() < deadline:
            os.sched_yield()
        assert not child.exists()

    def test_a_child_that_keeps_the_pipe_is_not_waited_for(self, unit):
        began = time.monotonic()
        self.gather(unit, "sleep 30 & echo x")
        assert time.monotonic() - began < 15

    def test_a_unit_whose_folder_was_taken_away(self, unit):
        with pytest.raises(LaunchFailed, match=r"the unit has no folder gtrun\.task-1\.00000000"):
            self.gather(unit | {"RUNTIME_DIRECTORY": "/other"}, "echo x")


def test_the_interpreter_is_this_one():
    """A program that is named by its path is not looked for."""
    run = run_with({"t": Credential(command=(sys.executable,))}, path=())
    assert credentials.check(run, systemd=252) == {}
