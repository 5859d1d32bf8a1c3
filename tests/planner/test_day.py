"""A small day on paper (`scripts/day` plays the whole one): what each pass asserts, and what is true in the evening."""

import pytest

from gtrun.counters import FAILURES
from gtrun.model import Result
from tests.planner.day import BEGIN, HOUR, SMALL, Day
from tests.planner.picture import draw


@pytest.fixture(scope="module")
def day():
    return Day(7, SMALL).play()


def test_nobody_is_starved(day):
    """What can be done is done, and what never succeeds rests; whatever is blocked by that is all that is left."""
    left = list(day.open.values())
    assert all(job.is_poison or day._is_stuck(job) for job in left)
    assert len(left) < SMALL.issues / 10
    assert day.counts[Result.SUCCESS] == SMALL.issues - len(left)


def test_it_was_a_day_with_mishaps(day):
    """A day in which nothing goes wrong would show nothing."""
    assert all(day.counts[result] for result in (*FAILURES, Result.QUOTA))
    states = {state for moment in day.moments for state, number in moment.states.items() if number}
    assert {"working", "waiting out", "dark", "unreachable", "paused", "free"} <= states
    assert max(moment.waiting for moment in day.moments) > 50


def test_what_fails_is_not_tried_for_ever(day):
    """At most three failures in any 24 hours."""
    assert any(len(times) >= 3 for times in day.failed.values())
    for times in day.failed.values():
        ordered = sorted(times)
        assert all(late - early >= 24 * HOUR for early, late in zip(ordered, ordered[3:], strict=False))


def test_a_seed_replays():
    size = type(SMALL)(agents=4, rigs=2, issues=60, hours=6)
    one, two, other = (Day(seed, size).play() for seed in (3, 3, 4))
    assert (one.counts, one.moments) == (two.counts, two.moments)
    assert one.counts != other.counts


def test_its_picture_is_whole(day):
    text = draw([one for one in day.moments if one.hour <= SMALL.hours], "a test")
    assert text.startswith("<svg ")
    assert text.endswith("</svg>\n")
    assert text.count("<polygon") == 6
    assert "nan" not in text
    assert day.now > BEGIN
