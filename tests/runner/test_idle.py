"""What counts as idle, and how often one looks."""

import pytest

from gtrun.runner.idle import Reading, compare
from gtrun.systemd.idle import period


def never():
    pytest.fail("the journal was asked")


@pytest.mark.parametrize(
    ("before", "cpu", "last", "since"),
    [
        (None, 5.0, never, 200.0),  # the first look
        (Reading(100, 5.0, since=40), 5.2, never, 200.0),  # it used CPU
        (Reading(100, 5.0, since=40), 5.0, lambda: 0.0, 40),  # nothing, and it never said anything
        (Reading(100, 5.0, since=40), 5.0, lambda: 30.0, 40),  # nothing since
        (Reading(100, 5.0, since=40), 5.0, lambda: 90.0, 90.0),  # a line that came while it still used CPU
        (Reading(100, 5.0, since=40), 5.0, lambda: 199.0, 199.0),  # it speaks
        (Reading(100, 5.0, since=40), 5.09, lambda: 0.0, 40),  # an event loop's clock
    ],
)
def test_since_when_nothing_has_happened(before, cpu, last, since):
    assert compare(before, 200.0, cpu, last) == Reading(200.0, cpu, since)


def test_what_cannot_be_told_is_nothing():
    assert compare(Reading(100, 5.0, since=40), 200.0, 5.0, lambda: None) is None


@pytest.mark.parametrize(
    ("limit", "every"), [(1, 1), (59, 59), (60, 60), (120, 60), (600, 60), (1200, 120), (7200, 720)]
)
def test_a_look_is_cheap_or_asked_for(limit, every):
    assert period(limit) == every
