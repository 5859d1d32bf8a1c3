"""The file of a local board: made whole, opened carefully, its errors told in one line.

What makes it safe for many processes of several accounts: the file is published complete, so nobody ever meets half a
board; it is the group's where its folder is; write-ahead log, synchronous=FULL, and every change in one BEGIN
IMMEDIATE: a deferred one that turns into a writer is refused at once, however long it would wait
(https://www.sqlite.org/rescode.html#busy_snapshot).
"""

import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from gtrun.errors import BoardUnavailable
from gtrun.files import describe, sync_folder

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
_ADDED = {
    "turns": (
        """CREATE TABLE pull_requests (
    issue INTEGER NOT NULL REFERENCES issues,
    url TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'draft', 'merged', 'closed')),
    auto_merge INTEGER NOT NULL CHECK (auto_merge IN (0, 1)),
    merged_at REAL,
    PRIMARY KEY (issue, url)
) STRICT, WITHOUT ROWID""",
        # when somebody last reopened an issue or changed its labels
        "CREATE TABLE turns (issue INTEGER PRIMARY KEY REFERENCES issues, at REAL NOT NULL) STRICT",
        *(
            # no INSERT OR REPLACE: the OR of the statement that fires a trigger would take its place
            # (https://www.sqlite.org/lang_createtrigger.html)
            f"CREATE TRIGGER {name} AFTER {event} BEGIN DELETE FROM turns WHERE issue = {issue};"  # noqa: S608 - constants
            f" INSERT INTO turns VALUES ({issue}, (julianday ('now') - 2440587.5) * 86400.0); END"
            for name, event, issue in (
                ("reopening_turns", "UPDATE OF is_open ON issues WHEN NEW.is_open > OLD.is_open", "NEW.number"),
                ("labelling_turns", "INSERT ON labels", "NEW.issue"),
                ("unlabelling_turns", "DELETE ON labels", "OLD.issue"),
            )
        ),
    ),
    # what tells the board from any other that is ever found at its path; a backup of it is the same board
    "identity": (
        "CREATE TABLE identity (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL) STRICT",
        "INSERT INTO identity VALUES (1, lower (hex (randomblob (16))))",
    ),
}
"""What came after the first version, step by step, each under the name of a table that it makes. It adds and changes
nothing, so the version stays, and processes of an older gtrun go on beside it: a run's close-out may be one.
"""


def found(file: Path) -> bool:
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


def make(file: Path) -> None:
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
        with told(file), contextlib.closing(sqlite3.connect(temporary, isolation_level=None)) as database:
            (journal,) = database.execute("PRAGMA journal_mode = WAL").fetchone()
            if journal != "wal":
                raise BoardUnavailable(
                    f"the file system of {file.parent} cannot hold a board: it has no shared memory",
                    hint="put the board on a local disk",
                )
            database.execute("PRAGMA synchronous = FULL")
            database.executescript(_SCHEMA)
            extend(database)
            # into the file, which alone is published: a close without room for that leaves it in the log, and is mute
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with contextlib.suppress(FileExistsError):
            file.hardlink_to(temporary)
    finally:
        for suffix in ("", "-wal", "-shm"):
            temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)
    sync_folder(file.parent)


def has(database: sqlite3.Connection, table: str) -> bool:
    """Whether the board has what came with that table; one that nobody has written since has not."""
    query = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
    return database.execute(query, (table,)).fetchone() is not None


def extend(database: sqlite3.Connection) -> None:
    """Give a board of an earlier version what came after it. For a writer, within its transaction."""
    for table, statements in _ADDED.items():
        if not has(database, table):
            for statement in statements:
                database.execute(statement)


def connect(file: Path, wait: float) -> sqlite3.Connection:
    """The best connection to be had. Raises BoardUnavailable and sqlite3.Error."""
    try:
        if _log(file).exists():
            # a writer copies the log into the file when it closes: not before the file is known to be ours
            _connection(file, wait, "mode=ro").close()
        return _connection(file, wait, "mode=rw")  # falls back to reading, and never makes a file
    except sqlite3.Error as error:
        frozen = os.statvfs(file).f_flag & os.ST_RDONLY and not _log(file).exists()
        if _primary_code(error) != sqlite3.SQLITE_CANTOPEN or not frozen:
            raise
    # nobody can change the file, and all of it is in the file: it needs neither a lock nor a log
    return _connection(file, wait, "mode=ro&immutable=1")


def _connection(file: Path, wait: float, options: str) -> sqlite3.Connection:
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
def told(file: Path) -> Iterator[None]:
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
    if code == sqlite3.SQLITE_IOERR_SHMSIZE:
        return sqlite3.SQLITE_FULL  # the index beside the log does not fit; SQLite calls that a disk I/O error
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
