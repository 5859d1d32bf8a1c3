"""A closed far end is ^C, in whatever wait it comes."""

import os
import subprocess
import sys

import pytest

# -E: with $PYTHONUNBUFFERED Python itself loses the rest of a write that a signal has cut short
SCRIPT = """
import select, sys
from gtrun.hangup import interrupt_on_hangup
try:
    interrupt_on_hangup(1)
    print("ready", flush=True)
    print("x" * 200_000, flush=True)  # room in a full pipe is a signal too
    select.select([], [], [], 20)
except KeyboardInterrupt:
    sys.stderr.write("interrupted")
    sys.exit(130)
sys.stderr.write("not noticed")
"""


@pytest.mark.parametrize("kind", ["pipe", "closed before", "file"])
def test_it_is_noticed(kind, tmp_path):
    if kind == "file":
        with (tmp_path / "out").open("wb") as out:
            script = SCRIPT.replace("20)", "0.2)")
            done = subprocess.run([sys.executable, "-Ec", script], stdout=out, stderr=subprocess.PIPE, check=False)
        assert (done.returncode, done.stderr) == (0, b"not noticed")
        return
    read, write = os.pipe()
    if kind == "closed before":
        os.close(read)
    with subprocess.Popen([sys.executable, "-Ec", SCRIPT], stdout=write, stderr=subprocess.PIPE) as child:
        os.close(write)
        if kind == "pipe":
            with os.fdopen(read, "rb") as stream:
                assert stream.readline() == b"ready\n"
                assert len(stream.readline()) == 200_001
        _, errors = child.communicate(timeout=15)
    assert (child.returncode, errors) == (130, b"interrupted")
