"""What an issue's markers tell of its earlier runs, for the prompt of the next one. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from gtrun.markers import Kind, parse, without_machine_lines
from gtrun.model import Comment
from gtrun.text import shorten

_LONGEST = 2000


class Previous(msgspec.Struct, frozen=True):
    """The number of the next attempt, from 1, and how the one before it ended; empty if none has."""

    attempt: int
    text: str


def previous(comments: Iterable[Comment]) -> Previous:
    """What the markers among an issue's comments, oldest first, tell: of every agent's runs on every rig.

    It is text of comments, so it is for a prompt, as the issue's own text.
    """
    runs, text = set(), ""
    for comment in comments:
        marker = parse(comment.body)
        if marker is None:
            continue
        runs.add(marker.run)
        if marker.kind is Kind.FINISHED:
            when = f"{datetime.fromtimestamp(comment.at, UTC):%Y-%m-%d %H:%M UTC}"
            text = f"The attempt before this one ended on {when}:\n\n"
            text += shorten(without_machine_lines(comment.body), _LONGEST) + "\n"
    return Previous(len(runs) + 1, text)
