"""Pull requests as commands print them."""

from collections.abc import Sequence

from gtrun.cli.output import table
from gtrun.cli.times import iso, local
from gtrun.model import PullRequest
from gtrun.pulls import shipping_of


def as_dict(pull: PullRequest) -> dict[str, object]:
    """One, for a document."""
    return {
        "url": pull.url,
        "state": pull.state,
        "auto_merge": pull.auto_merge,
        "repo": pull.repo or None,
        "merged_at": iso(pull.merged_at),
    }


def show(pulls: Sequence[PullRequest]) -> None:
    """All of them, as a table; nothing for none."""
    rows = [(pull.url, pull.state, shipping_of(pull), local(pull.merged_at)) for pull in pulls]
    table(("PULL REQUEST", "STATE", "SHIPPING", "MERGED"), rows)
