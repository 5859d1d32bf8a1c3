"""Boards, where issues live: what the guard, the runner and the close-out need of one."""

from collections.abc import Iterable
from typing import Protocol

from gtrun.model import Comment, Issue, PullRequest
from gtrun.names import IssueKey

EMOJI_STYLE = "\ufe0f"
"""U+FE0F only chooses the colourful drawing of the character before it."""


class Board(Protocol):
    """One board. Every method raises BoardUnavailable when the board cannot answer."""

    def issue(self, key: IssueKey) -> Issue | None:
        """The issue, or None if there is none of that name."""

    def comments(self, key: IssueKey) -> list[Comment]:
        """The comments on an issue, oldest first; none for an issue that does not exist."""

    def pull_requests(self, key: IssueKey) -> list[PullRequest]:
        """The pull requests whose merge closes the issue, those that have come farthest first."""

    def post(self, key: IssueKey, *, author: str, body: str, marker: str | None = None) -> bool:
        """Comment on an issue, open or closed. False if it has this very marker already: nothing was posted.

        Raises NoSuchIssue if there is no such issue.
        """


def disposal(
    issue: Issue, comments: Iterable[Comment], terminal_labels: Iterable[str], terminal_glyphs: Iterable[str]
) -> str | None:
    """Why this issue is not work (any more), or None if it is.

    Labels are compared without case, as GitHub tells them apart. The glyph has to be the first thing that a
    reader sees: white space before it is not drawn.
    """
    if not issue.is_open:
        return "closed"
    terminal = {label.casefold() for label in terminal_labels}
    for label in issue.labels:
        if label.casefold() in terminal:
            return f"label {label!r}"
    glyphs = [bare for bare in (glyph.removesuffix(EMOJI_STYLE) for glyph in terminal_glyphs) if bare]
    for comment in comments:
        text = comment.body.lstrip()
        for glyph in glyphs:
            if text.startswith(glyph):
                return f"a comment begins with {glyph}"
    return None
