"""The guards: each asks one question before a dispatch and answers pass, refuse or open.

*Open* means that the guard could not tell. The run then proceeds, and that is said and counted: a false block stops the
fleet, which is worse than a wasted run. No guard writes to the issue: a refusal must not look like a terminal mark.

Order for a named issue: board (13), quota (9), duplicate (11), then under the claim lock the fleet claim (14); for an
automatic pick also what the agent can take (10), and whether anybody was faster with the issue (13). A plugin is on no
board and uses no entitlement: its order is duplicate, cooldown (10), then under the lock what it is for an issue, and
the cooldown once more. A new guard is a module here with one function `check(question) -> Verdict`, and a name in
`ORDER`.
"""

from collections.abc import Callable, Sequence

from gtrun.guards import board, claim, duplicate, quota
from gtrun.guards.verdict import Open, Pass, Question, Refuse, Verdict
from gtrun.names import plugin_name

Guard = tuple[str, Callable[[Question], Verdict]]
"""A guard's name and its check."""

ORDER: tuple[Guard, ...] = (("board", board.check), ("quota", quota.check), ("duplicate", duplicate.check))
"""The guards before the lock, of an issue."""

CLAIM: Guard = ("claim", claim.check)
"""The guard under the lock."""


def before_lock(question: Question) -> Sequence[Guard]:
    """All guards before the lock."""
    return ORDER if plugin_name(question.issue) is None else [("duplicate", duplicate.check), *_cooldown(question)]


def under_lock(question: Question) -> Sequence[Guard]:
    """All guards under the lock: an automatic pick also asks what the agent can take, and who was faster."""
    if question.availability is None:
        return [CLAIM, *_cooldown(question)]
    # a dispatch that names its issue does not pay for the planner
    from gtrun.guards import capacity, overtaken  # noqa: PLC0415

    own = _cooldown(question) if question.is_overtaken is None else [("overtaken", overtaken.check)]
    return [CLAIM, ("capacity", capacity.check), *own]


def _cooldown(question: Question) -> list[Guard]:
    if question.cooldown is None:
        return []
    from gtrun.guards import cooldown  # noqa: PLC0415 - only a plugin has one

    return [("cooldown", cooldown.check)]


__all__ = ["CLAIM", "ORDER", "Guard", "Open", "Pass", "Question", "Refuse", "Verdict", "before_lock", "under_lock"]
