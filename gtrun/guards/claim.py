"""The fleet claim (14): does any other agent run this issue?

Asked under the claim lock, which is held until the unit is started: between the answer and the start no other
dispatcher can ask. That is why this guard has no window, where the two before it have one.
"""

from gtrun.exits import Exit
from gtrun.guards.duplicate import allowed, refusal
from gtrun.guards.verdict import Open, Pass, Question, Refuse, Verdict
from gtrun.names import in_words
from gtrun.systemd.units import is_live


def check(question: Question) -> Verdict:
    """Refuse while a unit of this issue is live on any agent: 11 on this very one, 14 on another.

    There is no hatch; DISPATCH_ALLOW_DUPLICATE only lets this same agent's own units pass. An agent that cannot be
    asked leaves the claim open, unless another one answers that it has the run.
    """
    view = question.fleet()
    for agent, units in view.units.items():
        live = [unit for unit in units if is_live(unit)]
        if not live or (agent == question.agent and allowed(question)):
            continue
        if agent == question.agent:
            return refusal(agent, question.issue, live[0])
        there = f"{live[0].name} ({live[0].active}/{live[0].sub})"
        hint = f"look at it with: gtrun live {question.issue}"
        return Refuse(f"{in_words(question.issue)} is live on agent {agent}: {there}", Exit.CLAIMED, hint)
    if view.problem:
        return Open(view.problem)
    if view.unreachable:
        silent = "; ".join(f"{agent}: {why}" for agent, why in view.unreachable.items())
        return Open(f"not every agent could be asked: {silent}")
    return Pass()
