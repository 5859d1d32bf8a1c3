"""The guards: each asks one question before a dispatch and answers pass, refuse or open.

*Open* means that the guard could not tell. The run then proceeds, and that is said and counted: a false block stops the
fleet, which is worse than a wasted run. No guard writes to the issue: a refusal must not look like a terminal mark.

Order for a named issue: board (13), quota (9), duplicate (11), fleet claim (14). This version has the first and the
third; a new guard is a module here with one function `check(question) -> Verdict`, and a name in `ORDER`.
"""

from gtrun.guards import board, duplicate
from gtrun.guards.verdict import Open, Pass, Question, Refuse, Verdict

ORDER = (("board", board.check), ("duplicate", duplicate.check))

__all__ = ["ORDER", "Open", "Pass", "Question", "Refuse", "Verdict"]
