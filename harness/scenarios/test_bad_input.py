"""Bad input, damaged files and full disks: one clear line, the right code, nothing lost and nothing started."""

from __future__ import annotations

import re

import pytest

from harness.box import Box, Completed
from harness.control import Edit, Mutant, kill
from harness.scene import PACKAGE, Scene

WORKS = "exec sleep 60"
UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]")
HOSTILE = "\x1b[31mred\x07\x9b1mgnp\u202egnp\u200b"
FULL = "dd if=/dev/zero bs=4096 of=%s/filler 2>/dev/null || dd if=/dev/zero bs=1 of=%s/filler2 2>/dev/null || true"


def fills(scene: Scene, folder: str) -> None:
    """Leave not a byte free in a small file system."""
    scene.sh(FULL % (folder, folder))


def one_line(done: Completed) -> str:
    """The one line that says what is wrong; a second one may only be its hint."""
    lines = done.err.splitlines()
    assert lines, f"nothing was said: {done}"
    assert lines[0].startswith("gtrun: "), done.err
    assert [line for line in lines[1:] if not line.startswith("gtrun: hint: ")] == [], done.err
    return lines[0]


def test_names_of_issues(box: Box) -> None:
    scene = Scene(box)
    scene.runs_shell(WORKS)
    scene.issue()
    for name in (
        "../x",
        "1;reboot",
        "\uff11\uff14\uff12",  # digits, but not ASCII's
        "007",
        "9" * 300,
        "🔥",
        "",
        "0",
        "1 ",
        "1\n",
        "+1",
        "1.0",
        "#1",
        "a/b#0",
    ):
        said = one_line(scene.gtrun("dispatch", "me", name, check=2))
        assert said.endswith("names no issue"), said
        assert not UNSAFE.search(said)
    assert one_line(scene.gtrun("dispatch", "me", "-1", check=2)) == "gtrun: No such option: -1"
    assert one_line(scene.gtrun("dispatch", "me", "--", "-1", check=2)) == "gtrun: '-1' names no issue"
    assert one_line(scene.gtrun("dispatch", "nobody", "1", check=2)).startswith("gtrun: there is no agent 'nobody' in ")
    missing = one_line(scene.gtrun("dispatch", "me", "4711", check=13))
    assert missing == "gtrun: refused: issue 4711 does not exist on the board"
    assert scene.units() == []
    assert scene.runs("1") == []


def nothing_moves_the_cursor(box: Box) -> None:
    """A title, body, comment and output full of terminal escapes: nothing that gtrun or systemctl shows has one."""
    scene = Scene(box)
    scene.runs_shell(f"printf '%s\\n' '{HOSTILE}'; touch ~/ready; exec sleep 60")
    python = (
        "import sys; from gtrun.board.local import LocalBoard; p = sys.argv[1]\n"
        "with LocalBoard.open(p, create=True) as board:\n"
        "    key = board.add('title')\n"
        "    board.post(key, author='x', body=sys.argv[2])\n"
        "    board._database.execute('UPDATE issues SET title = ?, body = ?', (sys.argv[3], sys.argv[2]))\n"
    )
    board = f"{scene.home}/.local/share/gtrun/board/board.db"
    box.run("/opt/gtrun/bin/python", "-c", python, board, f"{HOSTILE}\r\n\tbody", f"--{HOSTILE}\nx", account="alice")
    scene.gtrun("dispatch", "me", "1")
    scene.appears(f"{scene.home}/ready")
    shown = {
        "ps": scene.gtrun("ps"),
        "live": scene.gtrun("live", "1"),
        "show": scene.gtrun("show", "1"),
        "board list": scene.gtrun("board", "list"),
        "board show": scene.gtrun("board", "show", "1"),
        "logs": scene.gtrun("logs", "1"),
        "Description": scene.sh("systemctl --user show -P Description task-1.service"),
        "list-units": scene.sh("systemctl --user list-units --plain --full 'task-*'"),
    }
    shown["stop"] = scene.gtrun("stop", "1")
    for what, done in shown.items():
        text = done.out + done.err
        assert "gnp" in text or what == "stop", f"{what} shows too little: {text}"
        assert not UNSAFE.search(text), f"{what} shows a raw control character: {text!r}"
    assert "\\x1b[31mred" in shown["Description"].out


def test_nothing_moves_the_cursor(box: Box) -> None:
    nothing_moves_the_cursor(box)


