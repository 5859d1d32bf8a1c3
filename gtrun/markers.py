"""The comments by which an issue says that a run started and how it ended.

Each carries an invisible machine-readable line with the run's ID, so a board can tell that it has this very marker
already, however often it is posted. A marker never begins with a terminal glyph: it must not look like "done".
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from gtrun.measures import human_bytes, human_seconds
from gtrun.model import Ending, PullRequest, ResolvedRun, Result
from gtrun.names import RunId
from gtrun.pulls import Shipping, all_in_words, shipping
from gtrun.text import plain

MACHINE_LINE = "<!-- gtrun:"
"""How the line begins that makes a comment a marker."""

_LINE = re.compile(r"^<!-- gtrun:(started|finished) run=([0-9a-f]{32})(?: result=([a-z-]{1,20}))? -->$", re.MULTILINE)


class Kind(StrEnum):
    """Which of a run's two markers."""

    STARTED = "started"
    FINISHED = "finished"


def machine_line(kind: Kind, run: RunId, result: Result | None = None) -> str:
    """The line that identifies a marker; HTML comments are not rendered."""
    return f"<!-- gtrun:{kind} run={run}{f' result={result}' if result else ''} -->"


class Marker(msgspec.Struct, frozen=True):
    """What a marker's machine line tells; `result` is empty in a started one, and where it was not told yet."""

    kind: Kind
    run: RunId
    result: str = ""


def parse(body: str) -> Marker | None:
    """The marker that a comment is; None for any other comment, such as one that quotes a marker."""
    for line in _LINE.finditer(body):
        if line.end() == len(body.rstrip()):
            return Marker(Kind(line[1]), RunId(line[2]), line[3] or "")
    return None


def without_machine_lines(body: str) -> str:
    """A comment's body as a person reads it."""
    return _LINE.sub("", body).rstrip()


def started(resolved: ResolvedRun, run: RunId, notes: Sequence[str] = ()) -> str:
    """The body of the started marker."""
    who = f"agent `{resolved.agent}` on rig `{resolved.rig}`"
    lines = [f"gtrun: **started** by {who}: unit `{resolved.unit}`, run `{run}`."]
    lines += [f"Note: {plain(note)}." for note in notes]
    return "\n\n".join([*lines, machine_line(Kind.STARTED, run)])


def outcome(ending: Ending) -> str:
    """How a run ended, in a few words: `failed, exit code 3 (disk full)`."""
    how = ending.result.value
    if ending.signal is not None:
        how += f", signal {ending.signal.removeprefix('SIG')}"
    elif ending.exit_code is not None:
        how += f", exit code {ending.exit_code}"
    return how + (f" ({plain(ending.reason)})" if ending.reason else "")


def used(ending: Ending) -> str:
    """What a run took: `3m 20s, CPU 41s, peak memory 1.4G`."""
    parts = []
    if ending.duration is not None:
        parts.append(human_seconds(ending.duration))
    if ending.usage.cpu is not None:
        parts.append(f"CPU {human_seconds(ending.usage.cpu)}")
    if ending.usage.memory_peak is not None:
        parts.append(f"peak memory {human_bytes(ending.usage.memory_peak)}")
    return ", ".join(parts)


def finished(
    resolved: ResolvedRun,
    run: RunId,
    ending: Ending,
    pulls: Sequence[PullRequest] | None = None,
    problem: str = "",
) -> str:
    """The body of the finished marker: with it how far the work has come, which no exit code tells.

    `pulls` are the issue's pull requests; None if they could not be asked for, which `problem` explains.
    """
    who = f"agent `{resolved.agent}` on rig `{resolved.rig}`"
    took = used(ending)
    how = outcome(ending) + (f", in {took}" if took else "")
    lines = [f"gtrun: **finished** by {who}: {how}. Unit `{resolved.unit}`, run `{run}`."]
    if ending.resets_at is not None:
        until = f"{datetime.fromtimestamp(ending.resets_at, UTC):%Y-%m-%d %H:%M UTC}"
        lines.append(f"The quota of `{resolved.agent}` is used up until {until}. That is no failure of this work.")
    lines.append(_shipping(ending, pulls, problem))
    return "\n\n".join([*lines, machine_line(Kind.FINISHED, run, ending.result)])


def _shipping(ending: Ending, pulls: Sequence[PullRequest] | None, problem: str) -> str:
    if pulls is None:
        why = f" ({plain(problem)})" if problem else ""
        told = [f"whether there is a pull request for this issue could not be asked{why}"]
    else:
        told = [plain(sentence) for sentence in all_in_words(pulls)]
    if ending.result is Result.SUCCESS and shipping(pulls or ()) is not Shipping.MERGED:
        told[0] = f"An exit code is not a merge: {told[0]}"
    return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in told)
