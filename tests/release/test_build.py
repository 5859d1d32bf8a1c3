"""Making a release: who may, and when."""

import pytest

from gtrun.release.build import Busy, locked


def test_one_at_a_time_changes_an_installation(tmp_path):
    with locked(tmp_path), pytest.raises(Busy, match="another update is under way"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_what_fails_within_the_lock_is_not_told_as_the_lock(tmp_path):
    with pytest.raises(BlockingIOError), locked(tmp_path):
        raise BlockingIOError
