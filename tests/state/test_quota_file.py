"""The quota state file: whatever lies in its place is an answer, and what is written is private and whole."""

import json
import os
from pathlib import Path

import pytest

from gtrun.errors import StateError
from gtrun.quota import Quota, QuotaFile, used_up
from gtrun.state import quota_file

NOW = 1_796_000_000.0
DARK = Quota(exhausted=True, resets_at="2026-11-30T18:00:00Z", source="a run")


@pytest.fixture
def state(tmp_path):
    return str(tmp_path / "gtrun")


@pytest.fixture
def path(state):
    Path(state).mkdir(mode=0o700)
    return Path(state, "quota.json")


def problem(state):
    read = quota_file.read(state)
    assert read.quota is None
    return read.problem


def test_what_was_written_is_read(state):
    quota_file.write(state, DARK)
    assert quota_file.read(state) == QuotaFile(quota=DARK)
    assert json.loads(Path(state, "quota.json").read_bytes()) == {
        "exhausted": True, "resets_at": "2026-11-30T18:00:00Z", "source": "a run"
    }  # fmt: skip
    quota_file.write(state, None)
    quota_file.write(state, None)
    assert quota_file.read(state) == QuotaFile()


def test_it_is_private_and_nothing_is_left_beside_it(state):
    before = os.umask(0)
    try:
        quota_file.write(state, DARK)
        quota_file.write(state, DARK)
    finally:
        os.umask(before)
    assert [(file.name, file.stat().st_mode & 0o777) for file in Path(state).iterdir()] == [("quota.json", 0o600)]
    assert Path(state).stat().st_mode & 0o777 == 0o700


def test_nothing_there_is_nothing_said(state, tmp_path):
    assert quota_file.read(state) == QuotaFile()
    Path(state).touch()  # a file in place of the folder
    assert quota_file.read(state) == QuotaFile()
    assert quota_file.read(str(tmp_path / "gtrun" / "deeper")) == QuotaFile()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"null", b"[]", b"\xff\xfe", b"{}", b'{"exhausted": 1}', b'{"exhausted": "true"}',
        b'{"exhausted": true, "resets_at": 1796061600}', b'{"exhausted": true, "source": null}', b"\0" * 100,
        b'{"exhausted": true, "source": "' + b"x" * (1 << 20) + b'"}', b"[" * 50_000,
    ],
)  # fmt: skip
def test_what_is_no_quota_state_is_one_line(data, state, path):
    path.write_bytes(data)
    said = problem(state)
    assert said.startswith(f"{path} is not a quota state: ")
    assert "\n" not in said
    assert len(said) < 300


def test_fields_of_a_newer_version_do_no_harm(state, path):
    path.write_text('{"exhausted": false, "learned": {"from": 1}}')
    assert quota_file.read(state) == QuotaFile(quota=Quota(exhausted=False))


def test_a_link_is_not_followed(state, path, tmp_path):
    (tmp_path / "elsewhere").write_text('{"exhausted": true}')
    path.symlink_to(tmp_path / "elsewhere")
    assert problem(state) == f"cannot read {path}: Too many levels of symbolic links"


def test_a_fifo_does_not_hang(state, path):
    os.mkfifo(path)
    assert problem(state) == f"cannot read {path}: not a regular file"


def test_a_folder_is_no_file(state, path):
    path.mkdir()
    assert str(path) in problem(state)


def test_what_cannot_be_written_is_an_error_that_names_it(state, path):
    path.mkdir()
    with pytest.raises(StateError, match=f"cannot write {path}: "):
        quota_file.write(state, DARK)
    with pytest.raises(StateError, match=f"cannot write {path}: "):
        quota_file.write(state, None)


def test_an_absent_folder_has_nothing_to_remove(state):
    quota_file.write(state, None)
    assert not Path(state).exists()


def test_darkening_is_news_once_and_the_later_reset_stays(state):
    first, later, sooner = (used_up(NOW + seconds, f"run {seconds}") for seconds in (600, 900, 60))
    assert quota_file.darken(state, first, NOW)
    assert not quota_file.darken(state, later, NOW)
    assert not quota_file.darken(state, sooner, NOW)
    assert quota_file.read(state).quota == later
    assert quota_file.darken(state, later, NOW)  # by the same word: its notice may not have been given
    assert quota_file.darken(state, used_up(NOW + 2000, "run 3"), NOW + 1000)  # it was ready again meanwhile


def test_a_reset_that_has_come_darkens_nobody(state):
    assert not quota_file.darken(state, used_up(NOW, "run 1"), NOW)
    assert quota_file.read(state) == QuotaFile()


def test_a_state_that_cannot_be_understood_is_replaced(state, path):
    path.write_text("{")
    assert quota_file.darken(state, used_up(NOW + 60, "run 1"), NOW)
    assert quota_file.read(state).quota == used_up(NOW + 60, "run 1")


def test_of_many_that_darken_at_once_one_tells_news(state):
    Path(state).mkdir(mode=0o700)
    children = []
    for number in range(8):
        child = os.fork()
        if child == 0:
            os._exit(quota_file.darken(state, used_up(NOW + 60 + number, f"run {number}"), NOW))
        children.append(child)
    told = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(told) == [0] * 7 + [1]
    assert quota_file.read(state).quota == used_up(NOW + 67, "run 7")


def test_a_darkening_that_cannot_be_written_is_an_error(state, path):
    path.mkdir()
    with pytest.raises(StateError, match=f"cannot write {path}: "):
        quota_file.darken(state, DARK, NOW)
