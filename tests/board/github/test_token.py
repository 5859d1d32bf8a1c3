"""Where the token comes from, and where it does not go."""

import os
import pwd
from pathlib import Path

import pytest

from gtrun.board.github import token as module
from gtrun.board.github.place import host, key_of, locate, site
from gtrun.board.github.reading import priority_of
from gtrun.board.github.token import Token, find
from gtrun.board.github.trust import Trust
from gtrun.errors import BoardUnavailable
from gtrun.model import GitHubPlace
from gtrun.names import IssueKey

PLACE = GitHubPlace(repo="o/r")
ENTERPRISE = GitHubPlace(repo="o/r", api="https://git.example.com/api/v3")


def secret(path: Path, text: str = "from-file\n", mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.fixture
def gh(tmp_path: Path) -> dict[str, str]:
    """A gh that knows a token for github.com alone, and the environment that finds it."""
    program = tmp_path / "bin" / "gh"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\n[ "$*" = "auth token --hostname github.com" ] && echo from-gh\n')
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:/usr/bin:/bin"}


def test_the_first_that_there_is(tmp_path: Path, gh: dict[str, str]) -> None:
    secret(tmp_path / "github-token", "from-credential\n")
    place = GitHubPlace(repo="o/r", token_file=secret(tmp_path / "file"))
    environment = {
        **gh,
        "CREDENTIALS_DIRECTORY": str(tmp_path),
        "GH_TOKEN": "from-gh-token",
        "GITHUB_TOKEN": "from-github-token",
    }
    found = []
    for gone in ("CREDENTIALS_DIRECTORY", "file", "GH_TOKEN", "GITHUB_TOKEN", ""):
        token = find(place, environment)
        found.append((token.reveal(), token.source))
        if gone == "file":
            (tmp_path / "file").unlink()
        environment.pop(gone, None)
    assert found == [
        ("from-credential", "the systemd credential github-token"),
        ("from-file", f"token_file {tmp_path}/file"),
        ("from-gh-token", "the environment variable GH_TOKEN"),
        ("from-github-token", "the environment variable GITHUB_TOKEN"),
        ("from-gh", "gh auth token --hostname github.com"),
    ]


def test_an_enterprise_server_gets_no_token_of_github_com(gh: dict[str, str]) -> None:
    environment = {**gh, "GH_TOKEN": "for-github-com"}
    with pytest.raises(BoardUnavailable, match=r"no token for git\.example\.com") as raised:
        find(ENTERPRISE, environment)
    assert "GH_ENTERPRISE_TOKEN" in raised.value.hint
    assert find(ENTERPRISE, {**environment, "GITHUB_ENTERPRISE_TOKEN": "mine"}).reveal() == "mine"
    with pytest.raises(BoardUnavailable):
        find(PLACE, {"PATH": "/nonexistent", "GH_ENTERPRISE_TOKEN": "not for github.com"})


def test_a_token_file_below_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = pwd.getpwuid(os.geteuid())
    home = pwd.struct_passwd((*real[:5], str(tmp_path), real[6]))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: home)
    secret(tmp_path / "t")
    assert find(GitHubPlace(repo="o/r", token_file="~/t"), {}).reveal() == "from-file"  # noqa: S106


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o644, 0o666])
def test_a_token_that_everybody_can_read_or_write_is_refused(mode: int, tmp_path: Path) -> None:
    place = GitHubPlace(repo="o/r", token_file=secret(tmp_path / "t", mode=mode))
    with pytest.raises(BoardUnavailable, match="every account can read or write token_file") as raised:
        find(place, {"GH_TOKEN": "other"})
    assert raised.value.hint == f"chmod o= {tmp_path}/t"
    (tmp_path / "t").chmod(0o640)
    assert find(place, {}).reveal() == "from-file"


