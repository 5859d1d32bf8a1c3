"""The quota guard (9): is the agent's entitlement used up, and its reset not yet here?"""

from datetime import UTC, datetime

from gtrun.exits import Exit
from gtrun.guards.verdict import Open, Pass, Question, Refuse, Verdict
from gtrun.quota import dark_until
from gtrun.text import shorten

_SOURCE_LENGTH = 200
"""Characters: the agent writes it, and it goes on one line."""


def check(question: Question) -> Verdict:
    """Refuse while the agent's own state file says so. A file that cannot be understood fails open."""
    if question.environment.get("DISPATCH_IGNORE_QUOTA") == "1":
        return Pass()
    try:
        dark = dark_until(question.quota(), question.now)
    except ValueError as error:
        return Open(str(error))
    if dark is None:
        return Pass()
    when = f"{datetime.fromtimestamp(dark.at, tz=UTC):%Y-%m-%dT%H:%M:%SZ}"
    source = f" ({shorten(dark.source, _SOURCE_LENGTH)})" if dark.source else ""
    return Refuse(
        f"the quota of {question.agent} is used up until {when}{source}",
        Exit.QUOTA,
        f"if that is wrong: gtrun quota clear {question.agent}",
    )
