"""The demo shows what it says, fails where that is not there, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness import cgroups
from harness.box import CHECKOUT, Box
from harness.conftest import MakeBox
from harness.control import Edit, prepare
from harness.demo.__main__ import Show, play
from harness.demo.stage import BoxStage, DemoFailed

DEMO = [sys.executable, "-B", "-m", "harness.demo"]
SECONDS = 120


def start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        DEMO,
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def cgroups_of(process: subprocess.Popen[str]) -> list[Path]:
    return list(cgroups.hierarchy().glob(f"{cgroups.FAMILY}/gtrun-box-{process.pid}-*"))


def test_it_passes_twice_and_colours_nothing_in_a_pipe() -> None:
    for _ in range(2):
        process = start()
        out, err = process.communicate(timeout=SECONDS)
        assert (process.returncode, err) == (0, "")
        assert "\x1b" not in out
        assert "root $ gtrun dispatch alice 1\n  started task-1.service on alice, run " in out
        assert cgroups_of(process) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_and_the_machine(number: signal.Signals) -> None:
    process = start()
    assert process.stdout is not None
    for line in process.stdout:
        if "gtrun dispatch alice 1" in line:
            break
    assert cgroups_of(process) != []
    os.killpg(process.pid, number)
    _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err.strip()) == (130, "demo: interrupted; nothing is left of it")
    assert cgroups_of(process) == []


def test_it_fails_where_the_product_does(make_box: MakeBox) -> None:
    box = make_box(group="fleet")
    prepare(box, [Edit("exits.py", "DUPLICATE = 11", "DUPLICATE = 12")])
    show = Show(BoxStage(box), colour=False)
    wrong = pytest.raises(DemoFailed, match="dispatch alice 1` ended with 12, and should have with 11")
    with wrong, contextlib.redirect_stdout(io.StringIO()):
        play(show)
    box.run("gtrun", "stop", "--all")


def test_one_agent_on_ones_own_manager(box: Box) -> None:
    """As scripts/demo plays for an account without root, in a checkout whose path a unit cannot name."""
    checkout = "/opt/a checkout"
    for path in (CHECKOUT / "harness").rglob("*"):
        if path.is_file() and path.suffix == ".py":
            mode = path.stat().st_mode & 0o777
            box.write(f"{checkout}/harness/{path.relative_to(CHECKOUT / 'harness')}", path.read_bytes(), mode=mode)
    box.run("ln", "-s", "/opt/gtrun", f"{checkout}/.venv")
    script = f"cd '{checkout}' && exec .venv/bin/python -B -m harness.demo --here"
    done = box.run("bash", "-c", script, account="alice", timeout=SECONDS)
    assert "alice $ gtrun dispatch me 1\n  started task-1.service on me, run " in done.out
    assert box.run("find", "/tmp", "-user", "alice").out == ""  # noqa: S108 - the box's
    assert box.run("find", "/home/alice", "-name", "*gtrun*").out == ""
