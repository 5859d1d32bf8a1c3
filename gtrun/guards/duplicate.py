"""The duplicate guard (11): does this agent run this issue already?

It reads and then others act, so two dispatchers can both pass it; what closes that gap is the unit's name, which the
manager gives away once. The guard is there to say so early and in plain words.
"""

from gtrun.exits import Exit
from gtrun.guards.verdict import Pass, Question, Refuse, Verdict
from gtrun.names import IssueKey
from gtrun.systemd.units import UnitState, is_live


def allowed(question: Question) -> bool:
    """Whether the caller asks for a second unit on purpose."""
    return question.environment.get("DISPATCH_ALLOW_DUPLICATE") == "1"


def check(question: Question) -> Verdict:
    """Refuse while any unit of this issue is live on this agent. Raises NoManager: without one nothing can start."""
    if allowed(question):
        return Pass()
    live = [unit for unit in question.units() if is_live(unit)]
    return refusal(question.agent, question.issue, live[0]) if live else Pass()


def refusal(agent: str, issue: IssueKey, unit: UnitState) -> Refuse:
    """The one wording for a live unit, whether the guard or the manager met it."""
    return Refuse(
        f"{unit.name} is already live on {agent} ({unit.active}/{unit.sub})",
        Exit.DUPLICATE,
        f"follow it with: gtrun logs -f {issue}",
    )
