"""The quota guard: one sentence for a refusal, and open for all that is not understood."""

import pytest

from gtrun.exits import Exit
from gtrun.guards import Open, Pass, Refuse, quota
from gtrun.quota import Quota, QuotaFile


def said(asked, *, environment=(), **fields):
    file = QuotaFile(quota=Quota(**fields))
    return quota.check(asked(quota=lambda: file, environment=dict(environment)))


def test_no_file_passes(asked):
    assert quota.check(asked()) == Pass()


def test_a_reset_to_come_refuses_until_it_comes(asked):
    verdict = said(asked, exhausted=True, resets_at="1970-01-01T01:16:41+01:00", source="the last line")
    assert isinstance(verdict, Refuse)
    assert verdict.code is Exit.QUOTA
    assert verdict.reason == "the quota of me is used up until 1970-01-01T00:16:41Z (the last line)"
    assert verdict.hint == "if that is wrong: gtrun quota clear me"
    assert said(asked, exhausted=True, resets_at="1970-01-01T00:16:40Z") == Pass()


def test_what_the_agent_writes_as_its_source_is_cut(asked):
    verdict = said(asked, exhausted=True, resets_at="1970-01-01T00:20:00Z", source="x" * 60_000)
    assert isinstance(verdict, Refuse)
    assert len(verdict.reason) < 300


@pytest.mark.parametrize("resets_at", [None, "", "soon", "1970-01-01T00:20:00", "1999-01-01T00:00:00Z"])
def test_what_cannot_be_told_leaves_it_open(resets_at, asked):
    assert isinstance(said(asked, exhausted=True, resets_at=resets_at), Open)


def test_a_file_that_cannot_be_read_leaves_it_open(asked):
    assert quota.check(asked(quota=lambda: QuotaFile(problem="it is a FIFO"))) == Open("it is a FIFO")


@pytest.mark.parametrize(("hatch", "opens"), [("1", True), ("0", False), ("yes", False), ("", False)])
def test_the_hatch(hatch, opens, asked):
    verdict = said(
        asked, exhausted=True, resets_at="1970-01-01T00:20:00Z", environment={"DISPATCH_IGNORE_QUOTA": hatch}
    )
    assert isinstance(verdict, Pass if opens else Refuse)


def test_the_hatch_does_not_even_ask(asked):
    def never():
        raise AssertionError

    assert quota.check(asked(environment={"DISPATCH_IGNORE_QUOTA": "1"}, quota=never)) == Pass()
