"""The local board: one SQLite file that many accounts write (see `gtrun.board.file`)."""

import contextlib
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

import msgspec

from gtrun.board import EMOJI_STYLE, State
from gtrun.board.file import connect, extend, found, has, make, told
from gtrun.board.standing import standing
from gtrun.errors import BoardUnavailable, NoSuchIssue, UsageError
from gtrun.markers import MACHINE_LINE
from gtrun.model import Comment, Issue, PullRequest, PullState, Standing
from gtrun.names import IssueKey, split_key
from gtrun.pulls import best_first

TITLE_MAX = 256  # characters, as on GitHub; so are the next two
BODY_MAX = 65_536
LABEL_MAX = 50
AUTHOR_MAX = 100
URL_MAX = 500
PRIORITIES = range(5)

# one statement, hence one snapshot
_SELECT = """
SELECT number, title, {body}, priority, is_open, created_at,
    (SELECT json_group_array (label) FROM (SELECT label FROM labels WHERE issue = number ORDER BY label)),
    (SELECT json_group_array (blocker)
        FROM (SELECT blocker FROM blockers WHERE issue = number ORDER BY blocker)),
    {turned_at}
FROM issues
"""
_TURNED_AT = "(SELECT at FROM turns WHERE issue = number)"


class LocalBoard:
    """An open local board; close it, or use it as a context manager. Not to be taken through a fork."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        """Use `open`."""
        self.path = path
        self._database = database

    @classmethod
    def open(cls, path: str, *, wait: float = 10.0, create: bool = False) -> Self:
        """Open the board in the file `path`; `create` makes it, and a private folder for it, if need be.

        `wait` is how long each operation waits for another writer, in seconds. An account that may only read
        gets a board that it can only read, also on a read-only file system. Raises BoardUnavailable.
        """
        file = Path(path).absolute()
        with told(file):
            if not found(file):
                if not create:
                    raise BoardUnavailable(f"there is no board {file}", hint='gtrun board add "…" creates it')
                make(file)
            return cls(file, connect(file, wait))

    def close(self) -> None:
        """Give the file back. Closing twice is harmless."""
        with told(self.path):
            self._database.close()

    def __enter__(self) -> Self:
        """The board itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give the file back."""
        self.close()

    @property
    def name(self) -> str:
        """Its file."""
        return str(self.path)

    @property
    def notices(self) -> tuple[str, ...]:
        """None: what is wrong with a file is an error."""
        return ()

    @property
    def identity(self) -> str:
        """32 hexadecimal digits that no other board has, but copies of this one; empty if it was given none yet."""
        with told(self.path):
            if not has(self._database, "identity"):
                return ""
            return str(self._database.execute("SELECT id FROM identity").fetchone()[0])

    def identify(self) -> str:
        """Its identity, which a board of an older gtrun is given now."""
        if not self.identity:
            with self._writing():
                pass  # whatever is written first extends the board
        return self.identity

    def issue(self, key: IssueKey) -> Issue | None:
        """The issue, or None if there is none of that name."""
        with told(self.path):
            row = self._database.execute(f"{self._select()} WHERE number = ?", (_number(key),)).fetchone()
        return self._issue(row) if row else None

    def issues(self, *, state: State = "open", label: str | None = None) -> list[Issue]:
        """The issues in that state (and with that label): the most urgent first, then the oldest."""
        where = """
        WHERE (:state = 'all' OR is_open = (:state = 'open'))
        AND (:label IS NULL OR EXISTS (SELECT 1 FROM labels WHERE issue = number AND label = :label))
        ORDER BY priority, number
        """
        if label is not None:
            _check_one_line("a label", label, LABEL_MAX)
        with told(self.path):
            rows = self._database.execute(self._select() + where, {"state": state, "label": label}).fetchall()
        return [self._issue(row) for row in rows]

    def comments(self, key: IssueKey) -> list[Comment]:
        """The comments on an issue, oldest first; none for an issue that does not exist."""
        query = "SELECT author, body, at FROM comments WHERE issue = ? ORDER BY id"
        with told(self.path):
            rows = self._database.execute(query, (_number(key),)).fetchall()
        return [Comment(author=author, body=body, at=at) for author, body, at in rows]

    all_comments = comments
    """Whoever may write the file is believed."""

    def open_work(self, terminal_labels: Sequence[str], terminal_glyphs: Sequence[str]) -> list[tuple[Issue, Standing]]:
        """Every open issue, without its body, and where it stands: one snapshot, in a handful of queries."""
        telling = [MACHINE_LINE, *(glyph.removesuffix(EMOJI_STYLE) for glyph in terminal_glyphs)]
        comments: dict[int, list[Comment]] = {}
        pulls: dict[int, list[PullRequest]] = {}
        with told(self.path), self._reading() as database:
            without_body = self._select("''")
            rows = database.execute(f"{without_body} WHERE is_open").fetchall()
            query = (
                "SELECT issue, author, comments.body, at FROM comments JOIN issues ON number = issue"  # noqa: S608 - ?
                f" WHERE is_open AND ({' OR '.join('instr (comments.body, ?)' for _ in telling)}) ORDER BY id"
            )
            for issue, author, body, at in database.execute(query, telling):
                comments.setdefault(issue, []).append(Comment(author=author, body=body, at=at))
            if has(database, "turns"):
                query = "SELECT issue, url, state, auto_merge, merged_at FROM pull_requests"
                for issue, *row in database.execute(query):
                    pulls.setdefault(issue, []).append(_pull(*row))
        return [
            (issue, standing(issue, comments.get(number, ()), pulls.get(number, ()), terminal_labels, terminal_glyphs))
            for number, issue in ((row[0], self._issue(row)) for row in rows)
        ]

    def pull_requests(self, key: IssueKey) -> list[PullRequest]:
        """The pull requests that would close the issue, those that have come farthest first."""
        query = "SELECT url, state, auto_merge, merged_at FROM pull_requests WHERE issue = ? ORDER BY url"
        with told(self.path):
            rows = self._database.execute(query, (_number(key),)).fetchall() if has(self._database, "turns") else []
        return best_first(_pull(*row) for row in rows)

    def record_pull_request(self, key: IssueKey, pull: PullRequest) -> None:
        """Note a pull request that would close the issue, or what has become of one that is noted.

        One that is merged without an instant was merged now. Raises UsageError, and NoSuchIssue if there is no such
        issue.
        """
        _check_one_line("the address of a pull request", pull.url, URL_MAX)
        merged_at = pull.merged_at
        if pull.state is PullState.MERGED and merged_at is None:
            merged_at = time.time()
        with self._writing() as database:
            database.execute(
                "INSERT INTO pull_requests VALUES (?, ?, ?, ?, ?) ON CONFLICT (issue, url) DO UPDATE SET"
                " state = excluded.state, auto_merge = excluded.auto_merge,"
                " merged_at = iif (excluded.state = 'merged', coalesce (merged_at, excluded.merged_at), NULL)",
                (self._existing(key), pull.url, pull.state, pull.auto_merge, merged_at),
            )

    def add(
        self,
        title: str,
        *,
        body: str = "",
        labels: Iterable[str] = (),
        priority: int = 2,
        blocked_by: Iterable[IssueKey] = (),
    ) -> IssueKey:
        """Put a new issue on the board and return its key, a number that is never used again.

        Raises UsageError for text that no board can keep, NoSuchIssue for a blocker that does not exist.
        """
        labels = tuple(labels)
        _check_one_line("a title", title, TITLE_MAX)
        _check_text("a body", body, BODY_MAX)
        for label in labels:
            _check_one_line("a label", label, LABEL_MAX)
        if priority not in PRIORITIES:
            raise UsageError(f"there is no priority {priority}", hint="0 is the most urgent, 4 the least")
        with self._writing() as database:
            blockers = [self._existing(blocker) for blocker in blocked_by]
            number = database.execute(
                "INSERT INTO issues (title, body, priority, created_at) VALUES (?, ?, ?, ?)",
                (title, body, priority, time.time()),
            ).lastrowid
            for label in labels:
                database.execute("INSERT OR IGNORE INTO labels VALUES (?, ?)", (number, label))
            for blocker in blockers:
                database.execute("INSERT OR IGNORE INTO blockers VALUES (?, ?)", (number, blocker))
        return IssueKey(str(number))

    def post(
        self, key: IssueKey, *, author: str, body: str, marker: str | None = None, since: float | None = None
    ) -> bool:
        """Comment on an issue, open or closed. False if it has this very marker already: nothing was posted.

        Raises NoSuchIssue if there is no such issue, UsageError for text that no board can keep.
        """
        del since  # an index knows
        _check_one_line("an author", author, AUTHOR_MAX)
        _check_text("a comment", body, BODY_MAX)
        if not body.strip():
            raise UsageError("a comment cannot be empty")
        with self._writing() as database:
            number = self._existing(key)
            query = "SELECT 1 FROM comments WHERE issue = ? AND marker = ?"
            if database.execute(query, (number, marker)).fetchone():
                return False
            database.execute(
                "INSERT INTO comments (issue, author, body, at, marker) VALUES (?, ?, ?, ?, ?)",
                (number, author, body, time.time(), marker),
            )
        return True

    def label(self, key: IssueKey, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
        """Take labels off an issue, then put labels on it. Raises NoSuchIssue if there is no such issue."""
        add = tuple(add)
        for label in add:
            _check_one_line("a label", label, LABEL_MAX)
        with self._writing() as database:
            number = self._existing(key)
            for label in remove:
                _check_one_line("a label", label, LABEL_MAX)
                database.execute("DELETE FROM labels WHERE issue = ? AND label = ?", (number, label))
            for label in add:
                database.execute("INSERT OR IGNORE INTO labels VALUES (?, ?)", (number, label))

    def close_issue(self, key: IssueKey) -> bool:
        """Close an issue; False if it was closed already. Raises NoSuchIssue if there is no such issue."""
        return self._turn(key, 0)

    def reopen_issue(self, key: IssueKey) -> bool:
        """Open a closed issue; False if it was open already. Raises NoSuchIssue if there is no such issue."""
        return self._turn(key, 1)

    def _turn(self, key: IssueKey, is_open: int) -> bool:
        with self._writing() as database:
            number = self._existing(key)
            query = "UPDATE issues SET is_open = ? WHERE number = ? AND is_open <> ?"
            return database.execute(query, (is_open, number, is_open)).rowcount == 1

    def _select(self, body: str = "body") -> str:
        return _SELECT.format(body=body, turned_at=_TURNED_AT if has(self._database, "turns") else "NULL")

    def _issue(self, row: tuple[int, str, str, int, int, float, str, str, float | None]) -> Issue:
        number, title, body, priority, is_open, created_at, labels, blockers, turned_at = row
        numbers = msgspec.json.decode(blockers, type=tuple[int, ...])
        return Issue(
            key=IssueKey(str(number)),
            title=title,
            body=body,
            labels=msgspec.json.decode(labels, type=tuple[str, ...]),
            priority=priority,
            is_open=bool(is_open),
            blocked_by=tuple(IssueKey(str(blocker)) for blocker in numbers),
            url=f"{self.path.as_uri()}#{number}",
            created_at=created_at,
            turned_at=turned_at,
        )

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Several readings of one state."""
        self._database.execute("BEGIN")
        try:
            yield self._database
        finally:
            self._database.rollback()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with told(self.path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                extend(self._database)
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                # some errors, as a full disk, have rolled back already; closing the file would do it as well
                with contextlib.suppress(sqlite3.Error):
                    self._database.rollback()
                raise

    def _existing(self, key: IssueKey) -> int:
        number = _number(key)
        if not self._database.execute("SELECT 1 FROM issues WHERE number = ?", (number,)).fetchone():
            raise NoSuchIssue(f"there is no issue {key} on the board {self.path}")
        return number


def _pull(url: str, state: str, armed: int, merged_at: float | None) -> PullRequest:
    return PullRequest(url=url, state=PullState(state), auto_merge=bool(armed), merged_at=merged_at)


def _number(key: IssueKey) -> int:
    """The row of an issue; 0, which no row has, for one that only another board can have."""
    repo, number = split_key(key) or ("", 0)
    return 0 if repo else number


def _check_text(what: str, text: str, longest: int) -> None:
    if len(text) > longest:
        raise UsageError(f"{what} has at most {longest:,} characters, not {len(text):,}", hint="shorten it")
    if "\0" in text:
        raise UsageError(f"{what} cannot hold a NUL character", hint="remove it: this looks like binary data")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} has to be valid UTF-8", hint="convert it, as with iconv -t UTF-8") from None


def _check_one_line(what: str, text: str, longest: int) -> None:
    _check_text(what, text, longest)
    if not text.strip():
        raise UsageError(f"{what} cannot be empty")
    if text.splitlines() != [text]:
        raise UsageError(f"{what} is one line", hint="put the rest into the body")
