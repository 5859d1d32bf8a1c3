"""Whether a run ended because its agent's quota is used up, and until when: from its exit code and last lines. Pure.

A pattern is text that a line contains, whatever the case of its letters a to z; `*` stands for anything between. It is
found in one pass: no text, however hostile, makes that slow.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import tzinfo
from string import ascii_lowercase, ascii_uppercase

import msgspec

from gtrun.quota import HORIZON
from gtrun.resets import stated
from gtrun.text import plain, shorten

LINES = 25
"""How many of a run's last lines are looked at: the sentence, and the stack that some programs print after it."""

UNSTATED = 3600.0
"""How long an agent is dark, in seconds, if nobody said until when in a way that can be believed."""

LEAST = 60.0
"""How long it is dark at least: a reset that is about to come must not be met by the next run."""

PATTERNS: Mapping[str, tuple[str, ...]] = {
    # https://code.claude.com/docs/en/errors, and the issues of anthropics/claude-code
    "claude": (
        "usage limit reached", "hit your limit", "hit your session limit", "hit your weekly limit",
        "hit your usage limit", "hit your opus limit", "hit your sonnet limit", "hit your * limit · resets",
        "hour limit reached", "weekly limit reached", "credit balance is too low",
    ),
    # the issues of openai/codex; the last is the API's own word, in the JSON that `codex exec --json` prints
    "codex": ("hit your usage limit", "usage_limit_reached", "exceeded your current quota"),
    # the issues of google-gemini/gemini-cli
    "gemini": (
        "exhausted your capacity on this model", "exhausted your daily quota", "exceeded your current quota",
        "quota exceeded for quota metric", "TerminalQuotaError",
    ),
}  # fmt: skip
"""What the agent programs of the shipped profiles print when their quota is used up, by backend."""

_LONGEST_LINE = 64 * 1024  # journald itself cuts at 48 KiB
_JUST_PAST = 300.0  # seconds
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)  # one character for one: a place in either is one in the other
_SHOWN = 160
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|[@-Z\\^_])")
_ONGOING = "retrying"  # a program that tries again by itself has not ended of it


class Exhausted(msgspec.Struct, frozen=True):
    """The quota is used up: the line that says so, escaped, and until when in seconds since the epoch."""

    line: str
    resets_at: float


def patterns_of(backend: str, program: str) -> tuple[str, ...]:
    """The shipped patterns for a backend, or for the name of the program that is in fact executed."""
    name = program.rpartition("/")[2]
    return tuple(dict.fromkeys((*PATTERNS.get(backend, ()), *PATTERNS.get(name, ()))))


def exhausted(
    lines: Sequence[str],
    exit_code: int,
    *,
    patterns: Iterable[str],
    exit_codes: Collection[int] = (),
    now: float,
    local: tzinfo | None = None,
) -> Exhausted | None:
    """What a run that ended with this code, not 0, said of its quota in its last lines; None if nothing.

    `now` is when it ended, `local` the zone in which it tells the time. The last line that a pattern is in counts;
    its time may be on one of the lines behind it.
    """
    texts = [_text(line) for line in lines[-LINES:]]
    wanted = [pattern.translate(_LOWER) for pattern in patterns]
    for number in reversed(range(len(texts))):
        place = _found(texts[number], wanted)
        if place is not None:
            around = 0 if place < _SHOWN // 2 else place
            told = [texts[number][place:], *texts[number + 1 : number + 4]]
            return Exhausted(_shown(texts[number][around:]), _until(told, now, local))
    if exit_code in exit_codes:
        told = [text for text in reversed(texts) if stated(text, now, local)]
        return Exhausted(f"exit code {exit_code}", _until(told, now, local))
    return None


def _place(text: str, pattern: str) -> int | None:
    """Where a pattern begins in a text. Its parts are sought one behind the other, each once."""
    begin, end = None, 0
    for part in filter(None, pattern.split("*")):
        found = text.find(part, end)
        if found < 0:
            return None
        begin, end = found if begin is None else begin, found + len(part)
    return begin


def _found(text: str, patterns: Iterable[str]) -> int | None:
    """Where the first pattern that is in the text begins."""
    lower = text.translate(_LOWER)
    if _ONGOING in lower:
        return None
    return next((place for pattern in patterns if (place := _place(lower, pattern)) is not None), None)


def _text(line: str) -> str:
    """A line without what only a terminal understands, and cut."""
    return _ESCAPES.sub("", line[:_LONGEST_LINE]).replace("\u2019", "'")


def _shown(text: str) -> str:
    return shorten(plain(text[:_SHOWN].strip()), _SHOWN)


def _until(texts: Iterable[str], now: float, local: tzinfo | None) -> float:
    """The first believable instant in the texts: neither long past nor absurdly far, which nobody can wait for."""
    for text in texts:
        instant = stated(text, now, local)
        if instant is not None and now - _JUST_PAST <= instant <= now + HORIZON:
            return max(instant, now + LEAST)
    return now + UNSTATED
