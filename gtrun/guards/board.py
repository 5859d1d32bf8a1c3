"""The board guard (13): is the issue work at all?

For an automatic pick also: is it still what was picked? The plan of a pass may be minutes old.
"""

from collections.abc import Sequence

from gtrun.board import disposal
from gtrun.exits import Exit
from gtrun.guards.verdict import Open, Pass, Question, Refuse, Verdict
from gtrun.model import Comment, Issue, Standing


def check(question: Question) -> Verdict:
    """Refuse an issue that is closed, carries a terminal mark or does not exist.

    Inside a dispatched run (GTRUN_BACKEND is set) it is skipped; the run's own disposal check never is.
    """
    if question.environment.get("GTRUN_BACKEND"):
        return Pass()
    view = question.board()
    if view.problem:
        return Open(view.problem, view.hint)
    if view.issue is None:
        return Refuse(
            f"issue {question.issue} does not exist on the board", Exit.NOT_WORK, "list what is there: gtrun board list"
        )
    why = disposal(view.issue, view.comments, question.terminal_labels, question.terminal_glyphs)
    if why is not None:
        return Refuse(f"issue {question.issue} is not work: {why}", Exit.NOT_WORK, _hint(view.issue, question))
    why = _held_back(view.issue, view.comments, question) if question.availability is not None else None
    if why is not None:
        return Refuse(f"issue {question.issue} is not ready any more: {why}", Exit.NOT_WORK)
    return Pass()


def _held_back(issue: Issue, comments: Sequence[Comment], question: Question) -> str | None:
    from gtrun.board.standing import standing  # noqa: PLC0415 - a dispatch that names its issue does without

    label = question.ready_label
    if label is None and issue.is_by_stranger:
        return "it was opened by a stranger"
    if label is not None and label.casefold() not in map(str.casefold, issue.labels):
        return f"it has no label {label!r}"
    if question.tries_again:  # the plan knows after how long; what was started since then is met under the lock
        return None
    stands = standing(issue, comments, (), question.terminal_labels, question.terminal_glyphs)
    return "a run of it has succeeded" if stands is Standing.AWAITING else None


def _hint(issue: Issue, question: Question) -> str:
    """What makes it work again, or what is meant instead. A comment on a local board stays."""
    if issue.is_pull:
        return "name the issue that it is for"
    if issue.moved_to:
        return f"name it as {issue.moved_to}"
    if not issue.is_open:
        return f"if it is work again: gtrun board reopen {issue.key}"
    terminal = [label for label in issue.labels if label.casefold() in map(str.casefold, question.terminal_labels)]
    if terminal:
        return f"if it is work again: gtrun board label {issue.key} --remove {terminal[0]}"
    return f"look at it: gtrun board show {issue.key}; delete that comment on GitHub, or open a new issue"
