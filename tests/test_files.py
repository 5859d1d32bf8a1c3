"""Private files, and their locks."""

import fcntl
import os

import pytest

from gtrun.files import lock_at_once


def test_a_lock_is_taken_at_once_or_not_at_all(tmp_path):
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert lock_at_once(first)
    assert not lock_at_once(second)
    fcntl.flock(first, fcntl.LOCK_UN)
    assert lock_at_once(second)
    os.close(first)
    with pytest.raises(OSError, match="Bad file descriptor"):
        lock_at_once(first)
    os.close(second)
