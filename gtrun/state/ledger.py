"""The ledger of the claim account: every attempt before it is made, and what came of it.

One SQLite file, private. An attempt is on the disk before the unit is started, its outcome is written after; an attempt
without an outcome is one whose dispatcher died.
"""

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec
from msgspec.structs import replace

from gtrun.counters import (
    FAILURES,
    STOPPED_BY_HAND,
    Book,
    Mark,
    Pause,
    Tally,
    Tried,
    streak_of_agent,
    streak_of_rig,
)
from gtrun.errors import StateError
from gtrun.files import describe, ensure_private_folder
from gtrun.names import IssueKey, RunId, Token, UnitName
from gtrun.state.claim import Claim

_SCHEMA = """
CREATE TABLE attempt (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    token TEXT NOT NULL UNIQUE,
    at REAL NOT NULL,
    by TEXT NOT NULL,
    dispatcher TEXT NOT NULL,
    issue TEXT NOT NULL,
    agent TEXT NOT NULL,
    account TEXT NOT NULL,
    unit TEXT NOT NULL,
    outcome TEXT CHECK (outcome IN ('started', 'refused', 'failed')),
    code INTEGER,
    reason TEXT NOT NULL DEFAULT '',
    run TEXT,
    lock_waited REAL,
    lock_held REAL,
    decided_at REAL
) STRICT;
CREATE INDEX attempt_issue ON attempt (issue);
CREATE TABLE verdict (
    attempt INTEGER NOT NULL REFERENCES attempt (id),
    guard TEXT NOT NULL,
    verdict TEXT NOT NULL CHECK (verdict IN ('refuse', 'open')),
    reason TEXT NOT NULL
) STRICT;
CREATE INDEX verdict_attempt ON verdict (attempt);
PRAGMA user_version = 1;
"""
_VERSION = 1
_GOING = "result IS NULL AND coalesce (outcome, 'started') = 'started'"
_ADDED = {
    "board": ("ALTER TABLE attempt ADD COLUMN board TEXT NOT NULL DEFAULT ''",),
    "sweep": (
        "ALTER TABLE attempt ADD COLUMN rig TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE attempt ADD COLUMN sweep TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE attempt ADD COLUMN result TEXT",  # of the run, once that has ended and somebody has asked
        "ALTER TABLE attempt ADD COLUMN ended_at REAL",
        "CREATE INDEX attempt_agent ON attempt (agent, outcome, result)",
        "CREATE INDEX attempt_rig ON attempt (rig, outcome, result)",
        "CREATE INDEX attempt_of_agent ON attempt (agent)",
        "CREATE INDEX attempt_on_rig ON attempt (rig)",
        f"CREATE INDEX attempt_going ON attempt (agent) WHERE {_GOING}",
        "CREATE INDEX attempt_ended ON attempt (ended_at) WHERE ended_at IS NOT NULL",
        f"CREATE INDEX attempt_stopped ON attempt (result) WHERE result = '{STOPPED_BY_HAND}'",
        "CREATE TABLE pause (target TEXT PRIMARY KEY, by TEXT NOT NULL, at REAL NOT NULL) STRICT, WITHOUT ROWID",
    ),
    "slot": ("CREATE TABLE slot (agent TEXT PRIMARY KEY, told TEXT NOT NULL) STRICT, WITHOUT ROWID",),
    "attempt_succeeded": (
        "CREATE INDEX attempt_succeeded ON attempt (issue, board, ended_at, result) WHERE result = 'success'",
    ),
    "digest": ("ALTER TABLE attempt ADD COLUMN digest TEXT NOT NULL DEFAULT ''",),  # of a plugin
}
"""What came after the first version, step by step, each under the name of a column, table or index that it adds.

Dispatchers of an older gtrun go on beside it, so nothing is taken away and every new column has a default.
"""
_SUCCEEDED = """
SELECT issue, max (ended_at) FROM attempt INDEXED BY attempt_succeeded
    WHERE result = 'success' AND board IN (?, '') GROUP BY issue
"""
_STOPPED = f"""
SELECT issue, ended_at FROM attempt WHERE result = '{STOPPED_BY_HAND}' AND board IN (?, '') AND NOT EXISTS
    (SELECT 1 FROM attempt later
        WHERE later.issue = attempt.issue AND later.id > attempt.id AND later.outcome = 'started')
"""  # noqa: S608 - a constant
_RECENT = 100
"""Attempts of one target that its streak and its last pass are counted from: a back-off is at its cap long before."""
_COLUMNS = (
    "token, at, by, dispatcher, issue, agent, account, unit, outcome, code, reason, run, lock_waited, lock_held, board,"
    " rig, sweep, result, ended_at, digest"
)
_AT = {column: place for place, column in enumerate(_COLUMNS.split(", "), start=1)}
"""Where a column is in a row that begins with its ID."""

