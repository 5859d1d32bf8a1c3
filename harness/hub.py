"""A GitHub in the network of a box (see `harness.github`), with one repository, and what people do in it."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.box import Box
from harness.github import USERS, Emulated, emulate
from harness.scene import Scene

REPO = "admin/works"
_CURL = (
    "curl",
    "--silent",
    "--show-error",
    "--write-out",
    "\n%{http_code}",
    "--header",
    "Content-Type: application/json",
)


@dataclass(frozen=True, slots=True)
class Hub:
    """GitHub for a box."""

    box: Box
    emulated: Emulated

    @property
    def board(self) -> str:
        """The board for a fleet.toml; each account has its token in its home."""
        return (
            f'[board]\nkind = "github"\nrepo = "{REPO}"\napi = "{self.emulated.url}"\ntoken_file = "~/github.token"\n'
        )

    def give_token(self, scene: Scene, user: str = "admin") -> None:
        """Put a user's token where the account looks for it."""
        self.box.write(f"{scene.home}/github.token", USERS[user], owner=scene.account, mode=0o600)

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Meanwhile it takes questions and does not answer."""
        self.emulated.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.emulated.process.send_signal(signal.SIGCONT)

    def do(self, method: str, path: str, content: object = None, *, user: str = "admin") -> Any:  # noqa: ANN401 - JSON
        """Ask it something as one of USERS; returns the answer."""
        body = ["--data-binary", "@-"] if content is not None else []
        argv = [*_CURL, "--request", method, "--header", f"Authorization: Bearer {USERS[user]}", *body]
        stdin = json.dumps(content).encode() if content is not None else b""
        data, _, status = self.box.run(*argv, f"{self.emulated.url}{path}", stdin=stdin).out.rpartition("\n")
        assert status.startswith("2"), f"{method} {path}: {status}: {data}"
        return json.loads(data) if data else None

    def issue(self, title: str = "Mend the roof", *, user: str = "admin", **fields: object) -> str:
        """Put an issue on the board; returns its number."""
        return str(self.do("POST", f"/repos/{REPO}/issues", {"title": title, **fields}, user=user)["number"])

    def edit(self, issue: str, **fields: object) -> None:
        """Change an issue."""
        self.do("PATCH", f"/repos/{REPO}/issues/{issue}", fields)

    def comment(self, issue: str, body: str, *, user: str = "admin") -> None:
        """Comment on an issue as somebody."""
        self.do("POST", f"/repos/{REPO}/issues/{issue}/comments", {"body": body}, user=user)

    def comments(self, issue: str) -> list[tuple[str, str]]:
        """The comments on an issue, oldest first: who wrote what."""
        found = self.do("GET", f"/repos/{REPO}/issues/{issue}/comments?per_page=100")
        return [(comment["user"]["login"], comment["body"]) for comment in found]

    def pull(self, body: str) -> str:
        """A pull request with that text; returns its number."""
        number = self.do("POST", f"/repos/{REPO}/issues", {"title": "for the name of a branch"})["number"]
        self.edit(number, state="closed")
        content = {"title": "a change", "head": f"b{number}", "base": "main", "body": body}
        return str(self.do("POST", f"/repos/{REPO}/pulls", content)["number"])

    def merge(self, pull: str) -> None:
        """Merge a pull request."""
        self.do("PUT", f"/repos/{REPO}/pulls/{pull}/merge", {})


@contextlib.contextmanager
def hub(box: Box) -> Iterator[Hub]:
    """An empty repository on a GitHub that only this box reaches."""
    with emulate(box) as emulated:
        there = Hub(box, emulated)
        there.do("POST", "/user/repos", {"name": REPO.partition("/")[2], "auto_init": True})
        yield there
