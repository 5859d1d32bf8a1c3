"""The duplicate guard, and its hatch."""

import pytest

from gtrun.exits import Exit
from gtrun.guards import Pass, Question, Refuse, duplicate
from gtrun.guards.verdict import BoardView
from gtrun.systemd.units import UnitState


def question(units, environment):
    return Question("1", "me", environment, (), (), BoardView, lambda: units)


def unit(name, active, job=0):
    return UnitState(name=name, description="", load="loaded", active=active, sub="x", path="/", job=job)


OVER = unit("task-1.service", "failed")
LIVE = unit("task-1-dup2.service", "activating")


@pytest.mark.parametrize("units", [[], [OVER]])
def test_it_passes_while_nothing_is_live(units):
    assert duplicate.check(question(units, {})) == Pass()


@pytest.mark.parametrize("environment", [{}, {"DISPATCH_ALLOW_DUPLICATE": "0"}, {"DISPATCH_ALLOW_DUPLICATE": "yes"}])
def test_it_refuses_and_names_what_is_live(environment):
    verdict = duplicate.check(question([OVER, LIVE], environment))
    assert isinstance(verdict, Refuse)
    assert verdict.code is Exit.DUPLICATE
    assert verdict.reason == "task-1-dup2.service is already live on me (activating/x)"


def test_the_hatch_does_not_even_ask():
    def never():
        raise AssertionError

    asked = Question("1", "me", {"DISPATCH_ALLOW_DUPLICATE": "1"}, (), (), BoardView, never)
    assert duplicate.check(asked) == Pass()
