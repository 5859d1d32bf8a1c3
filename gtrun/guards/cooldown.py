"""The cooldown guard (10): has this plugin succeeded a short while ago? By hand as well: it is the plugin's own.

Asked before the lock, where agents are asked how their runs of it have ended, and under the lock, where nobody has the
time for that: a run that was started in between, and may have succeeded already, then counts as one that has.
"""

from math import ceil

from gtrun.exits import Exit
from gtrun.guards.verdict import Open, Pass, Question, Refuse, Verdict
from gtrun.measures import human_seconds, left_of
from gtrun.names import in_words


def check(question: Question) -> Verdict:
    """Refuse until the cooldown has passed since the end of the last run that succeeded."""
    if question.cooldown is None or question.past is None:
        return Pass()
    past, what = question.past(), in_words(question.issue)
    if past.is_overtaken:
        return Refuse(
            f"{what} was started by another dispatch meanwhile, and rests after a run that succeeds",
            Exit.NO_CAPACITY,
            f"see what came of it: gtrun show {question.issue}",
        )
    if past.succeeded_at is not None:
        ago = question.now - past.succeeded_at
        left = left_of(question.cooldown, past.succeeded_at, question.now)
        if left:
            name = question.issue.partition(":")[2]
            return Refuse(
                f"{what} succeeded {human_seconds(max(0.0, ago))} ago: it rests for {human_seconds(ceil(left))} more",
                Exit.NO_CAPACITY,
                f"cooldown of [plugins.{name}] in fleet.toml says how long",
            )
        if ago < 0:
            return Open(f"{what} is said to succeed in {human_seconds(-ago)}: was the clock set back?")
    return Open(past.problem) if past.problem else Pass()