Streak = Callable[[Iterable[Tried]], tuple[int, float | None]]
Verdicts = list[tuple[str, str, str]]
"""What guards said other than pass: (guard, `refuse` or `open`, reason)."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One dispatch of one issue to one agent. `outcome` is None while it is under way, or if its dispatcher died.

    `dispatcher` identifies the process that makes it (`gtrun.alive`). Times are in seconds since the epoch. `verdicts`
    are the guards that did not pass: (guard, verdict, reason). How long the claim lock was waited for and held is in
    seconds. `board` is the identity of the issue's board, empty where that was not known. `sweep` is the same for all
    attempts of one pass. `result` and `ended_at` are those of the run, None as long as nobody has learned them.
    `digest` is that of a plugin; its key takes the place of the issue's.
    """

    token: Token
    at: float
    by: str
    dispatcher: str
    issue: IssueKey
    agent: str
    account: str
    unit: UnitName
    outcome: str | None = None
    code: int | None = None
    reason: str = ""
    run: RunId | None = None
    lock_waited: float | None = None
    lock_held: float | None = None
    board: str = ""
    rig: str = ""
    sweep: str = ""
    result: str | None = None
    ended_at: float | None = None
    digest: str = ""
    verdicts: tuple[tuple[str, str, str], ...] = ()


