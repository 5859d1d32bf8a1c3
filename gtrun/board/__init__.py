"""Boards, where issues live: what gtrun asks of one, whatever its kind."""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Literal, Protocol, Self

from gtrun.model import Comment, Issue, PullRequest, Standing
from gtrun.names import IssueKey

State = Literal["open", "closed", "all"]

EMOJI_STYLE = "\ufe0f"
"""U+FE0F only chooses the colourful drawing of the character before it."""


class Board(Protocol):
    """One open board; close it, or use it as a context manager. Not to be taken through a fork.

    Every method raises BoardUnavailable when the board cannot answer.
    """

    def close(self) -> None:
        """Give it back. Closing twice is harmless."""

    def __enter__(self) -> Self:
        """The board itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back."""

    @property
    def name(self) -> str:
        """What messages call it: its file, or its address for people."""

    @property
    def identity(self) -> str:
        """What no other board has; empty if it was given none yet."""

    @property
    def notices(self) -> tuple[str, ...]:
        """What was met so far that somebody should mend, a line each."""

    def identify(self) -> str:
        """Its identity, which it is given now if it has none."""

    def issue(self, key: IssueKey) -> Issue | None:
        """The issue, or None if there is none of that name."""

    def issues(self, *, state: State = "open", label: str | None = None) -> list[Issue]:
        """The issues in that state (and with that label): the most urgent first, then the oldest."""

    def open_work(self, terminal_labels: Sequence[str], terminal_glyphs: Sequence[str]) -> list[tuple[Issue, Standing]]:
        """Every open issue, maybe without its body, and where it stands."""

    def comments(self, key: IssueKey) -> list[Comment]:
        """The comments that count on an issue, oldest first; none for an issue that does not exist."""

    def all_comments(self, key: IssueKey) -> list[Comment]:
        """The comments on an issue for people to read, also of authors who are not believed."""

    def pull_requests(self, key: IssueKey) -> list[PullRequest]:
        """The pull requests whose merge closes the issue, those that have come farthest first."""

    def post(
        self, key: IssueKey, *, author: str, body: str, marker: str | None = None, since: float | None = None
    ) -> bool:
        """Comment on an issue, open or closed. False if it has this very marker already: nothing was posted.

        That is not older than `since`, in seconds since the epoch, so nothing older needs to be read for it.
        Raises NoSuchIssue if there is no such issue.
        """

    def label(self, key: IssueKey, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
        """Take labels off an issue, then put labels on it. Raises NoSuchIssue."""

    def close_issue(self, key: IssueKey) -> bool:
        """Close an issue; False if it was closed already. Raises NoSuchIssue."""

    def reopen_issue(self, key: IssueKey) -> bool:
        """Open a closed issue; False if it was open already. Raises NoSuchIssue."""


def disposal(
    issue: Issue, comments: Iterable[Comment], terminal_labels: Iterable[str], terminal_glyphs: Iterable[str]
) -> str | None:
    """Why this issue is not work (any more), or None if it is.

    Labels are compared without case, as GitHub tells them apart. The glyph has to be the first thing that a
    reader sees: white space before it is not drawn.
    """
    if issue.is_pull:
        return "a pull request"
    if issue.moved_to:
        return f"transferred to {issue.moved_to}"
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
