"""The duplicate guard, and its hatch."""

import pytest

from gtrun.exits import Exit
from gtrun.guards import Pass, Refuse, duplicate


def test_it_passes_while_nothing_is_live(asked, unit):
    assert duplicate.check(asked()) == Pass()
    assert duplicate.check(asked(units=lambda: [unit("task-1.service", "failed")])) == Pass()


@pytest.mark.parametrize("environment", [{}, {"DISPATCH_ALLOW_DUPLICATE": "0"}, {"DISPATCH_ALLOW_DUPLICATE": "yes"}])
def test_it_refuses_and_names_what_is_live(environment, asked, unit):
    units = [unit("task-1.service", "failed"), unit("task-1-dup2.service", "activating")]
    verdict = duplicate.check(asked(environment=environment, units=lambda: units))
    assert isinstance(verdict, Refuse)
    assert verdict.code is Exit.DUPLICATE
    assert verdict.reason == "task-1-dup2.service is already live on me (activating/x)"


def test_the_hatch_does_not_even_ask(asked):
    def never():
        raise AssertionError

    assert duplicate.check(asked(environment={"DISPATCH_ALLOW_DUPLICATE": "1"}, units=never)) == Pass()
