"""A GitHub for the tests, with a proxy before it: two servers that nobody here wrote, started once."""

import itertools
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from gtrun.board.github.board import GitHubBoard
from gtrun.board.github.token import Token
from gtrun.model import GitHubPlace
from harness.between import Answer, Between
from harness.github import USERS, emulate, hand, prism

_HANDS = itertools.count()


_SECONDS = len("2026-11-30T18:00:00")


@pytest.fixture(scope="session")
def state() -> Iterator[str]:
    with emulate() as emulated:
        yield emulated.url


@pytest.fixture(scope="session")
def contract() -> Iterator[str]:
    with prism() as url:
        yield url


@pytest.fixture(scope="session")
def shared(state: str) -> Iterator[Between]:
    with Between(state) as between:
        yield between


@pytest.fixture
def between(shared: Between) -> Iterator[Between]:
    """The way to GitHub. Whatever a test asked, GitHub's own description has it."""
    shared.clear()
    shared.breaches.clear()
    yield shared
    assert shared.breaches == []


class Repo:
    """A repository of admin's, and what people do in it by themselves: past the proxy, without our client."""

    def __init__(self, state: str, name: str, cache: Path, proxy: str = "") -> None:
        self._state = state
        self.proxy = proxy
        self.name = f"admin/{name}"
        self.cache = cache
        self._commented: set[int] = set()
        self.do("POST", "/user/repos", {"name": name, "auto_init": True})

    def do(self, method: str, path: str, content: object = None, *, user: str = "admin") -> Any:
        request = urllib.request.Request(  # noqa: S310 - this very machine
            self._state + path,
            method=method,
            data=None if content is None else json.dumps(content).encode(),
            headers={"Authorization": f"Bearer {hand(user, next(_HANDS))}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - as above
            data = answer.read()
        return json.loads(data) if data else None

    def issue(self, title: str = "an issue", *, user: str = "admin", **fields: object) -> int:
        return self.do("POST", f"/repos/{self.name}/issues", {"title": title, **fields}, user=user)["number"]

    def edit(self, number: int, **fields: object) -> None:
        self.do("PATCH", f"/repos/{self.name}/issues/{number}", fields)

    def comment(self, number: int, body: str, *, user: str = "admin") -> int:
        self._commented.add(number)
        return self.do("POST", f"/repos/{self.name}/issues/{number}/comments", {"body": body}, user=user)["id"]

    def bodies(self, number: int) -> list[str]:
        found = self.do("GET", f"/repos/{self.name}/issues/{number}/comments?per_page=100")
        return [comment["body"] for comment in found]

    def list_comments(self, method: str, path: str) -> Answer | None:
        """GitHub's list of all comments of a repository: emulate takes its address for that of an issue.

        https://docs.github.com/rest/issues/comments#list-issue-comments-for-a-repository
        """
        where = urlsplit(path)
        if (method, where.path) != ("GET", f"/repos/{self.name}/issues/comments"):
            return None
        query = dict(parse_qsl(where.query))
        found = [
            comment
            for number in self._commented
            for comment in self.do("GET", f"/repos/{self.name}/issues/{number}/comments?per_page=100")
            if comment["updated_at"][:_SECONDS] >= query["since"][:_SECONDS]  # GitHub's have no fractions
        ]
        found.sort(key=lambda one: (one[f"{query['sort']}_at"], one["id"]), reverse=query["direction"] == "desc")
        page, size = int(query.get("page", "1")), int(query["per_page"])
        links = []
        for name, other in (("next", page + 1), ("last", -(-len(found) // size))):
            if page * size < len(found):
                links.append(f'<{self.proxy}{where.path}?{urlencode({**query, "page": other})}>; rel="{name}"')
        body = json.dumps(found[(page - 1) * size : page * size]).encode()
        return 200, {"content-type": "application/json", **({"link": ", ".join(links)} if links else {})}, body

    def pull(self, body: str, *, base: str = "main", user: str = "admin", **fields: object) -> int:
        branch = f"b{self.issue('takes a number for the name of a branch')}"
        content = {"title": "a change", "head": branch, "base": base, "body": body, **fields}
        return self.do("POST", f"/repos/{self.name}/pulls", content, user=user)["number"]

    def merge(self, number: int) -> None:
        self.do("PUT", f"/repos/{self.name}/pulls/{number}/merge", {})

    def collaborator(self, user: str) -> None:
        self.do("PUT", f"/repos/{self.name}/collaborators/{user}", {"permission": "push"})


@pytest.fixture
def repo(state: str, between: Between, request: pytest.FixtureRequest, tmp_path: Path) -> Repo:
    """A repository of this test's alone."""
    name = "".join(char if char.isalnum() else "-" for char in request.node.name)[:80]
    return Repo(state, name, tmp_path / "cache", between.url)


class Opener:
    """Opens the repository as a board, through the proxy; what it opens is closed with the test."""

    def __init__(self, between: Between, repo: Repo) -> None:
        self._between = between
        self._repo = repo
        self.opened: list[GitHubBoard] = []

    def __call__(self, *, user: str = "admin", wait: float = 20.0, cache: bool = False, **place: Any) -> GitHubBoard:
        where = GitHubPlace(**({"api": self._between.url, "repo": self._repo.name} | place))
        token = Token(USERS[user], "the test")
        board = GitHubBoard.open(where, token, wait=wait, cache=self._repo.cache if cache else None)
        self.opened.append(board)
        return board


@pytest.fixture
def open_board(between: Between, repo: Repo) -> Iterator[Opener]:
    opener = Opener(between, repo)
    yield opener
    for board in opener.opened:
        board.close()
