"""The second of a unit's two close-outs has nothing to do, and is cheap."""

from pathlib import Path

import pytest

from gtrun.cli.boundary import guarded
from gtrun.names import encode_path


def test_closed_record_is_nothing_to_do(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert guarded(["closeout", encode_path(str(tmp_path / "gone.jsonl"))]) == 0
    assert capfd.readouterr() == ("", "")


def test_record_that_cannot_be_reached_is_not_taken_for_closed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert guarded(["closeout", encode_path(str(tmp_path / "loop/run.jsonl"))]) == 1
    assert "cannot open the run record" in capfd.readouterr().err
