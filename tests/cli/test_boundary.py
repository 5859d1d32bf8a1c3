"""The boundary: every way a command can end is an exit code and at most two lines, also with broken streams."""

import os
import shlex
import subprocess
import sys

import pytest

from gtrun.cli import boundary
from gtrun.errors import ConfigError, GtrunError
from gtrun.exits import Exit


@pytest.fixture
def home(tmp_path):
    """An environment with a home of its own: no fleet.toml, no board."""
    return {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path),
            "XDG_STATE_HOME": str(tmp_path), "PATH": os.environ["PATH"]}  # fmt: skip


def shell(script, environment):
    """Run a shell script in which `gtrun` is this very package."""
    function = f'gtrun() {{ {shlex.quote(sys.executable)} -m gtrun "$@"; }}\n'
    return subprocess.run(
        ["/bin/bash", "-c", function + script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (GtrunError("it broke"), 1, "gtrun: it broke\n"),
        (
            ConfigError("a\nb\x1b[31m", hint="mend \u202eit"),
            78,
            "gtrun: a\ngtrun: b\\x1b[31m\ngtrun: hint: mend \\u202eit\n",
        ),
        (GtrunError("no", code=Exit.NO_BOARD), 75, "gtrun: no\n"),
        (KeyboardInterrupt(), 130, "gtrun: interrupted\n"),
    ],
)
def test_an_error_is_its_code_and_its_lines(error, code, said, monkeypatch, capsys):
    def fail(_arguments, _forwarded):
        raise error

    monkeypatch.setattr(boundary, "_command", fail)
    assert boundary.guarded([]) == code
    assert capsys.readouterr().err == said


def test_a_bug_is_3_and_shows_its_traceback_only_on_demand(monkeypatch, capsys):
    def fail(_arguments, _forwarded):
        raise ZeroDivisionError("\x1b[31mred")

    monkeypatch.setattr(boundary, "_command", fail)
    assert boundary.guarded(["info"]) == 3
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert "\x1b" not in told
    assert "ZeroDivisionError" in told
    assert boundary.guarded(["--debug", "info"]) == 3
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error(home):
    done = shell("gtrun --help | true; echo ${PIPESTATUS[0]}", home)
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.parametrize("command", ["info", "ps --watch"])
def test_output_that_cannot_be_written_is_said(command, home):
    done = shell(f"gtrun {command} >/dev/full", home)
    assert done.returncode == 1
    *others, last = done.stderr.splitlines()
    assert last == "gtrun: cannot write to the standard output: No space left on device"
    assert [line for line in others if not line.startswith(("gtrun: me:", "gtrun: hint:"))] == []


def test_the_runner_is_not_for_people(home):
    done = shell("gtrun run /no/record", home)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "gtrun: hint: start a run with: gtrun dispatch AGENT ISSUE"


def test_a_refusal_keeps_its_code_when_output_is_broken(home):
    done = shell("gtrun dispatch me 007 >/dev/full", home)
    assert done.returncode == 2
    assert done.stderr.startswith("gtrun: '007' names no issue\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_no_harm(closed, home):
    done = shell(f"exec 3>&1; gtrun board add x >/dev/null; gtrun board list {closed}; echo $? >&3", home)
    assert done.stdout.splitlines()[-1] == "0"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["dispatch", "me", "-1"], "gtrun: No such option: -1"),
        (["show"], "gtrun: Missing argument 'ISSUE'"),
        (["logs", "1", "-n", "x"], "gtrun: Invalid value for '--lines' / '-n': 'x' is not a valid int range"),
        (["--bogus\x1b[31m"], "gtrun: No such option: --bogus\\x1b[31m"),
    ],
)
def test_what_cannot_be_typed_so_is_one_line_and_a_hint(arguments, line, capsys):
    assert boundary.guarded(arguments) == 2
    out, err = capsys.readouterr()
    first, hint = err.splitlines()
    assert (out, first) == ("", line)
    assert hint.startswith("gtrun: hint: how it is typed: gtrun ")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["ps", "--config", "f"], "--config and --debug come before the command: gtrun --config FILE ps"),
        (["dispatch", "me", "1", "--debug"], "--config and --debug come before the command: gtrun --config FILE ps"),
        (["frobnicate"], "gtrun --help lists them"),
        (["dispach", "me", "1"], "did you mean dispatch?"),
    ],
)
def test_what_other_tools_take_says_where_it_is_here(arguments, hint, capsys):
    assert boundary.guarded(arguments) == 2
    assert capsys.readouterr().err.splitlines()[1] == f"gtrun: hint: {hint}"


@pytest.mark.parametrize("arguments", [[], ["quota"], ["preflight"], ["board"], ["units"]])
def test_no_line_of_the_commands_is_cut(arguments, capsys):
    boundary.guarded([*arguments, "--help"])
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


def test_no_command_at_all_shows_the_commands(capsys):
    assert boundary.guarded([]) == 2
    assert "Commands:" in capsys.readouterr().err
