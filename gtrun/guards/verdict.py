"""What a guard is asked, and what it answers."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from gtrun.exits import Exit
from gtrun.model import Comment, Issue
from gtrun.names import IssueKey
from gtrun.quota import QuotaFile
from gtrun.systemd.units import UnitState

if TYPE_CHECKING:  # a dispatch that names its issue does not pay for the planner
    from gtrun.planner import Availability


class Pass(msgspec.Struct, frozen=True):
    """Nothing speaks against it."""


class Refuse(msgspec.Struct, frozen=True):
    """It must not be started, and why; `code` is the exit code that says so. `is_of_agent`: another may take it."""

    reason: str
    code: Exit
    hint: str = ""
    is_of_agent: bool = False


class Open(msgspec.Struct, frozen=True):
    """The guard could not tell, and why."""

    reason: str
    hint: str = ""


Verdict = Pass | Refuse | Open


class BoardView(msgspec.Struct, frozen=True):
    """What the board said about the issue: one reading for all who ask. `problem` is set if it did not answer.

    `hint` is what mends that. `identity` is the board's own, empty if it has none yet.
    """

    issue: Issue | None = None
    comments: tuple[Comment, ...] = ()
    problem: str = ""
    hint: str = ""
    identity: str = ""


class FleetView(msgspec.Struct, frozen=True):
    """The units of the issue on every agent that answered, and why the others did not.

    `problem` is set if what was seen may change before the start: the claim lock was not to be had.
    """

    units: Mapping[str, list[UnitState]]
    unreachable: Mapping[str, str]
    problem: str = ""


class Past(msgspec.Struct, frozen=True):
    """What is known of a plugin's earlier runs: when the last one that succeeded ended, in seconds since the epoch.

    `newest` names the last attempt that was started, `is_overtaken` says that there was another one when this dispatch
    began. `problem` is why one run's end is not known.
    """

    succeeded_at: float | None = None
    newest: str = ""
    is_overtaken: bool = False
    problem: str = ""


class Question(msgspec.Struct, frozen=True):
    """One dispatch as the guards see it. What is callable is asked when a guard needs it.

    `now` is in seconds since the epoch; `units` are those of the issue on the agent itself. `availability` is what the
    agent can take by itself, and `ready_label` the label of what is handed out, None for what a person named an agent
    for. `is_overtaken` is whether an issue that was picked was started since; `tries_again` whether one that has
    succeeded may be picked. `cooldown` and `past` are those of a plugin, None for one without, and for an issue.
    """

    issue: IssueKey
    agent: str
    environment: Mapping[str, str]
    terminal_labels: tuple[str, ...]
    terminal_glyphs: tuple[str, ...]
    now: float
    board: Callable[[], BoardView]
    quota: Callable[[], QuotaFile]
    units: Callable[[], list[UnitState]]
    fleet: Callable[[], FleetView]
    availability: "Callable[[], Availability] | None" = None
    ready_label: str | None = None
    is_overtaken: Callable[[], bool] | None = None
    tries_again: bool = False
    cooldown: float | None = None
    past: Callable[[], Past] | None = None
