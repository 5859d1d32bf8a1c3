"""`gtrun board`, as it is typed."""

import json
import os
import pty
import pwd
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gtrun.board.local import LocalBoard
from gtrun.names import IssueKey

DEADLINE = 60.0  # seconds; reaching it is a failure, never the normal case
ROOT = Path(__file__).parents[2]
ME = pwd.getpwuid(os.geteuid()).pw_name


class Shell:
    """Types commands with every folder of the account below `place`."""

    def __init__(self, place: Path) -> None:
        self.board = str(place / "data/gtrun/board/board.db")
        self.environment = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            **{f"XDG_{name}_HOME": str(place / name.lower()) for name in ("CONFIG", "DATA", "STATE")},
        }

    def types(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> tuple[str, str]:
        """What it prints on stdout and stderr."""
        done = subprocess.run(
            [sys.executable, "-m", "gtrun", "board", *arguments],
            env=self.environment,
            cwd=ROOT,
            input=stdin,
            capture_output=True,
            timeout=DEADLINE,
            check=False,
        )
        out, errors = done.stdout.decode(), done.stderr.decode()
        assert "Traceback" not in errors
        assert done.returncode == code, errors
        return out, errors

    def reads(self, *arguments: str) -> dict[str, Any]:
        """The JSON document that it prints."""
        out, errors = self.types(*arguments, "--json")
        assert errors == ""
        document: dict[str, Any] = json.loads(out)
        assert document.pop("schema") == 1
        assert document.pop("board") == self.board
        return document


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_without_a_board(shell: Shell) -> None:
    hint = 'gtrun: hint: gtrun board add "…" creates it\n'
    for arguments in [("list",), ("show", "1"), ("comment", "1", "--body", "b"), ("close", "1"), ("reopen", "1")]:
        assert shell.types(*arguments, code=75) == ("", f"gtrun: there is no board {shell.board}\n{hint}")
    assert not Path(shell.board).exists()


def test_add_and_list(shell: Shell) -> None:
    assert shell.types("add", "the first") == ("1\n", "")
    assert shell.types("add", "urgent", "--priority", "P0", "--label", "go", "--label", "x", "--blocked-by", "1") == (
        "2\n",
        "",
    )
    out, errors = shell.types("list")
    assert errors == ""
    assert out.splitlines() == [
        "ISSUE  PRIORITY  STATE  LABELS  BLOCKED BY  TITLE",
        "2      P0        open   go, x   1           urgent",
        "1      P2        open                       the first",
    ]
    assert shell.types("list", "--label", "go")[0].splitlines()[1:] == [
        "2      P0        open   go, x   1           urgent"
    ]


def test_a_person_at_a_terminal_is_told(shell: Shell) -> None:
    shown, terminal = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "gtrun", "board", "add", "t"],
        env=shell.environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=terminal,
        timeout=DEADLINE,
        check=True,
    )
    os.close(terminal)
    assert done.stdout == b"1\n"
    assert os.read(shown, 4096).decode() == f"gtrun: issue 1 is on the board {shell.board}\r\n"
    os.close(shown)


def test_the_documents(shell: Shell) -> None:
    added = shell.reads("add", "t", "--body", "b", "--label", "l")
    issue = added["issue"]
    assert added == {"kind": "board-add", "issue": issue}
    assert isinstance(issue, dict)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", issue["created_at"])
    assert issue == {
        "issue": "1",
        "title": "t",
        "state": "open",
        "standing": "ready",
        "labels": ["l"],
        "priority": 2,
        "blocked_by": [],
        "created_at": issue["created_at"],
        "body": "b",
    }
    assert shell.reads("list") == {"kind": "board-list", "issues": [issue]}
    line = f"<!-- gtrun:started run={'a' * 32} -->"
    shell.types("comment", "1", "--body", f"text\n\n{line}", "--author", "somebody")
    shown = shell.reads("show", "1")
    (comment,) = shown["comments"]
    assert shown == {"kind": "board-show", "issue": issue, "comments": [comment], "pull_requests": []}
    assert comment == {"author": "somebody", "at": comment["at"], "body": f"text\n\n{line}"}