def a_config_of_somebody_else_is_refused(box: Box) -> None:
    """78 for a file that another account owns, with a command that mends it."""
    scene = Scene(box)
    scene.runs_shell(WORKS)
    issue = scene.issue()
    file = f"{scene.home}/.config/gtrun/fleet.toml"
    box.run("chown", "1001", file)
    box.run("chmod", "0644", file)
    done = scene.gtrun("dispatch", "me", issue, check=None)
    assert done.code == 78, f"exit code {done.code}: {done.out}{done.err}"
    assert one_line(done) == f"gtrun: {file} belongs to user ID 1001, not to root or user ID 1000"
    assert f"hint: chown 1000 {file} (or move the file)" in done.err


def test_a_config_of_somebody_else_is_refused(box: Box) -> None:
    a_config_of_somebody_else_is_refused(box)


@pytest.mark.parametrize(
    ("place", "mode"), [("", "0777"), ("", "0770"), ("/fleet.toml", "0666"), ("/fleet.toml", "0620")]
)
def test_a_config_that_others_can_write(box: Box, place: str, mode: str) -> None:
    scene = Scene(box)
    scene.runs_shell(WORKS)
    issue = scene.issue()
    place = f"{scene.home}/.config/gtrun{place}"
    box.run("chmod", mode, place)
    done = scene.gtrun("dispatch", "me", issue, check=78)
    assert one_line(done).startswith(f"gtrun: {place} can be written by ")
    mend = re.search(r"hint: (.+) \(or move the file\)$", done.err, re.MULTILINE)
    assert mend, done.err
    scene.sh(mend[1])
    scene.gtrun("dispatch", "me", issue)
    scene.gtrun("stop", issue)


def test_a_damaged_ledger(box: Box) -> None:
    scene = Scene(box)
    scene.runs_shell("true")
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue, "--wait")
    ledger = f"{scene.state}/ledger.db"
    scene.sh(f"rm {ledger}*; head -c 9000 /dev/urandom >{ledger}; cp {ledger} ~/kept")
    done = scene.gtrun("dispatch", "me", issue)
    found = re.fullmatch(
        r"gtrun: the ledger was damaged: its bytes are kept in (\S+), and a new one was begun\n", done.err
    )
    assert found, done.err
    scene.sh(f"cmp {found[1]} ~/kept")
    scene.idle()
    assert len(scene.asks("show", issue)["attempts"]) == 1
    assert len(scene.runs(issue)) == 2  # the records do not depend on it


def test_a_ledger_of_a_newer_version(box: Box) -> None:
    scene = Scene(box)
    scene.runs_shell("true")
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue, "--wait")
    python = f"import sqlite3; d = sqlite3.connect('{scene.state}/ledger.db'); d.execute('PRAGMA user_version = 99')"
    box.run("/opt/gtrun/bin/python", "-c", python, account="alice")
    said = one_line(scene.gtrun("dispatch", "me", issue, check=1))
    assert said == f"gtrun: the ledger {scene.state}/ledger.db was written by a newer gtrun"
    assert len(list(box.path(f"{scene.state}/runs/closed").glob("*.jsonl"))) == 1
    assert list(box.path(scene.state).glob("*corrupt*")) == []


def test_unreadable_run_records(box: Box) -> None:
    """Garbage is moved aside with its bytes; a link and a FIFO are told; none of them hides the run that lives."""
    scene = Scene(box)
    scene.runs_shell(WORKS)
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    folder = f"{scene.state}/runs/open"
    scene.sh(
        f"cd {folder}; head -c 999 /dev/urandom >bad.jsonl; cp bad.jsonl ~/kept; "
        "mkfifo pipe.jsonl; ln -s /etc/passwd l.jsonl"
    )
    assert [run["issue"] for run in scene.asks("ps")["runs"]] == [issue]
    told = scene.gtrun("show", issue)
    for name in ("bad", "pipe", "l"):
        assert f"gtrun: the run record {folder}/{name}.jsonl is damaged\n" in told.err
    mended = scene.gtrun("reconcile", check=1)
    kept = re.search(rf"its bytes are kept in ({folder}/bad\.jsonl\.corrupt\S*)", mended.err)
    assert kept, mended.err
    scene.sh(f"cmp {kept[1]} ~/kept")
    scene.sh(f"rm {folder}/pipe.jsonl {folder}/l.jsonl")
    scene.gtrun("reconcile")
    scene.gtrun("stop", issue)
    assert scene.kinds(issue) == ["started", "finished"]


