"""The overtaken guard: who was faster."""

from gtrun.exits import Exit
from gtrun.guards import Pass, Refuse, overtaken, under_lock


def test_whoever_names_an_issue_is_not_asked(asked):
    assert overtaken.check(asked()) == Pass()
    assert dict(under_lock(asked())).keys() == {"claim"}
    picked = asked(availability=lambda: None, is_overtaken=lambda: False)
    assert list(dict(under_lock(picked))) == ["claim", "capacity", "overtaken"]


def test_it_refuses_the_issue_and_leaves_its_agent_to_others(asked):
    assert overtaken.check(asked(is_overtaken=lambda: False)) == Pass()
    verdict = overtaken.check(asked(is_overtaken=lambda: True))
    assert isinstance(verdict, Refuse)
    assert (verdict.code, verdict.is_of_agent) == (Exit.NOT_WORK, False)
