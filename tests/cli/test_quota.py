"""`gtrun quota` and `gtrun preflight`, as they are typed by an account without a user manager."""

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Shell:
    """Types commands with every folder of the account below `place`, and no manager there."""

    def __init__(self, place: Path) -> None:
        self.file = place / "state/gtrun/quota.json"
        self.environment = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TZ": "Asia/Kolkata",
            "XDG_RUNTIME_DIR": str(place),
            **{f"XDG_{name}_HOME": str(place / name.lower()) for name in ("CONFIG", "DATA", "STATE")},
        }

    def types(self, *arguments: str, code: int = 0, **more: str) -> tuple[str, str]:
        """What it prints on stdout and stderr."""
        done = subprocess.run(
            [sys.executable, "-m", "gtrun", *arguments],
            env=self.environment | more, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr

    def agents(self) -> list[dict[str, object]]:
        """The table, as a document."""
        document = json.loads(self.types("quota", "--json")[0])
        assert (document["schema"], document["kind"]) == (1, "quota")
        told: list[dict[str, object]] = document["agents"]
        return told


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_an_agent_is_ready_until_it_is_said_to_be_dark(shell: Shell) -> None:
    assert shell.types("quota") == ("AGENT  STATE  RESETS  SOURCE\nme     ready  -\n", "")
    assert shell.types("quota", "--dark") == ("", "")
    assert shell.types("preflight", "quota", "me") == ("pass\n", "")
    out, errors = shell.types("quota", "set", "me", "--until", "90m")
    assert out == ""
    assert errors.startswith("gtrun: me gets no work until ")
    (told,) = shell.agents()
    assert (told["agent"], told["state"], told["source"]) == ("me", "dark", "gtrun quota set")
    until = datetime.fromisoformat(str(told["resets_at"])).timestamp()
    assert 5300 < until - time.time() <= 5400
    assert shell.types("quota", "--dark") == ("me\n", "")
    assert shell.types("preflight", "quota", "me", code=9)[0].startswith("refused: the quota of me is used up until 20")
    assert shell.types("preflight", "quota", "me", DISPATCH_IGNORE_QUOTA="1") == ("pass\n", "")
    assert shell.types("quota", "clear", "me") == ("", "gtrun: me can be given work\n")
    assert not shell.file.exists()
    assert shell.types("quota", "--dark") == ("", "")
    assert shell.types("preflight", "quota", "me") == ("pass\n", "")


@pytest.mark.parametrize("text", ["1h 30min", "2d", "2m", "1.5h"])
def test_a_duration_is_from_now(text: str, shell: Shell) -> None:
    shell.types("quota", "set", "me", "--until", text)
    assert shell.agents()[0]["state"] == "dark"


def test_an_instant_with_its_zone_and_one_without(shell: Shell) -> None:
    day = datetime.fromtimestamp(time.time() + 3 * 86400, tz=UTC).date()
    for text, told in ((f"{day}T12:00:00Z", f"{day}T12:00:00Z"), (f"{day}T12:00", f"{day}T06:30:00Z")):
        shell.types("quota", "set", "me", "--until", text)
        assert shell.agents()[0]["resets_at"] == told


@pytest.mark.parametrize(
    "text",
    ["", "soon", "0s", "12", "-5m", "2020-01-01T00:00:00Z", "9999-12-31T23:59:59", "0001-01-01", "33d", "2026-13-01"],
)
def test_what_is_no_instant_or_too_far_is_usage(text: str, shell: Shell) -> None:
    _, errors = shell.types("quota", "set", "me", f"--until={text}", code=2)
    assert f"gtrun: {text!r} is " in errors
    assert not shell.file.exists()


def test_an_unknown_agent_is_usage(shell: Shell) -> None:
    for command in (["set", "bob", "--until", "2h"], ["clear", "bob"]):
        assert "'bob'" in shell.types("quota", *command, code=2)[1]
    assert "'bob'" in shell.types("preflight", "quota", "bob", code=2)[1]
    assert "'bob'" in shell.types("preflight", "duplicate", "bob", "1", code=2)[1]


def test_a_file_that_is_not_understood_is_unknown_not_dark_and_lets_pass(shell: Shell) -> None:
    shell.file.parent.mkdir(parents=True, mode=0o700)
    shell.file.write_text('{"exhausted": true, "resets_at": "2199-01-01T00:00:00Z", "source": "\\u001b[31m"}')
    (told,) = shell.agents()
    why = "resets_at is 2199-01-01T00:00:00Z, more than 32 days from now"
    assert told == {"agent": "me", "state": "unknown", "resets_at": None, "source": why}
    assert shell.types("quota", "--dark") == ("", "")
    assert shell.types("preflight", "quota", "me") == ("pass\n", f"gtrun: quota guard failed open: {why}\n")


def test_terminal_escapes_of_the_agents_stay_escapes(shell: Shell) -> None:
    shell.file.parent.mkdir(parents=True, mode=0o700)
    until = datetime.fromtimestamp(time.time() + 86400, tz=UTC).isoformat()
    shell.file.write_text(json.dumps({"exhausted": True, "resets_at": until, "source": "\x1b[31mred\n"}))
    for command, code in ((["quota"], 0), (["preflight", "quota", "me"], 9)):
        out, _ = shell.types(*command, code=code)
        assert "\\x1b[31mred\\x0a" in out
        assert "\x1b" not in out


def test_without_a_manager_a_claim_cannot_be_told_and_a_duplicate_is_69(shell: Shell) -> None:
    out, errors = shell.types("preflight", "claim", "1")
    assert out == "pass\n"
    assert errors.startswith("gtrun: claim guard failed open: not every agent could be asked: me: no user manager of ")
    assert "no user manager of" in shell.types("preflight", "duplicate", "me", "1", code=69)[1]
