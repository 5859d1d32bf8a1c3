"""The cooldown guard: the time since the last success, an end that is not known, and who was faster."""

import pytest
from msgspec.structs import replace

from gtrun.exits import Exit
from gtrun.guards import Open, Pass, Refuse, before_lock, cooldown, under_lock
from gtrun.guards.verdict import Past
from gtrun.names import IssueKey

NOW = 1_000_000.0


@pytest.fixture
def asks(asked):
    """The guard's answer about a plugin with a cooldown of an hour."""

    def ask(past, rests=3600.0):
        return cooldown.check(asked(issue=IssueKey("plugin:disk"), now=NOW, cooldown=rests, past=lambda: past))

    return ask


@pytest.mark.parametrize("past", [Past(), Past(succeeded_at=NOW - 3600), Past(succeeded_at=0.0, newest="a")])
def test_it_passes_once_the_time_is_over(asks, past):
    assert asks(past) == Pass()


@pytest.mark.parametrize(
    ("ago", "said"),
    [
        (0, "plugin disk succeeded 0s ago: it rests for 1h 0m more"),
        (3599.5, "plugin disk succeeded 1h 0m ago: it rests for 1s more"),
        (-50, "plugin disk succeeded 0s ago: it rests for 1h 0m more"),  # the clock was set back
    ],
)
def test_it_refuses_while_the_plugin_rests(asks, ago, said):
    refusal = asks(Past(succeeded_at=NOW - ago))
    assert isinstance(refusal, Refuse)
    assert (refusal.reason, refusal.code, refusal.is_of_agent) == (said, Exit.NO_CAPACITY, False)
    assert "[plugins.disk]" in refusal.hint


def test_a_success_that_lies_ahead_is_of_a_clock_that_was_wrong(asks):
    found = asks(Past(succeeded_at=NOW + 3601))
    assert found == Open("plugin disk is said to succeed in 1h 0m: was the clock set back?")


def test_who_was_faster_is_refused_for_whatever_became_of_that(asks):
    refusal = asks(Past(newest="b", is_overtaken=True))
    assert isinstance(refusal, Refuse)
    assert "was started by another dispatch meanwhile" in refusal.reason


def test_an_end_that_is_not_known_leaves_it_open_unless_a_success_is(asks):
    assert asks(Past(problem="no route")) == Open("no route")
    assert isinstance(asks(Past(succeeded_at=NOW, problem="no route")), Refuse)


def test_a_plugin_is_asked_about_no_board_and_no_quota(asked):
    plugin = asked(issue=IssueKey("plugin:disk"))
    assert [name for name, _ in before_lock(asked())] == ["board", "quota", "duplicate"]
    assert [name for name, _ in before_lock(plugin)] == ["duplicate"]
    rests = replace(plugin, cooldown=1.0)
    assert [name for name, _ in before_lock(rests)] == ["duplicate", "cooldown"]
    assert [name for name, _ in under_lock(rests)] == ["claim", "cooldown"]
    assert [name for name, _ in under_lock(replace(rests, availability=lambda: None))] == [
        "claim",
        "capacity",
        "cooldown",
    ]
