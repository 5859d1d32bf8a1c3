"""The local board: one SQLite file, written by many processes of several accounts at once.

What makes that safe: the file is published complete, so nobody ever meets half a board; it is the group's
where its folder is; write-ahead log, synchronous=FULL, and every change in one BEGIN IMMEDIATE: a deferred
one that turns into a writer is refused at once, however long it would wait
(https://www.sqlite.org/rescode.html#busy_snapshot).
"""

import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, Self

import msgspec

from gtrun.errors import BoardUnavailable, GtrunError, UsageError
from gtrun.files import describe, sync_folder
from gtrun.model import Comment, Issue
from gtrun.names import IssueKey

TITLE_MAX = 256  # characters, as on GitHub; so are the next two
BODY_MAX = 65_536
LABEL_MAX = 50
AUTHOR_MAX = 100
PRIORITIES = range(5)

State = Literal["open", "closed", "all"]

_APPLICATION = 0x67747262  # "gtrb": https://www.sqlite.org/fileformat.html#application_id
_VERSION = 1
_SCHEMA = f"""
BEGIN;
CREATE TABLE issues (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    title TEXT NOT NULL,
    body TEXT NOT NULL,
    priority INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 4),
    is_open INTEGER NOT NULL DEFAULT 1 CHECK (is_open IN (0, 1)),
    created_at REAL NOT NULL
) STRICT;
CREATE TABLE labels (
    issue INTEGER NOT NULL REFERENCES issues,
    label TEXT NOT NULL COLLATE NOCASE,
    PRIMARY KEY (issue, label)
) STRICT, WITHOUT ROWID;
CREATE TABLE blockers (
    issue INTEGER NOT NULL REFERENCES issues,
    blocker INTEGER NOT NULL REFERENCES issues,
    PRIMARY KEY (issue, blocker),
    CHECK (blocker < issue) -- only an older issue blocks, so there is no cycle
) STRICT, WITHOUT ROWID;
CREATE TABLE comments (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    issue INTEGER NOT NULL REFERENCES issues,
    author TEXT NOT NULL,
    body TEXT NOT NULL,
    at REAL NOT NULL,
    marker TEXT
) STRICT;
CREATE INDEX comments_of_issue ON comments (issue);
CREATE UNIQUE INDEX markers ON comments (issue, marker) WHERE marker IS NOT NULL;
CREATE TRIGGER comments_stay_as_written BEFORE UPDATE ON comments
    BEGIN SELECT RAISE (ABORT, 'comments are append-only'); END;
CREATE TRIGGER comments_stay BEFORE DELETE ON comments
    BEGIN SELECT RAISE (ABORT, 'comments are append-only'); END;
CREATE TRIGGER issues_stay BEFORE DELETE ON issues
    BEGIN SELECT RAISE (ABORT, 'issues are closed, never deleted'); END;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
COMMIT;
"""
# one statement, hence one snapshot
_SELECT = """
SELECT number, title, body, priority, is_open, created_at,
    (SELECT json_group_array (label) FROM (SELECT label FROM labels WHERE issue = number ORDER BY label)),
    (SELECT json_group_array (blocker)
        FROM (SELECT blocker FROM blockers WHERE issue = number ORDER BY blocker))
FROM issues
"""


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
        with _told(file):
            if not _found(file):
                if not create:
                    raise BoardUnavailable(f"there is no board {file}", hint='gtrun board add "…" creates it')
                _make(file)
            return cls(file, _open(file, wait))

    def close(self) -> None:
        """Give the file back. Closing twice is harmless."""
        with _told(self.path):
            self._database.close()

    def __enter__(self) -> Self:
        """The board itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give the file back."""
        self.close()

    def issue(self, key: IssueKey) -> Issue | None:
        """The issue, or None if there is none of that name."""
        with _told(self.path):
            row = self._database.execute(f"{_SELECT} WHERE number = ?", (_number(key),)).fetchone()
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
        with _told(self.path):
            rows = self._database.execute(_SELECT + where, {"state": state, "label": label}).fetchall()
        return [self._issue(row) for row in rows]

    def comments(self, key: IssueKey) -> list[Comment]:
        """The comments on an issue, oldest first; none for an issue that does not exist."""
        query = "SELECT author, body, at FROM comments WHERE issue = ? ORDER BY id"
        with _told(self.path):
            rows = self._database.execute(query, (_number(key),)).fetchall()
        return [Comment(author=author, body=body, at=at) for author, body, at in rows]

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

        Raises UsageError for text that no board can keep, GtrunError for a blocker that does not exist.
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

    def post(self, key: IssueKey, *, author: str, body: str, marker: str | None = None) -> bool:
        """Comment on an issue, open or closed. False if it has this very marker already: nothing was posted.

        Raises GtrunError if there is no such issue, UsageError for text that no board can keep.
        """
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
        """Take labels off an issue, then put labels on it. Raises GtrunError if there is no such issue."""
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
        """Close an issue; False if it was closed already. Raises GtrunError if there is no such issue."""
        return self._turn(key, 0)

    def reopen_issue(self, key: IssueKey) -> bool:
        """Open a closed issue; False if it was open already. Raises GtrunError if there is no such issue."""
        return self._turn(key, 1)

    def _turn(self, key: IssueKey, is_open: int) -> bool:
        with self._writing() as database:
            number = self._existing(key)
            query = "UPDATE issues SET is_open = ? WHERE number = ? AND is_open <> ?"
            return database.execute(query, (is_open, number, is_open)).rowcount == 1

    def _issue(self, row: tuple[int, str, str, int, int, float, str, str]) -> Issue:
        number, title, body, priority, is_open, created_at, labels, blockers = row
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
        )

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with _told(self.path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
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
            raise GtrunError(f"there is no issue {key} on the board {self.path}")
        return number


def _number(key: IssueKey) -> int:
    """The row of an issue; 0, which no row has, for one that only another board can have."""
    plain = key.isascii() and key.isdigit() and len(key) <= 18 and not key.startswith("0")
    return int(key) if plain else 0


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


def _found(file: Path) -> bool:
    """Whether there is something to open, without opening it.

    Opening and closing the file here would drop the locks of every other connection of this process to it
    (https://www.sqlite.org/howtocorrupt.html, 2.2). SQLite would throw away the log beside an empty file.
    """
    try:
        info = file.stat()
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(info.st_mode) or info.st_size == 0:
        raise _no_board(file, "it is empty" if stat.S_ISREG(info.st_mode) else "it is not a regular file")
    return True


def _make(file: Path) -> None:
    """Publish an empty board, unless somebody else was faster. Raises OSError and BoardUnavailable."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = file.parent.stat().st_mode
    shared = bool(mode & stat.S_ISGID and mode & stat.S_IWGRP)
    if shared and mode & stat.S_ISVTX:
        raise BoardUnavailable(
            f"the folder {file.parent} has the sticky bit, so its group cannot share a board in it",
            hint=f"chmod -t {file.parent}",
        )
    temporary = file.with_name(f".{file.name}.{os.getpid()}.{time.time_ns()}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600)
    try:
        try:
            os.fchmod(descriptor, 0o660 if shared else 0o600)  # SQLite gives its log the same mode
        finally:
            os.close(descriptor)
        with _told(file), contextlib.closing(sqlite3.connect(temporary, isolation_level=None)) as database:
            (journal,) = database.execute("PRAGMA journal_mode = WAL").fetchone()
            if journal != "wal":
                raise BoardUnavailable(
                    f"the file system of {file.parent} cannot hold a board: it has no shared memory",
                    hint="put the board on a local disk",
                )
            database.execute("PRAGMA synchronous = FULL")
            database.executescript(_SCHEMA)
        with contextlib.suppress(FileExistsError):
            file.hardlink_to(temporary)
    finally:
        for suffix in ("", "-wal", "-shm"):
            temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)
    sync_folder(file.parent)


def _open(file: Path, wait: float) -> sqlite3.Connection:
    """The best connection to be had. Raises BoardUnavailable and sqlite3.Error."""
    try:
        if _log(file).exists():
            # a writer copies the log into the file when it closes: not before the file is known to be ours
            _connect(file, wait, "mode=ro").close()
        return _connect(file, wait, "mode=rw")  # falls back to reading, and never makes a file
    except sqlite3.Error as error:
        frozen = os.statvfs(file).f_flag & os.ST_RDONLY and not _log(file).exists()
        if _primary_code(error) != sqlite3.SQLITE_CANTOPEN or not frozen:
            raise
    # nobody can change the file, and all of it is in the file: it needs neither a lock nor a log
    return _connect(file, wait, "mode=ro&immutable=1")


def _connect(file: Path, wait: float, options: str) -> sqlite3.Connection:
    """A connection to a board of this version; options as in https://www.sqlite.org/uri.html."""
    name = str(file).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    database = sqlite3.connect(f"file://{name}?{options}", uri=True, timeout=wait, isolation_level=None)
    try:
        _check_version(file, database)
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        database.close()
        raise
    return database


def _check_version(file: Path, database: sqlite3.Connection) -> None:
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION or version < 1:
        raise _no_board(file, "it is another program's database")
    if version > _VERSION:
        raise BoardUnavailable(
            f"the board {file} was made by a newer gtrun (schema {version}; this one knows {_VERSION})",
            hint="update gtrun",
        )


def _log(file: Path) -> Path:
    return file.with_name(file.name + "-wal")


@contextlib.contextmanager
def _told(file: Path) -> Iterator[None]:
    """Every error of SQLite and of the file system as one line that names the board."""
    try:
        yield
    except sqlite3.Error as error:
        raise _unavailable(file, error) from error
    except OSError as error:
        raise BoardUnavailable(f"the board {file} cannot be used: {describe(error)}") from error


def _primary_code(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code == sqlite3.SQLITE_READONLY_DIRECTORY:
        return sqlite3.SQLITE_CANTOPEN  # the log cannot be made in a closed folder, and readers need it too
    return code & 0xFF


def _no_board(file: Path, why: str) -> BoardUnavailable:
    return BoardUnavailable(
        f"{file} is not a gtrun board: {why}",
        hint="nothing in it was changed; restore it from a backup, or name another path in fleet.toml",
    )


def _unavailable(file: Path, error: sqlite3.Error) -> BoardUnavailable:
    access = f"the account needs to read and write it and its folder: look at ls -la {file.parent}"
    match _primary_code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
            return BoardUnavailable(f"the board {file} is locked by another writer")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return BoardUnavailable(f"the board {file} is read-only for this account", hint=access)
        case sqlite3.SQLITE_CANTOPEN:
            return BoardUnavailable(f"the board {file} cannot be opened by this account", hint=access)
        case sqlite3.SQLITE_FULL:
            return BoardUnavailable(f"no space is left for the board {file}", hint="make room; nothing was written")
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return _no_board(file, str(error))
        case _:
            return BoardUnavailable(f"the board {file} failed: {error}")
