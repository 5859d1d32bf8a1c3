"""The fleet claim: who refuses, with which code, and when it cannot be told."""

import pytest

from gtrun.exits import Exit
from gtrun.guards import CLAIM, ORDER, Open, Pass, Refuse, claim
from gtrun.guards.verdict import FleetView

ALLOWED = {"DISPATCH_ALLOW_DUPLICATE": "1"}


def check(asked, units, silent=(), problem="", environment=()):
    view = FleetView(units, dict(silent), problem)
    return claim.check(asked(fleet=lambda: view, environment=dict(environment)))


def test_the_order_is_that_of_the_contract():
    assert [name for name, _ in (*ORDER, CLAIM)] == ["board", "quota", "duplicate", "claim"]


def test_nothing_live_anywhere_passes(asked, unit):
    over = [unit("task-1.service", "failed"), unit("task-1-dup1.service", "inactive")]
    assert check(asked, {"me": [], "bob": over, "carol": []}) == Pass()


@pytest.mark.parametrize("active", ["active", "activating", "deactivating", "reloading", "maintenance", "refreshing"])
def test_a_live_unit_of_another_agent_is_14(active, asked, unit):
    verdict = check(asked, {"me": [], "bob": [], "carol": [unit("task-1-dup3.service", active)]})
    assert isinstance(verdict, Refuse)
    assert verdict.code is Exit.CLAIMED
    assert verdict.reason == f"issue 1 is live on agent carol: task-1-dup3.service ({active}/x)"


def test_a_queued_unit_of_another_agent_is_14(asked, unit):
    verdict = check(asked, {"me": [], "bob": [unit("task-1.service", "inactive", job=7)]})
    assert isinstance(verdict, Refuse)
    assert verdict.code is Exit.CLAIMED


def test_a_live_unit_of_the_agent_itself_is_11(asked, unit):
    verdict = check(asked, {"me": [unit("task-1.service", "active")]})
    assert isinstance(verdict, Refuse)
    assert verdict.code is Exit.DUPLICATE


def test_the_duplicate_hatch_is_for_the_agents_own_units(asked, unit):
    live = [unit("task-1.service", "active")]
    assert check(asked, {"me": live, "bob": []}, environment=ALLOWED) == Pass()
    verdict = check(asked, {"me": live, "bob": live}, environment=ALLOWED)
    assert isinstance(verdict, Refuse)
    assert verdict.code is Exit.CLAIMED


def test_an_agent_that_does_not_answer_leaves_it_open(asked):
    verdict = check(asked, {"me": []}, {"bob": "no manager", "carol": "too late"})
    assert verdict == Open("not every agent could be asked: bob: no manager; carol: too late")


def test_a_lock_that_was_not_to_be_had_leaves_it_open(asked):
    assert check(asked, {"me": []}, {"bob": "no manager"}, "the lock is gone") == Open("the lock is gone")


@pytest.mark.parametrize(("silent", "problem"), [({"bob": "no manager"}, ""), ({}, "the lock is gone")])
def test_what_is_known_to_be_live_refuses_all_the_same(silent, problem, asked, unit):
    verdict = check(asked, {"me": [], "carol": [unit("task-1.service", "active")]}, silent, problem)
    assert isinstance(verdict, Refuse)
    assert verdict.code is Exit.CLAIMED
