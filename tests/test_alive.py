"""A process's name stays its own when its number is given to another."""

import os
import subprocess
import sys

from gtrun import alive

SAY = "from gtrun import alive; print(alive.this_process(), flush=True); input()"


def test_a_process_runs_until_it_has_ended():
    with subprocess.Popen([sys.executable, "-c", SAY], stdin=-1, stdout=-1, text=True) as child:
        name = child.stdout.readline().strip()
        assert alive.is_running(name)
        child.communicate("\n", timeout=20)
    assert not alive.is_running(name)


def test_a_number_alone_is_not_a_process():
    boot, pid, start = alive.this_process().split(":")
    assert alive.is_running(f"{boot}:{pid}:{start}")
    assert not alive.is_running(f"{boot}:{pid}:{int(start) + 1}")
    assert not alive.is_running(f"00000000-0000-0000-0000-000000000000:{pid}:{start}")


def test_a_zombie_has_ended():
    with subprocess.Popen([sys.executable, "-c", SAY], stdin=-1, stdout=-1, text=True) as child:
        name = child.stdout.readline().strip()
        child.stdin.write("\n")
        child.stdin.flush()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and nobody has reaped it
        assert not alive.is_running(name)
