"""Posting the markers that runs owe. What cannot be posted stays owed, in the run's own record."""

import time
from collections.abc import Callable
from pathlib import Path

from gtrun import markers
from gtrun.board import Board
from gtrun.errors import BoardUnavailable, GtrunError, NoSuchIssue, StateError
from gtrun.markers import Kind
from gtrun.model import BoardRef, Run
from gtrun.names import IssueKey
from gtrun.state import record as records
from gtrun.state.facts import Dropped, Posted, PullsSeen
from gtrun.state.record import Record
from gtrun.text import shorten

_PULLS_TOLD = 10  # those that have come farthest; the record's reserve is not endless
_PROBLEM_LENGTH = 300

OpenBoard = Callable[[BoardRef], Board]
"""Opens the very board that is meant. Raises BoardUnavailable."""


def marker_body(run: Run, kind: Kind) -> str:
    """The text of a marker; the same facts always give the same text."""
    if run.run is None:
        raise StateError(f"run record {run.resolved.token} owes a marker and names no run")
    if kind is Kind.STARTED:
        return markers.started(run.resolved, run.run, run.notes)
    if run.ending is None:
        raise StateError(f"run record {run.resolved.token} owes a finished marker and has no end")
    return markers.finished(run.resolved, run.run, run.ending, run.pulls, run.pulls_problem)


def post_owed(record: Record, open_board: OpenBoard) -> list[str]:
    """Post what this run owes, in order, each exactly once. Raises BoardUnavailable, StateError: the rest stays owed.

    The board is asked to post a marker by its ID, which it does only once, so a crash between the post and the
    `posted` fact costs nothing but asking again. Returns what is not owed any more and was not posted: its issue is
    gone, so nobody would ever read it.
    """
    kinds = missing(record.run)
    if not kinds:
        return []
    dropped = []
    with open_board(record.run.resolved.board_ref) as board:
        for kind in kinds:
            try:
                if kind is Kind.FINISHED and wants_pulls(record.run):
                    record.append(pulls_of(board, record.run.resolved.issue.key))
                post(board, record.run, kind)
                record.append(Posted(kind))
            except NoSuchIssue as error:
                record.append(Dropped(kind, error.message))
                dropped.append(told_dropped(record.run, kind, error))
    return dropped


def told_dropped(run: Run, kind: Kind, error: NoSuchIssue) -> str:
    """That a marker is not owed any more, in one line."""
    return f"the {kind} marker of run {run.run} is dropped: {error.message}"


def missing(run: Run) -> list[Kind]:
    """The markers that a run owes and has not posted, in order."""
    return [kind for kind in Kind if kind in run.owed and kind not in run.posted]


def wants_pulls(run: Run) -> bool:
    """Whether the board has to be asked for pull requests before the finished marker, which is missing, is posted."""
    return Kind.FINISHED in missing(run) and run.pulls is None and not run.pulls_problem


def post(board: Board, run: Run, kind: Kind) -> None:
    """Post one marker, which the board takes once. Raises BoardUnavailable, NoSuchIssue."""
    resolved = run.resolved
    board.post(
        resolved.issue.key, author=resolved.agent, body=marker_body(run, kind), marker=f"{kind}:{run.run}",
        since=resolved.dispatched_at,
    )  # fmt: skip


def pulls_of(board: Board, key: IssueKey) -> PullsSeen:
    """What the board says of the issue's pull requests. That it does not say keeps no marker back."""
    try:
        pulls = board.pull_requests(key)
    except BoardUnavailable as error:
        return PullsSeen(None, shorten(error.message, _PROBLEM_LENGTH))
    return PullsSeen(tuple(pulls[:_PULLS_TOLD]))


def flush(state: str, open_board: OpenBoard, *, skip: Path | None = None, deadline: float) -> list[str]:
    """Post what all runs of this account still owe and close the records of those that ended; returns what went wrong.

    It stops at `deadline` (time.monotonic()), and at a board's first failure as far as that board goes.
    """
    problems = []
    failed_boards = set()
    for path in records.open_records(state):
        if path == skip or time.monotonic() > deadline:
            continue
        try:
            with Record(path, wait=False) as record:
                board = record.run.resolved.board_ref
                if board in failed_boards:
                    continue
                try:
                    problems += post_owed(record, open_board)
                except BoardUnavailable as error:
                    failed_boards.add(board)
                    problems.append(error.message)
                record.close_if_settled()
        except (FileNotFoundError, records.RecordInUse):
            continue  # whoever has it posts what it owes
        except records.CorruptRecord as error:
            problems.append(records.set_aside(path, error))
        except GtrunError as error:  # it must not hold up the others
            problems.append(error.message)
    return problems
