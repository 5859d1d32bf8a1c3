"""The capacity guard (10): may this agent be given work by itself now? For automatic picks only.

Asked under the claim lock, of the units that the claim's own probe has just seen and of the ledger as it is then. So
two dispatchers with one slot start one run, and a pause counts from the moment at which it was made. What it answers is
what the plan was made from (`gtrun.planner.availability`).
"""

from gtrun.exits import Exit
from gtrun.guards.verdict import Pass, Question, Refuse, Verdict
from gtrun.planner import Bar

_HINTS = {Bar.PAUSED: "gtrun resume takes a pause back", Bar.FULL: "gtrun ps shows what runs"}


def check(question: Question) -> Verdict:
    """Refuse while the agent or its rig is paused, backs off, settles or is full."""
    found = question.availability() if question.availability is not None else None
    if found is None or found.bar is None:
        return Pass()
    hint = _HINTS.get(found.bar, "an issue that is named does not wait: gtrun dispatch AGENT ISSUE")
    return Refuse(found.why, Exit.NO_CAPACITY, hint, is_of_agent=True)
