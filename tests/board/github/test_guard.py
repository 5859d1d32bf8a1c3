"""What the board guard makes of a GitHub that answers only in part."""

import os
from pathlib import Path
from typing import cast

from gtrun.account import own
from gtrun.asked import Asked
from gtrun.config.parse import parse
from gtrun.exits import Exit
from gtrun.guards import Open, Refuse, Verdict, board
from gtrun.request import Request
from gtrun.survey import Team
from harness.between import Between, Fault
from harness.github import USERS
from tests.board.github.conftest import Repo
from tests.board.github.test_board import key


def asked(repo: Repo, number: int, folder: Path) -> Verdict:
    token = folder / "token"
    token.write_text(USERS["admin"])
    token.chmod(0o600)
    text = (
        f'[board]\nkind = "github"\nrepo = "{repo.name}"\napi = "{repo.proxy}"\ntoken_file = "{token}"\n'
        'terminal_labels = ["wontfix"]\n'
    )
    caller = own(os.environ)
    fleet = parse(text.encode(), "F", caller=caller.name, home=str(folder), board="/b", lock="/l")
    request = Request("me", key(number), caller, {}, "a test")
    return board.check(Asked(fleet, request, cast("Team", None)).question)


def test_what_is_over_needs_no_comments(repo: Repo, between: Between, tmp_path: Path) -> None:
    """A stranger can write so many that they are not read in time."""
    ready, closed, labelled = repo.issue(), repo.issue(), repo.issue(labels=["WontFix"])
    repo.edit(closed, state="closed")
    between.fail(Fault("GET", r"/issues/\d+/comments", status=403), times=9)
    for number in (closed, labelled):
        verdict = asked(repo, number, tmp_path)
        assert isinstance(verdict, Refuse)
        assert verdict.code is Exit.NOT_WORK
    assert isinstance(asked(repo, ready, tmp_path), Open)