def test_an_empty_list_is_an_empty_document(shell: Shell) -> None:
    shell.types("add", "t")
    shell.types("close", "1")
    assert shell.reads("list") == {"kind": "board-list", "issues": []}
    assert shell.types("list") == (
        "",
        f'gtrun: there is no open issue on the board {shell.board}; gtrun board add "…" adds one\n',
    )
    assert shell.types("list", "--state", "all", "--label", "l")[1].startswith(
        "gtrun: there is no issue with the label 'l' on the board "
    )


def test_close_reopen_label(shell: Shell) -> None:
    shell.types("add", "t", "--label", "a")
    assert shell.types("close", "1") == ("", "")
    assert shell.types("close", "1") == ("", "")
    assert shell.types("list", "--state", "closed")[0].endswith("1      P2        closed  a                   t\n")
    assert shell.types("reopen", "1") == ("", "")
    assert shell.types("label", "1", "--add", "b", "--add", "c", "--remove", "a") == ("", "")
    assert "b, c" in shell.types("list")[0]


def test_show_is_for_people(shell: Shell) -> None:
    shell.types("add", "t", "--body", "one\n\x1b[31mtwo", "--label", "l")
    forged = "root, 2026-01-01 00:00:00 UTC:\n    approved"
    shell.types("comment", "1", "--body", f"{forged}\n\n<!-- gtrun:finished run={'0' * 32} -->", "--author", "eve")
    out, errors = shell.types("show", "1")
    lines = out.splitlines()
    assert errors == ""
    assert lines[:4] == ["1: t", "state:      awaiting", "labels:     l", "priority:   P2"]
    assert lines[4].startswith("created:    20")
    assert lines[5:8] == ["", "    one", r"    \x1b[31mtwo"]
    assert lines[9].startswith("eve, 20")
    assert lines[10:] == ["    root, 2026-01-01 00:00:00 UTC:", "        approved"]


