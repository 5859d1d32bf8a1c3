"""A box for a person to look around in: `python -m harness.box [--account NAME] [-- COMMAND …]`."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

from harness.box import CHECKOUT, Box, BoxError, NeedsRoot


def main(arguments: Sequence[str]) -> int:
    """Boot a box for a person; gives the command's exit code."""
    parser = argparse.ArgumentParser("python -m harness.box", description="Boot a throwaway box and enter it.")
    parser.add_argument("--account", default="alice", help="who to be in it: alice, bob, root")
    parser.add_argument("--no-gtrun", action="store_true", help="without /opt/gtrun")
    parser.add_argument("command", nargs="*", help="what to run instead of a shell; after --")
    chosen = parser.parse_args(arguments)
    try:
        with Box(venv=None if chosen.no_gtrun else CHECKOUT / ".venv") as box:
            print(f"box up in {box.boot_seconds:.2f} s; it goes when you leave it", file=sys.stderr)
            command = chosen.command or ["bash", "-l"]
            term = {"TERM": os.environ.get("TERM", "dumb")}
            return _outlive(box.spawn(*command, account=chosen.account, env=term, stdin=None, stdout=None, stderr=None))
    except BoxError as error:
        print(f"harness: {error}", file=sys.stderr)
        return 78 if isinstance(error, NeedsRoot) else 1


def _outlive(process: subprocess.Popen[bytes]) -> int:
    """Wait for a program that shares our terminal: its ^C is its own affair."""
    with _deaf_to_interrupts():
        return process.wait()


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
