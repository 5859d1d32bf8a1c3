"""How a box and the commands in it can end: the harness's errors and a command's result."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass


class BoxError(Exception):
    """The harness itself does not work; never the verdict of a scenario."""


class NeedsRoot(BoxError):
    """Booting a box needs root; the text has the command to type."""

    def __init__(self) -> None:
        command = shlex.join([sys.executable, *sys.orig_argv[1:]])
        super().__init__(
            "a box is booted by systemd-nspawn, which needs root: type `sudo scripts/test`, "
            f"or only this again: sudo {command}"
        )


class Unexpected(BoxError):
    """A command in a box ended otherwise than the caller said; has argv, code and both streams."""

    def __init__(self, done: Completed, expected: int) -> None:
        self.done = done
        super().__init__(
            f"{done.argv} as {done.account}: exit {done.code}, expected {expected}\n"
            f"--- stdout\n{done.out}\n--- stderr\n{done.err}"
        )


class Hung(BoxError):
    """A command or a condition in a box took longer than its time limit."""


@dataclass(frozen=True, slots=True)
class Account:
    """A unix account in a box."""

    name: str
    uid: int
    home: str


@dataclass(frozen=True, slots=True)
class Completed:
    """What a command in a box did; a negative code is the signal that ended it, as in subprocess."""

    argv: tuple[str, ...]
    account: str
    code: int
    stdout: bytes
    stderr: bytes

    @property
    def out(self) -> str:
        """Standard output as text; what is not UTF-8 shows as escapes."""
        return self.stdout.decode(errors="backslashreplace")

    @property
    def err(self) -> str:
        """Standard error as text; what is not UTF-8 shows as escapes."""
        return self.stderr.decode(errors="backslashreplace")
