"""How far the pull requests of an issue have come: what an exit code does not prove. Pure."""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from gtrun.model import PullRequest, PullState


class Shipping(StrEnum):
    """How far an issue's work has come, the farthest first."""

    MERGED = "merged"
    ARMED = "auto-merge armed"
    OPEN = "open"
    CLOSED = "closed unmerged"
    NONE = "none"


_ORDER = list(Shipping)


def shipping_of(pull: PullRequest) -> Shipping:
    """How far one pull request has come."""
    match pull.state:
        case PullState.MERGED:
            return Shipping.MERGED
        case PullState.CLOSED:
            return Shipping.CLOSED
        case _:
            return Shipping.ARMED if pull.auto_merge else Shipping.OPEN


def shipping(pulls: Iterable[PullRequest]) -> Shipping:
    """How far the one has come that has come farthest: only a merged one ships an issue."""
    return min(map(shipping_of, pulls), key=_ORDER.index, default=Shipping.NONE)


def best_first(pulls: Iterable[PullRequest]) -> list[PullRequest]:
    """Those that have come farthest first, drafts behind what is ready; otherwise as they came."""
    return sorted(pulls, key=lambda pull: (_ORDER.index(shipping_of(pull)), pull.state is PullState.DRAFT))


def in_words(pull: PullRequest) -> str:
    """What has become of one pull request: `is open, and not merged`."""
    draft = " as a draft" if pull.state is PullState.DRAFT else ""
    match shipping_of(pull):
        case Shipping.MERGED:
            return "is merged"
        case Shipping.ARMED:
            return f"is open{draft} with auto-merge armed, and not merged"
        case Shipping.CLOSED:
            return "was closed without a merge"
        case _:
            return f"is open{draft}, and not merged"


def all_in_words(pulls: Sequence[PullRequest]) -> list[str]:
    """A sentence for each, without its final stop; one if there is none."""
    none = "there is no pull request for this issue"
    return [f"pull request {pull.url} {in_words(pull)}" for pull in pulls] or [none]