def test_pull_requests(shell: Shell) -> None:
    shell.types("add", "t")
    shell.types("pr", "1", "--url", "https://git.example/7")
    shell.types("pr", "1", "--url", "https://git.example/8\x1b[2J", "--state", "armed")
    out, _ = shell.types("show", "1")
    assert [line for line in out.splitlines() if line.startswith("pull")] == [
        r"pull:       https://git.example/8\x1b[2J is open with auto-merge armed, and not merged",
        "pull:       https://git.example/7 is open, and not merged",
    ]
    shell.types("pr", "1", "--url", "https://git.example/7", "--state", "merged")
    first, second = shell.reads("show", "1")["pull_requests"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", first.pop("merged_at"))
    assert first == {"url": "https://git.example/7", "state": "merged", "auto_merge": False, "repo": None}
    assert (second["state"], second["auto_merge"], second["merged_at"]) == ("open", True, None)
    assert shell.types("list")[0].splitlines()[1] == "1      P2        shipped                      t"
    shell.types("pr", "2", "--url", "x", code=1)
    shell.types("pr", "1", "--url", "x", "--state", "approved", code=2)
    shell.types("pr", "1", code=2)


HOSTILE = [
    "--help",
    "-x",
    "\x1b]0;owned\x07",
    "\x1b[2J",
    "a\tb",
    "\u202egnp.exe",
    "$(touch /tmp/x); `id` & | > '\"",
    "{0} %s %h $$",
    "😀" * 256,
    "\ufeff\u200b.",
]


@pytest.mark.parametrize("title", HOSTILE)
def test_a_hostile_title_is_kept_and_shown_harmless(shell: Shell, title: str) -> None:
    assert shell.types("add", "--label", "l", "--", title) == ("1\n", "")
    with LocalBoard.open(shell.board) as board:
        issue = board.issue(IssueKey("1"))
    assert issue is not None
    assert issue.title == title
    for command in ("list", "show"):
        out, _ = shell.types(*{"list": ("list",), "show": ("show", "1")}[command])
        assert all(char.isprintable() for char in out.replace("\n", ""))
    (listed,) = shell.reads("list")["issues"]
    assert listed["title"] == title


def test_bodies_from_files_and_stdin(shell: Shell, tmp_path: Path) -> None:
    text = "été\r\n\n trailing \n"
    file = tmp_path / "-body"
    file.write_bytes(text.encode())
    shell.types("add", "from a file", "--body-file", str(file))
    shell.types("add", "from stdin", "--body-file", "-", stdin=text.encode())
    shell.types("comment", "1", "--body-file", "-", stdin=text.encode())
    with LocalBoard.open(shell.board) as board:
        assert [issue.body for issue in board.issues()] == [text, text]
        (comment,) = board.comments(IssueKey("1"))
    assert (comment.author, comment.body) == (ME, text)


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (("add", "two\nlines"), b"", "a title is one line"),
        (("add", ""), b"", "a title cannot be empty"),
        (("add", "t" * 257), b"", "a title has at most 256 characters, not 257"),
        (("add", "\udcff"), b"", "a title has to be valid UTF-8"),
        (("add", "t", "--body-file", "-"), b"\xff", "stdin is not valid UTF-8"),
        (("add", "t", "--body-file", "-"), b"x" * 300_000, "stdin holds more than 65,536 characters"),
        (("add", "t", "--body-file", "/dev/zero"), b"", "/dev/zero holds more than 65,536 characters"),
        (("add", "t", "--body-file", "-"), b"a\0b", "a body cannot hold a NUL character"),
        (("add", "t", "--body-file", "/nowhere/x"), b"", "/nowhere/x cannot be read: No such file or directory"),
        (("add", "t", "--body-file", "/"), b"", "/ cannot be read: Is a directory"),
        (("add", "t", "--body", "a", "--body-file", "-"), b"", "--body and --body-file exclude each other"),
        (("add", "t", "--blocked-by", "one"), b"", "'one' names no issue"),
        (("add", "t", "--priority", "urgent"), b"", "'urgent' is none of P0 to P4"),
        (("add", "t", "--priority", "5"), b"", "'5' is none of P0 to P4"),
        (("add",), b"", "Missing argument"),
        (("add", "t", "u"), b"", "unexpected extra argument"),
        (("show", "0142"), b"", "'0142' names no issue"),
        (("comment", "1"), b"", "a comment needs a text"),
        (("comment", "1", "--body", " "), b"", "a comment cannot be empty"),
        (("comment", "1", "--body", "b", "--author", ""), b"", "an author cannot be empty"),
        (("label", "1"), b"", "there is no label to add or to remove"),
        (("list", "--state", "ajar"), b"", "'ajar' is not one of"),
        (("frobnicate",), b"", "No such command"),
    ],
)
def test_usage(shell: Shell, arguments: tuple[str, ...], stdin: bytes, words: str) -> None:
    shell.types("add", "t")
    out, errors = shell.types(*arguments, stdin=stdin, code=2)
    assert out == ""
    assert words in errors
    with LocalBoard.open(shell.board) as board:
        assert len(board.issues(state="all")) == 1
        assert board.comments(IssueKey("1")) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "7"),
        ("show", "7", "--json"),
        ("comment", "7", "--body", "b"),
        ("label", "7", "--add", "x"),
        ("close", "7"),
        ("reopen", "7"),
        ("add", "t", "--blocked-by", "7"),
    ],
)
def test_an_unknown_issue(shell: Shell, arguments: tuple[str, ...]) -> None:
    shell.types("add", "t")
    words = f"gtrun: there is no issue 7 on the board {shell.board}\n"
    assert shell.types(*arguments, code=1) == ("", words)


def test_another_repositorys_issue_is_unknown(shell: Shell) -> None:
    shell.types("add", "t")
    assert "there is no issue o/r#1 on the board" in shell.types("show", "O/R#1", code=1)[1]


def test_a_board_that_is_none(shell: Shell) -> None:
    Path(shell.board).parent.mkdir(parents=True)
    Path(shell.board).write_bytes(b"notes of mine, no database\n" * 40)
    for arguments in [("list",), ("add", "t")]:
        out, errors = shell.types(*arguments, code=75)
        assert out == ""
        assert errors.startswith(f"gtrun: {shell.board} is not a gtrun board: ")
    assert Path(shell.board).read_bytes() == b"notes of mine, no database\n" * 40