def a_damaged_board_fails_open(box: Box) -> None:
    """CASE 23: the board is left byte for byte, its commands say 75, a dispatch proceeds, and that is said and kept."""
    scene = Scene(box)
    scene.runs_shell("true")
    issue = scene.issue()
    board = f"{scene.home}/.local/share/gtrun/board/board.db"
    scene.sh(f"mv {board} ~/good; rm -f {board}-*; head -c 20000 /dev/urandom >{board}; cp {board} ~/kept")
    for command in (["list"], ["add", "x"], ["show", issue], ["comment", issue, "--body", "x"], ["close", issue]):
        one_line(scene.gtrun("board", *command, check=75))
    done = scene.gtrun("dispatch", "me", issue)
    said = [line for line in done.err.splitlines() if line.startswith("gtrun: board guard failed open: ")]
    assert len(said) == 1, f"{len(said)} lines say that the guard failed open: {done.err}"
    scene.idle()
    attempt = scene.asks("show", issue)["attempts"][-1]
    reason = said[0].removeprefix("gtrun: board guard failed open: ")
    assert attempt["verdicts"] == [{"guard": "board", "verdict": "open", "reason": reason}]
    assert f"board guard failed open: {reason}" in scene.gtrun("show", issue).out
    scene.sh(f"cmp {board} ~/kept; test ! -e {board}-wal; mv ~/good {board}")
    scene.gtrun("reconcile")
    assert scene.kinds(issue) == ["started", "finished"]
    assert scene.results(issue) == ["success"]


@pytest.mark.expects_fail_open
def test_a_damaged_board_fails_open(box: Box) -> None:
    a_damaged_board_fails_open(box)


@pytest.mark.parametrize("when", ["before the first dispatch", "after one"])
def test_a_full_disk_for_the_state(box: Box, when: str) -> None:
    """Not even a record fits: 1, nothing is started, and once there is room again it works."""
    scene = Scene(box)
    scene.runs_shell("true")
    issue = scene.issue()
    scene.sh(f"mkdir -p {scene.state}")
    box.mount_small(scene.state, 512 * 1024, "alice")
    if when == "after one":
        scene.gtrun("dispatch", "me", issue, "--wait")
    fills(scene, scene.state)
    said = one_line(scene.gtrun("dispatch", "me", issue, check=1))
    assert scene.state in said, said
    assert "no space" in said.lower(), said
    assert scene.units() == []
    assert scene.kinds(issue) == (["started", "finished"] if when == "after one" else [])
    scene.sh(f"rm {scene.state}/filler*")
    scene.gtrun("dispatch", "me", issue, "--wait")
    assert scene.results(issue)[-1] == "success"


def test_a_full_disk_for_the_board(box: Box) -> None:
    scene = Scene(box)
    folder = f"{scene.home}/.local/share/gtrun/board"
    scene.sh(f"mkdir -p {folder}")
    box.mount_small(folder, 256 * 1024, "alice")
    issue = scene.issue()
    fills(scene, folder)
    big = scene.box.run("gtrun", "board", "add", "--body-file", "-", "x", account="alice", stdin=b"x" * 60000, check=75)
    assert one_line(big) == f"gtrun: no space is left for the board {folder}/board.db"
    scene.sh(f"rm {folder}/filler*")
    assert [one["issue"] for one in scene.asks("board", "list")["issues"]] == [issue]
    assert scene.issue() == "2"


def test_a_full_runtime_folder(box: Box) -> None:
    """The manager cannot write the unit's file: its own reason, 1, and no record of a run that never was."""
    scene = Scene(box)
    scene.runs_shell("true")
    issue = scene.issue()
    box.run("mount", "-o", "remount,size=64k", "/run/user/1000")
    fills(scene, "/run/user/1000")
    said = one_line(scene.gtrun("dispatch", "me", issue, check=1))
    assert said.startswith(f"gtrun: the manager of alice refused task-{issue}.service: "), said
    assert scene.units() == []
    assert scene.runs(issue) == []
    assert list(box.path(f"{scene.state}/runs/open").iterdir()) == []
    scene.sh("rm /run/user/1000/filler*")
    scene.gtrun("dispatch", "me", issue, "--wait")
    assert scene.results(issue) == ["success"]


@pytest.mark.parametrize("place", ["state", "home"])
def test_a_read_only_disk(box: Box, place: str) -> None:
    scene = Scene(box)
    scene.runs_shell("true")
    issue = scene.issue()
    scene.sh(f"mkdir -p {scene.state}")
    inside = scene.state if place == "state" else scene.home
    box.remount_read_only(inside)
    said = one_line(scene.gtrun("dispatch", "me", issue, check=1))
    assert scene.state in said, said
    assert "read-only" in said.lower(), said
    assert scene.units() == []
    if place == "home":
        one_line(scene.gtrun("board", "add", "x", check=75))
        assert [one["issue"] for one in scene.asks("board", "list")["issues"]] == [issue]
    box.remount_writable(inside)
    scene.gtrun("dispatch", "me", issue, "--wait")
    assert scene.results(issue) == ["success"]


