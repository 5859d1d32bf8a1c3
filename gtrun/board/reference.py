"""From what a run carries of its board to that very board."""

from gtrun.board.local import LocalBoard
from gtrun.errors import BoardUnavailable
from gtrun.machine import machine_id
from gtrun.model import BoardRef


def open_board(ref: BoardRef, *, wait: float) -> LocalBoard:
    """Open the board that is meant; `wait` as in `LocalBoard.open`. Raises BoardUnavailable, also for another one.

    A path says nothing on another box, and another board has an issue of the same number.
    """
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


def identity_of(path: str) -> str:
    """The identity of the board in that file; empty where it has none yet, or does not answer."""
    try:
        with LocalBoard.open(path) as board:
            return board.identity
    except BoardUnavailable:
        return ""
