"""A run's board is opened by what it is, not only by where it is."""

from pathlib import Path

import pytest

from gtrun.board import reference
from gtrun.board.local import LocalBoard
from gtrun.board.reference import open_board, reference_of
from gtrun.config import BoardConfig
from gtrun.errors import BoardUnavailable
from gtrun.model import BoardRef


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "board.db")
    LocalBoard.open(path, create=True).close()
    return path


def _identity(path: str) -> str:
    return reference_of(BoardConfig(path=path)).identity


def test_the_very_board_is_opened(path: str) -> None:
    with open_board(BoardRef(path, _identity(path), "another box's"), wait=1.0) as board:
        assert board.name == path


def test_another_board_is_not(path: str) -> None:
    with pytest.raises(BoardUnavailable, match="here is another one than that from which") as raised:
        open_board(BoardRef(path, "f" * 32), wait=1.0)
    assert "nothing was written to it" in raised.value.hint


def test_a_record_from_before_there_were_identities_counts_by_its_path(path: str) -> None:
    open_board(BoardRef(path), wait=1.0).close()


def test_an_unknown_board_counts_by_its_path_on_the_box_of_the_dispatch_alone(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "machine_id", lambda: "a" * 32)
    open_board(BoardRef(path, machine="a" * 32), wait=1.0).close()
    with pytest.raises(BoardUnavailable, match="was not known at the dispatch, and that was made on another box"):
        open_board(BoardRef(path, machine="b" * 32), wait=1.0)


def test_an_identity_that_cannot_be_known_is_empty(tmp_path: Path) -> None:
    assert _identity(str(tmp_path / "none.db")) == ""
    (tmp_path / "damaged.db").write_text("no board")
    assert _identity(str(tmp_path / "damaged.db")) == ""