class Ledger:
    """The ledger in a state folder. A context manager. Every failure is a StateError that names the file.

    One that does not `keep` is for whoever wants to know what would be: nothing on the disk changes. Where there is
    none it is empty, and what is written `together` can be read there and is forgotten.
    """

    def __init__(self, state: str, *, keep: bool = True) -> None:
        """Open, and create where it is missing; `moved_aside` says where a damaged one went. Raises StateError."""
        folder = Path(state)
        self.path = folder / "ledger.db"
        self.moved_aside: Path | None = None
        self._file: tuple[int, int] | None = None
        self._keeps = keep
        if keep:
            ensure_private_folder(folder)
        try:
            self._open()
        except sqlite3.Error as error:
            if not self._is_damaged(error):
                raise self._failure(error) from error
            self._move_aside()
            with self._failures():
                self._open()
        except OSError as error:
            raise StateError(f"cannot open the ledger {describe(error)}") from error

    def _open(self) -> None:
        self._file = _identity(self.path)
        if self._keeps:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            self._file = _identity(self.path)
        self._db = _connected(self.path if self._file else ":memory:")
        try:
            if self._keeps:
                self._db.execute("PRAGMA journal_mode = WAL")
            elif self._missing():
                self._go_on_in_a_copy()
            self._db.execute("PRAGMA synchronous = FULL")
            self._extend()
            if self._version() > _VERSION:
                raise StateError(
                    f"the ledger {self.path} was written by a newer gtrun",
                    hint="use that version, or move the file away to begin a new ledger",
                )
        except (sqlite3.Error, StateError):
            self._db.close()
            raise

    def _go_on_in_a_copy(self) -> None:
        """Of a ledger of an older gtrun: whoever keeps nothing does not extend it."""
        copy = _connected(":memory:")
        self._db.backup(copy)
        self._db.close()
        self._db = copy

    def _extend(self) -> None:
        """All tables and columns are there."""
        if self._version() == 0:
            with self._transaction():
                if self._version() == 0:
                    for statement in _SCHEMA.split(";\n"):
                        self._db.execute(statement)
        if self._version() == _VERSION and self._missing():
            with self._transaction():
                for step in self._missing():
                    for statement in _ADDED[step]:
                        self._db.execute(statement)

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _missing(self) -> list[str]:
        """The steps that this ledger has not had yet."""
        columns = "SELECT name FROM pragma_table_info ('attempt')"
        others = "SELECT name FROM sqlite_schema"
        there = {name for (name,) in self._db.execute(f"{columns} UNION {others}")}
        return [step for step in _ADDED if step not in there]

    def _is_damaged(self, error: sqlite3.Error) -> bool:
        """Whether what is there is no ledger any more, as opposed to one that cannot be used now, or not changed."""
        if not self._keeps:
            return False
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without what extends it, such as SQLITE_CORRUPT_INDEX
        return code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB} or self.path.is_dir()

    def _move_aside(self) -> None:
        """Keep the bytes of a damaged ledger, with its log, out of the way of a new one. Raises StateError.

        Of several dispatchers that met the same damage one moves it, and the others find it gone.
        """
        try:
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX)
                if _identity(self.path) != self._file:
                    return
                self.moved_aside = self.path.with_name(f"{self.path.name}.corrupt-{time.time_ns()}")
                for suffix in ("-wal", "-shm", ""):
                    with contextlib.suppress(FileNotFoundError):
                        self.path.with_name(self.path.name + suffix).rename(f"{self.moved_aside}{suffix}")
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise StateError(f"the ledger {self.path} is damaged and cannot be moved: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def _failure(self, error: sqlite3.Error) -> StateError:
        # SHMSIZE: the index beside the log does not fit, which SQLite calls a disk I/O error
        if getattr(error, "sqlite_errorcode", 0) in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}:
            return StateError(f"no space is left for the ledger {self.path}", hint="make room; what it has is safe")
        return StateError(f"the ledger {self.path} cannot be used: {error}")

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if not self._is_damaged(error):
                raise self._failure(error) from error
            self._move_aside()
            kept = self.moved_aside or self.path.parent
            raise StateError(
                f"the ledger {self.path} is damaged ({error}): its bytes are kept in {kept}",
                hint="run this again: it begins a new ledger",
            ) from error

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What is read and written in here is of one state, which nobody else changes meanwhile. Raises StateError.

        Without `keep` all of it is taken back at the end.
        """
        with self._failures(), self._transaction(keep=self._keeps):
            yield

    @contextlib.contextmanager
    def _transaction(self, *, keep: bool = True) -> Iterator[None]:
        if self._db.in_transaction:  # that of `together`
            yield
            return
        # a deferred transaction that turns into a writer fails at once instead of waiting
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT" if keep else "ROLLBACK")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Several readings of one state."""
        if self._db.in_transaction:
            yield
            return
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("COMMIT")

    def begin(self, attempt: Attempt, verdicts: Verdicts) -> None:
        """The attempt, with the verdicts so far, is on the disk when this returns. Raises StateError."""
        with self._failures(), self._transaction():
            places = ", ".join(f":{name}" for name in _COLUMNS.split(", "))
            self._db.execute(
                f"INSERT INTO attempt ({_COLUMNS}, decided_at) VALUES ({places}, :decided_at)",  # noqa: S608
                {**msgspec.structs.asdict(attempt), "decided_at": attempt.at if attempt.outcome else None},
            )
            self._add(attempt.token, verdicts)

    def decide(
        self,
        token: Token,
        outcome: str,
        *,
        code: int,
        reason: str = "",
        run: RunId | None = None,
        unit: UnitName | None = None,
        claim: Claim | None = None,
        verdicts: Verdicts | None = None,
    ) -> bool:
        """What came of an attempt: `started`, `refused` or `failed`, with the exit code. Raises StateError.

        `unit` is the name that was chosen under the lock, `claim` tells of the lock, `verdicts` what was said there.
        False if that was known already.
        """
        with self._failures(), self._transaction():
            query = "SELECT 1 FROM attempt WHERE token = ? AND outcome IS NULL"
            is_news = self._db.execute(query, (token,)).fetchone() is not None
            self._db.execute(
                "UPDATE attempt SET outcome = ?, code = ?, reason = ?, run = ?, unit = coalesce(?, unit),"
                " decided_at = ? WHERE token = ?",
                (outcome, code, reason, run, unit, time.time(), token),
            )
            self._note(token, claim, verdicts)
        return is_news

    def note(self, token: Token, *, claim: Claim, verdicts: Verdicts) -> None:
        """What happened under the lock, of an attempt whose outcome is not known yet. Raises StateError."""
        with self._failures(), self._transaction():
            self._note(token, claim, verdicts)

    def _note(self, token: Token, claim: Claim | None, verdicts: Verdicts | None) -> None:
        if claim is not None:
            told = (claim.waited, claim.held, token)
            self._db.execute("UPDATE attempt SET lock_waited = ?, lock_held = ? WHERE token = ?", told)
        self._add(token, verdicts or [])

    def _add(self, token: Token, verdicts: Verdicts) -> None:
        self._db.executemany(
            "INSERT INTO verdict (attempt, guard, verdict, reason) SELECT id, ?, ?, ? FROM attempt WHERE token = ?",
            [(*verdict, token) for verdict in verdicts],
        )

    def attempts(self, issue: IssueKey) -> list[Attempt]:
        """Every attempt at an issue, oldest first. Raises StateError."""
        with self._failures():
            rows = self._db.execute(
                f"SELECT id, {_COLUMNS} FROM attempt WHERE issue = ? ORDER BY id",  # noqa: S608 - a constant
                (issue,),
            ).fetchall()
            return [self._attempt(row) for row in rows]

    def attempt(self, token: Token) -> Attempt | None:
        """One attempt. Raises StateError."""
        with self._failures():
            row = self._db.execute(
                f"SELECT id, {_COLUMNS} FROM attempt WHERE token = ?",  # noqa: S608 - a constant
                (token,),
            ).fetchone()
            return None if row is None else self._attempt(row)

    def is_run(self, token: Token, run: RunId) -> bool:
        """Whether an attempt came to this run; if that is not written yet, it is from now on. Raises StateError."""
        with self._failures(), self._transaction():
            self._db.execute("UPDATE attempt SET run = ? WHERE token = ? AND run IS NULL", (run, token))
            query = "SELECT 1 FROM attempt WHERE token = ? AND run = ?"
            return self._db.execute(query, (token, run)).fetchone() is not None

    def undecided(self) -> list[Attempt]:
        """Attempts whose outcome nobody has written. Raises StateError."""
        with self._failures():
            rows = self._db.execute(
                f"SELECT id, {_COLUMNS} FROM attempt WHERE outcome IS NULL ORDER BY id"  # noqa: S608
            ).fetchall()
            return [self._attempt(row) for row in rows]

    def going(self, agents: Collection[str]) -> list[Attempt]:
        """Started attempts of these agents whose run has not ended as far as is known. Raises StateError."""
        with self._failures():
            return [self._attempt(row) for row in self._going(agents) if row[_AT["outcome"]] is not None]

    def _going(self, agents: Collection[str]) -> list[tuple[object, ...]]:
        query = f"SELECT id, {_COLUMNS} FROM attempt WHERE agent = ? AND {_GOING} ORDER BY id"  # noqa: S608 - constants
        return [row for agent in agents for row in self._db.execute(query, (agent,))]

    def open_ends(self, issue: IssueKey) -> list[Attempt]:
        """Attempts at an issue or plugin that may have a run of which nobody has learned the end. Raises StateError."""
        return [one for one in self.attempts(issue) if one.result is None and one.outcome in {None, "started"}]

    def mark(self) -> Mark:
        """How far it has come. Raises StateError."""
        with self._failures(), self._reading():
            (last,) = self._db.execute("SELECT coalesce (max (id), 0) FROM attempt").fetchone()
            undecided = self._db.execute(f"SELECT token FROM attempt WHERE {_GOING} AND outcome IS NULL")  # noqa: S608
            return Mark(last=last, undecided=frozenset(token for (token,) in undecided))

    def has_started(self, issue: IssueKey, board: str, since: Mark) -> bool:
        """Whether a run of an issue of that board was started since then, also one that has ended. Raises StateError.

        `board` is its identity.
        """
        query = "SELECT id, token FROM attempt WHERE issue = ? AND outcome = 'started' AND board IN (?, '')"
        with self._failures():
            rows = self._db.execute(query, (issue, board))
            return any(number > since.last or token in since.undecided for number, token in rows)

    def last_success(self, issue: IssueKey, board: str = "") -> float | None:
        """When the last run of it that succeeded ended, in seconds since the epoch. Raises StateError.

        `board` is the identity of its board; a plugin has none.
        """
        with self._failures():
            query = "SELECT max (ended_at) FROM attempt WHERE issue = ? AND result = 'success' AND board IN (?, '')"
            (found,) = self._db.execute(query, (issue, board)).fetchone()
            return None if found is None else float(found)

    def last_started(self, issue: IssueKey) -> str:
        """The token of the last attempt at it that was started; empty if none was. Raises StateError."""
        with self._failures():
            query = "SELECT token FROM attempt WHERE issue = ? AND outcome = 'started' ORDER BY id DESC LIMIT 1"
            found = self._db.execute(query, (issue,)).fetchone()
            return "" if found is None else str(found[0])

    def end(self, token: Token, result: str, at: float) -> None:
        """How the run of an attempt ended, and when; what is known already stays. Raises StateError.

        No run ends before its attempt: the clock of its box may be slow, and what is counted from here would be over
        too early.
        """
        with self._failures(), self._transaction():
            self._db.execute(
                "UPDATE attempt SET result = ?, ended_at = max (?, at) WHERE token = ? AND result IS NULL",
                (result, at, token),
            )

    def book(self, agents: Collection[str], rigs: Collection[str], board: str, since: float) -> Book:
        """What automatic picks depend on: counters, pauses, what succeeded, what failed since then. Raises StateError.

        `board` is the identity of the board whose issues are asked for.
        """
        with self._failures(), self._reading():
            failed: dict[IssueKey, list[float]] = {}
            query = "SELECT issue, ended_at, result FROM attempt WHERE ended_at > ? AND board IN (?, '')"
            for issue, at, result in self._db.execute(query, (since, board)):
                if result in FAILURES:
                    failed.setdefault(issue, []).append(at)
            going = self._going(agents)
            return replace(
                self.targets(agents, rigs),
                failed=failed,
                succeeded=dict(self._db.execute(_SUCCEEDED, (board,))),
                stopped=dict(self._db.execute(_STOPPED, (board,))),
                running={
                    IssueKey(str(row[_AT["issue"]])): str(row[_AT["agent"]])
                    for row in going
                    if row[_AT["board"]] in {board, ""}
                },
            )

    def targets(self, agents: Collection[str], rigs: Collection[str]) -> Book:
        """Of that only what is about agents and rigs: their counters, and the pauses. Raises StateError."""
        with self._failures(), self._reading():
            return Book(
                agents={name: self._tally("agent", name, streak_of_agent) for name in agents},
                rigs={name: self._tally("rig", name, streak_of_rig) for name in rigs},
                pauses=self._pauses(),
            )

    def _tally(self, kind: str, name: str, streak: Streak) -> Tally:
        dispatched, successes = self._db.execute(
            "SELECT count (*) FILTER (WHERE outcome = 'started'), count (*) FILTER (WHERE result = 'success')"  # noqa: S608
            f" FROM attempt WHERE {kind} = ?",
            (name,),
        ).fetchone()
        recent = (
            f"FROM attempt INDEXED BY {'attempt_of_agent' if kind == 'agent' else 'attempt_on_rig'} WHERE {kind} = ?"
            " AND {} ORDER BY id DESC LIMIT ?"
        )
        query = "SELECT iif (sweep = '', token, sweep), decided_at " + recent.format("outcome = 'started'")
        started = self._db.execute(query, (name, _RECENT)).fetchall()
        last_sweep, last_at = started[0] if started else ("", None)
        query = (
            "SELECT agent, iif (sweep = '', token, sweep), outcome, code, result, coalesce (ended_at, decided_at) "
            # how a plugin ends tells of the plugin, and however many of them are newer hide nothing
        ) + recent.format("outcome IN ('started', 'failed') AND issue NOT GLOB 'plugin:*'")
        failures, failed_at = streak(
            Tried(agent=agent, sweep=sweep, outcome=outcome, code=code, result=result, at=at)
            for agent, sweep, outcome, code, result, at in self._db.execute(query, (name, _RECENT))
        )
        return Tally(
            dispatched=dispatched, successes=successes, failures=failures, last_failure_at=failed_at,
            last_dispatch_at=last_at, last_sweep=last_sweep,
            last_dispatch_count=sum(sweep == last_sweep for sweep, _ in started),
        )  # fmt: skip

    def pause(self, target: str, pause: Pause) -> bool:
        """Hand out nothing to this target any more; False if it was paused already, which stays. Raises StateError."""
        with self._failures(), self._transaction():
            insert = "INSERT OR IGNORE INTO pause (target, by, at) VALUES (?, ?, ?)"
            return self._db.execute(insert, (target, pause.by, pause.at)).rowcount == 1

    def resume(self, target: str) -> bool:
        """Hand out work to this target again; False if it was not paused. Raises StateError."""
        with self._failures(), self._transaction():
            return self._db.execute("DELETE FROM pause WHERE target = ?", (target,)).rowcount == 1

    def learn_slots(self, told: Mapping[str, str]) -> set[str]:
        """Remember what was last found of each agent's slots; returns those of which it is another than before.

        Of several that find the same at once, one has news. Raises StateError.
        """
        with self._failures(), self._transaction():
            before = dict(self._db.execute("SELECT agent, told FROM slot"))
            news = {agent for agent, now in told.items() if before.get(agent, "") != now}
            insert = (
                "INSERT INTO slot (agent, told) VALUES (?, ?) ON CONFLICT (agent) DO UPDATE SET told = excluded.told"
            )
            self._db.executemany(insert, [(agent, told[agent]) for agent in news])
        return news

    def pauses(self) -> dict[str, Pause]:
        """Who is paused, by target. Raises StateError."""
        with self._failures():
            return self._pauses()

    def _pauses(self) -> dict[str, Pause]:
        rows = self._db.execute("SELECT target, by, at FROM pause ORDER BY target")
        return {target: Pause(by=by, at=at) for target, by, at in rows}

    def _attempt(self, row: Sequence[object]) -> Attempt:
        verdicts = self._db.execute(
            "SELECT guard, verdict, reason FROM verdict WHERE attempt = ? ORDER BY rowid", (row[0],)
        ).fetchall()
        told = dict(zip(_COLUMNS.split(", "), row[1:], strict=True))
        return msgspec.convert({**told, "verdicts": verdicts}, Attempt)


def _connected(where: Path | str) -> sqlite3.Connection:
    return sqlite3.connect(where, timeout=10.0, isolation_level=None)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file a name leads to; None if none."""
    try:
        info = path.lstat()
    except FileNotFoundError:
        return None
    return (info.st_dev, info.st_ino)
