"""Where an issue stands, as far as its board tells: ready, or finished and waiting for a person. Pure."""

from collections.abc import Iterable, Sequence

from gtrun.board import disposal
from gtrun.markers import Kind, parse
from gtrun.model import Comment, Issue, PullRequest, PullState, Result, Standing

_DONE = frozenset({Result.SUCCESS.value, ""})  # "": a marker from before it told its result


def standing(
    issue: Issue,
    comments: Iterable[Comment],
    pulls: Sequence[PullRequest],
    terminal_labels: Iterable[str],
    terminal_glyphs: Iterable[str],
) -> Standing:
    """Where the issue stands.

    A run that succeeded, or a merged pull request, ends the board's call for more work until somebody says otherwise:
    reopens the issue or changes its labels. Whether a run of it is live, and whether it is blocked, is not asked here.
    A comment counts by what it says: give it only those of authors who are believed.
    """
    comments = list(comments)
    if disposal(issue, comments, terminal_labels, terminal_glyphs):
        return Standing.NOT_WORK
    since = issue.turned_at or 0.0
    if any(pull.state is PullState.MERGED and (pull.merged_at is None or pull.merged_at > since) for pull in pulls):
        return Standing.SHIPPED
    markers = (parse(comment.body) for comment in comments if comment.at > since)
    done = any(marker and marker.kind is Kind.FINISHED and marker.result in _DONE for marker in markers)
    return Standing.AWAITING if done else Standing.READY
