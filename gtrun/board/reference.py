"""From what a configuration or a run says of its board to that very board, whatever its kind."""

import os

from gtrun.account import cache_folder
from gtrun.board import Board
from gtrun.board.local import LocalBoard
from gtrun.config import BoardConfig
from gtrun.errors import BoardUnavailable
from gtrun.machine import machine_id
from gtrun.model import BoardRef, GitHubPlace


def open_own(config: BoardConfig, *, wait: float = 10.0) -> Board:
    """Open the board of the fleet, for whoever dispatches; `wait` as in `open_board`. Raises BoardUnavailable."""
    if config.github is not None:
        return _open_github(config.github, wait)
    return LocalBoard.open(config.path, wait=wait)


def open_board(ref: BoardRef, *, wait: float) -> Board:
    """Open the board that is meant. Raises BoardUnavailable, also for another one.

    `wait` is how long each operation may wait in seconds: for another writer of a local board, for GitHub's answers.
    A path says nothing on another box, and another board has an issue of the same number.
    """
    if ref.github is not None:
        return _open_github(ref.github, wait)
    if not ref.identity and ref.machine not in {"", machine_id()}:
        raise BoardUnavailable(
            f"which board {ref.path} is meant was not known at the dispatch, and that was made on another box"
        )
    board = LocalBoard.open(ref.path, wait=wait)
    try:
        if ref.identity and board.identity != ref.identity:
            raise BoardUnavailable(
                f"the board {ref.path} here is another one than that from which the work was dispatched",
                hint="nothing was written to it; `gtrun reconcile` at the claim host posts what is owed to the other",
            )
    except BaseException:
        board.close()
        raise
    return board


def _open_github(place: GitHubPlace, wait: float) -> Board:
    """With a token of the account that this process is: a worker has dropped those of whoever started it."""
    from gtrun.board.github.board import GitHubBoard  # noqa: PLC0415 - 50 ms that a local board does without

    return GitHubBoard.open(place, os.environ, wait=wait, cache=cache_folder(os.environ) / "github")


def reference_of(config: BoardConfig) -> BoardRef:
    """The fleet's board as a run carries it. A local one that does not answer has no identity."""
    if config.github is not None:
        return BoardRef(config.path, config.path, "", config.github)
    return BoardRef(config.path, _identity_of(config.path), machine_id())


def _identity_of(path: str) -> str:
    try:
        with LocalBoard.open(path) as board:
            return board.identity
    except BoardUnavailable:
        return ""