def test_a_link_a_folder_and_a_pipe_are_refused(tmp_path: Path) -> None:
    target = secret(tmp_path / "t")
    (tmp_path / "link").symlink_to(target)
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, why in (("link", "is a link"), ("pipe", "not a regular file"), (".", "not a regular file")):
        with pytest.raises(BoardUnavailable, match=why):
            find(GitHubPlace(repo="o/r", token_file=str(tmp_path / name)), {})


@pytest.mark.parametrize("text", ["", "two words", "line\nline", "ünïcode", "\x00", "x" * 5000, "-----BEGIN\nKEY"])
def test_what_is_no_token_is_refused_without_being_shown(text: str, tmp_path: Path) -> None:
    place = GitHubPlace(repo="o/r", token_file=secret(tmp_path / "t", text))
    with pytest.raises(BoardUnavailable, match="no token for GitHub") as raised:
        find(place, {})
    chain = f"{raised.value!r}{raised.value.__cause__!r}{raised.value.__context__!r}"
    assert not text.strip() or text not in chain


def test_a_missing_file_is_named_where_there_is_no_other_token(tmp_path: Path) -> None:
    place = GitHubPlace(repo="o/r", token_file=str(tmp_path / "none"))
    with pytest.raises(BoardUnavailable, match=r"token_file .*: No such file or directory"):
        find(place, {"PATH": "/nonexistent"})
    assert find(place, {"GH_TOKEN": "other"}).reveal() == "other"


def test_a_gh_that_hangs_or_talks_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GH_WAIT", 0.5)
    program = tmp_path / "gh"
    for script in ("sleep 30", "yes", "exit 1", "kill $$"):
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        with pytest.raises(BoardUnavailable, match="no token"):
            find(PLACE, {"PATH": f"{tmp_path}:/usr/bin:/bin"})


def test_a_token_has_no_text() -> None:
    token = Token("secret", "the test")
    assert f"{token} {token!r}" == "Token(from the test) Token(from the test)"
    assert not hasattr(token, "__dict__")


def test_sites_and_names() -> None:
    assert (site(PLACE), host(PLACE)) == ("github.com", "github.com")
    assert site(GitHubPlace(repo="o/r", api="https://api.acme.ghe.com")) == "acme.ghe.com"
    assert GitHubPlace(repo="o/r", api="https://git.example.com/api/v3").web == "https://git.example.com/o/r"
    port = GitHubPlace(repo="o/r", api="https://git.example.com:8443/api/v3")
    assert (site(port), host(port)) == ("git.example.com:8443", "git.example.com")
    assert locate(PLACE, IssueKey("7")) == ("o/r", 7)
    assert locate(PLACE, IssueKey("O/R#7")) == ("o/r", 7)
    assert locate(PLACE, IssueKey("x/y#7")) == ("x/y", 7)
    assert [locate(PLACE, IssueKey(key)) for key in ("", "0", "07", "x#7", "../..#7", "o/r#", "7/../8")] == [None] * 7
    assert (key_of(PLACE, "O/R", 7), key_of(PLACE, "X/y", 7)) == ("7", "x/y#7")


@pytest.mark.parametrize(
    ("login", "association", "believed"),
    [
        ("x", "OWNER", True),
        ("x", "MEMBER", True),
        ("x", "CONTRIBUTOR", False),
        ("x", "NONE", False),
        ("x", "", False),
        ("Bot[bot]", "NONE", True),
        ("me", "NONE", True),
        ("ME", "NONE", True),
        ("owner", "NONE", False),
        ("", "NONE", False),
        ("", "OWNER", True),
    ],
)
def test_who_is_believed(login: str, association: str, believed: bool) -> None:  # noqa: FBT001
    trust = Trust(("OWNER", "MEMBER", "bot[bot]"), lambda: "me")
    assert trust.believes(login, association) is believed
    assert Trust((), lambda: None).believes("", "NONE") is False


def test_priorities() -> None:
    place = GitHubPlace(repo="o/r", priority_labels=("now", "Soon", "later"))
    named = {(): 2, ("later", "SOON"): 1, ("P0",): 2, ("now", "later"): 0}
    assert {labels: priority_of(labels, place) for labels in named} == named