@pytest.mark.expects_traceback
def test_a_bug_of_ours(box: Box) -> None:
    """3, one line and what to do; the traceback only for --debug before the command, and never for a mere error."""
    scene = Scene(box)
    box.replace(
        "/opt/gtrun/lib/python3*/site-packages/gtrun/looking.py", "found, silent = [], []", "found, silent = 1 / 0"
    )
    done = scene.gtrun("ps", check=3)
    assert done.err.splitlines() == [
        "gtrun: this is a bug in gtrun: ZeroDivisionError('division by zero')",
        "gtrun: run it again as `gtrun --debug …` and report what it prints",
    ]
    told = scene.gtrun("--debug", "ps", check=3)
    assert told.err.startswith("Traceback (most recent call last):\n")
    assert told.err.endswith("ZeroDivisionError: division by zero\n")
    assert "Traceback" not in scene.gtrun("--debug", "show", "007", check=2).err


def test_the_agent_program_is_replaced_while_it_runs(box: Box) -> None:
    """The run that works goes on as it is, and ends as it does; the next one is the new program."""
    scene = Scene(box)
    scene.sh("mkdir -p ~/.local/bin; cp /bin/sleep ~/.local/bin/agent")
    scene.configure('[run]\ncommand = ["agent", "60"]\n')
    first, second = scene.issue(), scene.issue()
    scene.gtrun("dispatch", "me", first)
    box.wait_for("the started marker", lambda: scene.kinds(first) == ["started"])
    scene.sh("printf '#!/bin/sh\\nexit 3\\n' > ~/new; chmod 755 ~/new; mv ~/new ~/.local/bin/agent")
    scene.gtrun("dispatch", "me", second)
    box.wait_for("the end of the second", lambda: scene.results(second) == ["failed"])
    assert scene.units() == [f"task-{first}.service"]
    scene.gtrun("stop", first)
    assert scene.results(first) == ["stopped"]
    assert scene.kinds(first) == scene.kinds(second) == ["started", "finished"]


def test_the_clock_is_set_back_while_it_runs(box: Box) -> None:
    """By a day, as the close-out and all after it see it: the duration is that of another clock, and nothing lost."""
    scene = Scene(box)
    (main,) = box.path("/").glob(f"{PACKAGE}/cli/__init__.py".lstrip("/"))
    back = "import sys, time as _time\n_now = _time.time\nif sys.argv[1:2] not in (['run'], ['dispatch']):\n"
    main.write_text(f"{main.read_text()}\n{back}    _time.time = lambda: _now() - 86400.0\n")
    for compiled in main.parent.glob("__pycache__/__init__.*.pyc"):
        compiled.unlink()
    scene.runs_shell("echo said; sleep 1; echo 'hit your limit, try again in 2 hours'; exit 1", 'backend = "claude"')
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    scene.idle()
    (run,) = scene.runs(issue)
    assert run["ended_at"] < run["begun_at"]
    ending = run["ending"]
    assert ending["result"] == "quota", ending
    assert 1 <= ending["duration"] < 60, ending
    assert scene.kinds(issue) == ["started", "finished"]
    assert scene.open_records() == []
    assert scene.asks("logs", issue)["lines"][0] == "said"
    # by the clock that is now, it was never dark: nobody is stopped by a date that the wrong clock made
    scene.gtrun("dispatch", "me", issue)
    scene.idle()
    assert scene.gtrun("reconcile").out == "nothing is owed any more\n"


MUTANTS = [
    Mutant(
        "ownership of fleet.toml not checked",
        [Edit("config/trust.py", "if owner not in {0, uid}:\n        return f", "if False:\n        return f")],
        a_config_of_somebody_else_is_refused,
        r"exit code 0: started task-1\.service",
    ),
    Mutant(
        "title not escaped in the unit's description",
        [Edit("systemd/transient.py", "{plain(shorten(run.issue.title, _TITLE_LENGTH))}", "{run.issue.title}")],
        nothing_moves_the_cursor,
        r"Description shows too little: \[unprintable\]",  # what systemctl makes of such a text
    ),
    Mutant(
        "cells of tables not escaped",
        [Edit("cli/output.py", "[plain(str(cell)) for cell in row]", "[str(cell) for cell in row]")],
        nothing_moves_the_cursor,
        r"ps shows a raw control character",
    ),
    Mutant(
        "a guard that fails open does not say so",
        [Edit("asked.py", 'say(f"{name} guard failed open: {told.reason}")', "pass")],
        a_damaged_board_fails_open,
        r"0 lines say that the guard failed open",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
