"""The overtaken guard (13): was the issue that was picked started by another dispatch since? For automatic picks only.

A short run is over before a pass comes to what it planned: then nothing of it is live for the claim to meet. So this is
asked under the claim lock, of the ledger as it is then. What came of that run is for the next plan.
"""

from gtrun.exits import Exit
from gtrun.guards.verdict import Pass, Question, Refuse, Verdict


def check(question: Question) -> Verdict:
    """Refuse what was started since it was picked."""
    if question.is_overtaken is None or not question.is_overtaken():
        return Pass()
    return Refuse(
        f"issue {question.issue} is not ready any more: another dispatch has started it meanwhile",
        Exit.NOT_WORK,
        f"see what came of it: gtrun show {question.issue}",
    )
