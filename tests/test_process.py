"""Programs with a deadline: their end is ours to make, with all that they started."""

import os
import signal
import time
from pathlib import Path

import pytest

from gtrun.errors import GtrunError
from gtrun.process import finish


def sh(script, deadline=30.0):
    return finish(["/bin/sh", "-c", script], environment={"PATH": "/usr/bin:/bin", "A": "b"}, deadline=deadline)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_it_prints_and_returns():
    done = sh("env | sort; echo oops >&2; exit 3")
    assert (done.code, done.errors) == (3, "oops\n")
    assert "A=b\n" in done.output
    assert "HOME" not in done.output


def test_a_program_that_is_not_there():
    done = finish(["gtrun-none"], environment={"PATH": "/usr/bin"}, deadline=5.0)
    assert (done.code, done.errors) == (127, "gtrun-none: No such file or directory")


def test_it_has_no_terminal_no_input_and_makes_what_all_can_read(tmp_path):
    before = os.umask(0o077)
    try:
        done = sh(f"cat; setsid -w true; cat /proc/$$/stat; echo >{tmp_path}/made")
    finally:
        os.umask(before)
    pid, session = (int(done.output.rpartition(")")[2].split()[index]) for index in (2, 3))
    assert pid == session != os.getsid(0)
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("script", ["sleep 300 & echo $! >pid; wait", "sleep 300 & echo $! >pid; yes"])
def test_the_deadline_ends_it_with_its_children(script, tmp_path):
    with pytest.raises(GtrunError, match="sh did not end within 1 s"):
        sh(f"cd {tmp_path}; {script}", deadline=1.0)
    child = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 10
    while is_alive(child):
        assert time.monotonic() < until


def test_a_child_that_keeps_its_output_open_holds_up_nobody(tmp_path):
    began = time.monotonic()
    assert sh(f"setsid sleep 60 & echo $! >{tmp_path}/pid; echo done").output == "done\n"
    assert time.monotonic() - began < 30
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_what_is_kept_is_bounded():
    done = sh("head -c 3000000 /dev/zero; echo end >&2")
    assert (len(done.output), done.errors) == (1 << 20, "end\n")
