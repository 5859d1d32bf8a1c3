"""What a guard is asked, and what it answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gtrun.exits import Exit
from gtrun.model import Comment, Issue
from gtrun.names import IssueKey
from gtrun.systemd.units import UnitState


@dataclass(frozen=True, slots=True)
class Pass:
    """Nothing speaks against it."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """It must not be started, and why; `code` is the exit code that says so."""

    reason: str
    code: Exit
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Open:
    """The guard could not tell, and why."""

    reason: str


Verdict = Pass | Refuse | Open


@dataclass(frozen=True, slots=True)
class BoardView:
    """What the board said about the issue: one reading for all who ask. `problem` is set if it did not answer."""

    issue: Issue | None = None
    comments: tuple[Comment, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """One dispatch as the guards see it. `board` and `units` are asked when a guard needs them."""

    issue: IssueKey
    agent: str
    environment: Mapping[str, str]
    terminal_labels: tuple[str, ...]
    terminal_glyphs: tuple[str, ...]
    board: Callable[[], BoardView]
    units: Callable[[], list[UnitState]]
