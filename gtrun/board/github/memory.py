"""What a sweep keeps of a repository until the next one; all of it may be lost at any time."""

import msgspec

from gtrun.board.github import wire
from gtrun.board.github.references import Reference
from gtrun.model import PullRequest
from gtrun.names import IssueKey


class Told(msgspec.Struct, frozen=True):
    """As much of a comment as may be a marker or a terminal mark."""

    author: str
    association: str
    text: str
    at: float


class Kept(msgspec.Struct):
    """An open issue. `comments` has all of it, with nothing for those that tell nothing.

    `counted` is for which `updated_at` and number of comments these were read wholly, `asked` for which `updated_at`
    its turn and blockers were asked for, `first` the one that it was met with.
    """

    number: int
    title: str
    url: str
    labels: tuple[str, ...]
    created_at: float
    updated_at: float
    count: int
    first: float
    author: str
    association: str
    summary: wire.Dependencies | None = None
    named: tuple[Reference, ...] = ()
    comments: dict[int, Told | None] = {}
    counted: tuple[float, int] | None = None
    asked: float | None = None
    turned_at: float | None = None
    blocked_by: tuple[IssueKey, ...] = ()


class Merged(msgspec.Struct, frozen=True):
    """A merged pull request, the issues of the repository that it closes, and who wrote that."""

    pull: PullRequest
    closes: tuple[int, ...]
    author: str
    association: str


class Place(msgspec.Struct):
    """Where in a long list a pass came to its end: the address of the last page that it took.

    `at` is when the list was begun, by GitHub's clock, and `listed` what was on it so far.
    """

    url: str
    at: float
    listed: set[int] = set()


class Known(msgspec.Struct):
    """What is kept. `settled` has, for each of the three questions, a digest of it and the first page of its answer.

    Its answers are ordered by when things were touched, the last one first: an unchanged first page means that
    nothing was. `lists_comments`: the server has a list of all comments of a repository; where it has none, those of
    each issue that was touched are read. `places`: long lists that are not read to their end yet.
    """

    glyphs: tuple[str, ...]
    read_at: float | None = None
    issues_since: float = 0.0
    comments_since: float = 0.0
    lists_comments: bool = True
    pulls_since: float | None = None
    issues: dict[int, Kept] = {}
    merged: dict[int, Merged] = {}
    settled: dict[str, str] = {}
    places: dict[str, Place] = {}
