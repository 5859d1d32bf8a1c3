"""What a dispatch says of itself, in Gas Town's words: DISPATCH_ATTEMPT, DISPATCH_OK and DISPATCH_FAIL. Pure.

A message is a subject of two words, its kind and the agent, and a body of lines `Key: value`:

    DISPATCH_FAIL alice
    Bead: 142
    Reason: the program 'codex' is not there

A bead is an issue. Any text can be a value and comes back as it was: what would begin another line, or be cut off at
an end, is written as an escape (`\\x0a`, `\\u2028`, `\\\\`), and an empty agent or bead as `\\e`.
"""

import re
from typing import ClassVar, TypeVar

import msgspec

from gtrun.text import plain

_EMPTY = "\\e"
_ESCAPE = r"\\(?:([\\e])|x([0-9a-f]{2})|u([0-9a-f]{4})|U(000[0-9a-f]{5}|0010[0-9a-f]{4}))"
_DISPATCHED = re.compile(r"(?:\S+\s+)?Dispatched\s+([0-9]{1,18})\b", re.ASCII)


class WrongMessageError(ValueError):
    """What is no message of the kind that was asked for, and why."""


class DispatchAttempt(msgspec.Struct, frozen=True):
    """An agent is about to be given an issue."""

    WORD: ClassVar[str] = "DISPATCH_ATTEMPT"
    agent: str
    bead: str


class DispatchOk(msgspec.Struct, frozen=True):
    """It was given it: the run is started."""

    WORD: ClassVar[str] = "DISPATCH_OK"
    agent: str
    bead: str


class DispatchFail(msgspec.Struct, frozen=True):
    """It was not, and why."""

    WORD: ClassVar[str] = "DISPATCH_FAIL"
    agent: str
    bead: str
    reason: str = ""


Message = DispatchAttempt | DispatchOk | DispatchFail
_Kind = TypeVar("_Kind", bound=Message)
_KINDS = (DispatchAttempt, DispatchOk, DispatchFail)


def subject_of(message: Message) -> str:
    """The subject, two words in one line."""
    return f"{message.WORD} {_escaped(message.agent, inside=True) or _EMPTY}"


def body_of(message: Message) -> str:
    """The body, a line for each field."""
    lines = [f"Bead: {_escaped(message.bead) or _EMPTY}"]
    if isinstance(message, DispatchFail):
        lines.append(f"Reason: {_escaped(message.reason)}".rstrip())
    return "\n".join(lines)


def parse(subject: str, body: str) -> Message:
    """Any of the three, by its subject. Raises WrongMessageError."""
    for kind in _KINDS:
        if subject.split()[:1] == [kind.WORD]:
            return _parse(kind, subject, body)
    raise WrongMessageError(f"expected a subject like 'DISPATCH_OK AGENT', found {plain(subject[:80])!r}")


def parse_dispatch_attempt(subject: str, body: str) -> DispatchAttempt:
    """Raises WrongMessageError for another subject, and for a body without `Bead:`."""
    return _parse(DispatchAttempt, subject, body)


def parse_dispatch_ok(subject: str, body: str) -> DispatchOk:
    """Raises WrongMessageError for another subject, and for a body without `Bead:`."""
    return _parse(DispatchOk, subject, body)


def parse_dispatch_fail(subject: str, body: str) -> DispatchFail:
    """A body without `Reason:` has an empty one. Raises WrongMessageError as the others do."""
    return _parse(DispatchFail, subject, body)


def parse_scheduler_run_dispatched(text: str) -> int:
    """How many runs a sweep has started, by the last line of what it printed that says so; 0 if none does."""
    for line in reversed(text.split("\n")):
        found = _DISPATCHED.match(line.strip())
        if found:
            return int(found[1])
    return 0


def _parse(kind: type[_Kind], subject: str, body: str) -> _Kind:
    """A key that is not known is ignored, and of a key that comes twice the last one counts."""
    words = subject.split()
    if len(words) != 2 or words[0] != kind.WORD:
        raise WrongMessageError(f"expected a subject like '{kind.WORD} AGENT', found {plain(subject[:80])!r}")
    said = {}
    for line in body.split("\n"):
        key, colon, value = line.strip().partition(":")
        if colon:
            said[key] = value.strip()
    if not said.get("Bead"):
        raise WrongMessageError(f"expected a line 'Bead: ISSUE' in the body of {kind.WORD}")
    fields = {"agent": words[1], "bead": said["Bead"], "reason": said.get("Reason", "")}
    return kind(**{name: _unescaped(fields[name]) for name in kind.__struct_fields__})


def _escaped(text: str, *, inside: bool = False) -> str:
    """A text in one line that has no white space at its ends, and with `inside` none at all."""
    told = plain(text.replace("\\", "\\\\"))
    body = told.strip()
    begin = told[: len(told) - len(told.lstrip())]
    end = told[len(begin) + len(body) :]
    if inside:
        body = "".join(_code(char) if char.isspace() else char for char in body)
    return "".join(map(_code, begin)) + body + "".join(map(_code, end))


def _code(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"


def _unescaped(text: str) -> str:
    """What a hand wrote with a backslash that begins no escape stays as it is."""
    return re.sub(_ESCAPE, _char, text)


def _char(escape: re.Match[str]) -> str:
    if escape[1]:
        return "" if escape[1] == "e" else escape[1]
    return chr(int(escape[2] or escape[3] or escape[4], 16))
