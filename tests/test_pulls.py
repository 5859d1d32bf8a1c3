"""How far an issue's work has come: the best of its pull requests counts."""

import itertools

import pytest

from gtrun.model import PullRequest, PullState
from gtrun.pulls import Shipping, all_in_words, best_first, shipping

CLOSED = PullRequest(url="closed", state=PullState.CLOSED)
DRAFT = PullRequest(url="draft", state=PullState.DRAFT)
OPEN = PullRequest(url="open", state=PullState.OPEN)
ARMED = PullRequest(url="armed", state=PullState.OPEN, auto_merge=True)
MERGED = PullRequest(url="merged", state=PullState.MERGED)
WORST_FIRST = [CLOSED, DRAFT, OPEN, ARMED, MERGED]


@pytest.mark.parametrize(
    ("pulls", "best"),
    [
        ([], Shipping.NONE),
        ([CLOSED], Shipping.CLOSED),
        ([DRAFT], Shipping.OPEN),
        ([OPEN, CLOSED], Shipping.OPEN),
        ([OPEN, ARMED], Shipping.ARMED),
        ([CLOSED, MERGED, ARMED], Shipping.MERGED),
        ([PullRequest(url="x", state=PullState.CLOSED, auto_merge=True)], Shipping.CLOSED),
    ],
)
def test_the_best_counts(pulls, best):
    assert shipping(pulls) is best


def test_the_best_comes_first_in_whatever_order_they_are_told():
    for order in itertools.permutations(WORST_FIRST):
        assert best_first(order) == WORST_FIRST[::-1]


def test_none_is_a_sentence_too():
    assert all_in_words([]) == ["there is no pull request for this issue"]
    assert all_in_words([ARMED, CLOSED]) == [
        "pull request armed is open with auto-merge armed, and not merged",
        "pull request closed was closed without a merge",
    ]
