"""What an agent and its rig can take: live units count, and what bars an agent is said in words."""

import pytest
from msgspec.structs import replace

from gtrun.config import Rig, RunProfile
from gtrun.counters import EVERYBODY, Book, Pause, Tally
from gtrun.planner import Bar, Seen, agents, backoff, plan, rigs
from gtrun.planner.availability import after
from gtrun.quota import Quota, QuotaFile
from tests.planner.fleets import NOW, agent, backlog, fleet, starts, work, world

DARK = QuotaFile(quota=Quota(exhausted=True, resets_at="2027-01-15T10:00:00Z"))


def one(of, name="alice", **more):
    seen = world(of, **more)
    return agents(seen, rigs(seen))[name]


def tally(**more):
    return Book(agents={"alice": Tally(**more)})


@pytest.mark.parametrize(
    ("running", "most", "on_rig", "rig_most", "free"),
    [
        (0, 1, 0, None, 1),
        (1, 1, 0, None, 0),
        (2, 1, 0, None, 0),  # by hand there can be more than automatic picks allow
        (1, 4, 0, None, 3),
        (1, 4, 2, None, 3),
        (1, 4, 2, 4, 1),
        (0, 4, 4, 4, 0),
        (0, 4, 5, 4, 0),
    ],
)
def test_capacity_is_what_live_units_leave(running, most, on_rig, rig_most, free):
    of = fleet(agent("alice", max_runs=most), agent("bob"), rigs=[Rig(name="box", max_runs=rig_most)])
    found = one(of, seen={"alice": Seen(runs=running), "bob": Seen(runs=on_rig)})
    assert found.free == free
    assert (found.bar is Bar.FULL) == (free == 0)


def test_a_plugin_needs_no_command_and_no_entitlement():
    of, seen = fleet(agent("alice", run=RunProfile())), {"alice": Seen(quota=DARK)}
    assert one(of, seen=seen).bar is Bar.NO_COMMAND
    asked = replace(world(of, seen=seen), is_for_plugin=True)
    assert agents(asked, rigs(asked))["alice"].free == 1
    paused = replace(asked, book=Book(pauses={"alice": Pause(by="ops", at=NOW)}))
    assert agents(paused, rigs(paused))["alice"].bar is Bar.PAUSED


@pytest.mark.parametrize(
    ("more", "bar", "why"),
    [
        ({}, None, ""),
        ({"seen": {"alice": Seen(runs=1)}}, Bar.FULL, "alice is full: 1 of 1 run"),
        ({"seen": {"alice": Seen(problem="no route")}}, Bar.UNREACHABLE, "alice does not answer: no route"),
        ({"seen": {"alice": Seen(quota=DARK)}}, Bar.DARK, "the quota of alice is used up until 2027-01-15 10:00 UTC"),
        ({"seen": {"alice": Seen(quota=QuotaFile(problem="not JSON"))}}, None, ""),
        (
            {"book": Book(pauses={EVERYBODY: Pause(by="ops", at=NOW)})},
            Bar.PAUSED,
            "handing out work is paused by ops since 2027-01-15 08:00 UTC",
        ),
        (
            {"book": Book(pauses={"alice": Pause(by="ops", at=NOW)})},
            Bar.PAUSED,
            "alice is paused by ops since 2027-01-15 08:00 UTC",
        ),
        (
            {"book": Book(pauses={"box": Pause(by="ops", at=NOW)})},
            Bar.PAUSED,
            "box is paused by ops since 2027-01-15 08:00 UTC",
        ),
        ({"book": Book(pauses={"bob": Pause(by="ops", at=NOW)})}, None, ""),
        (
            {"book": tally(failures=1, last_failure_at=NOW - 20)},
            Bar.BACKING_OFF,
            "alice backs off for 40s more, after 1 failure",
        ),
        (
            {"book": tally(failures=3, last_failure_at=NOW - 20)},
            Bar.BACKING_OFF,
            "alice backs off for 3m 40s more, after 3 failures in a row",
        ),
        ({"book": tally(failures=3, last_failure_at=NOW - 241)}, None, ""),
        (
            {"book": tally(last_dispatch_at=NOW - 1, last_dispatch_count=1, last_sweep="other")},
            Bar.SETTLING,
            "alice settles for 4s more, after it was given 1 run",
        ),
        (
            {"book": tally(last_dispatch_at=NOW - 1, last_dispatch_count=3, last_sweep="other")},
            Bar.SETTLING,
            "alice settles for 14s more, after it was given 3 runs",
        ),
        ({"book": tally(last_dispatch_at=NOW - 1, last_dispatch_count=1, last_sweep="this")}, None, ""),
        ({"book": tally(last_dispatch_at=NOW - 6, last_dispatch_count=1, last_sweep="other")}, None, ""),
        (
            {"book": Book(rigs={"box": Tally(last_dispatch_at=NOW - 1, last_dispatch_count=2, last_sweep="other")})},
            Bar.SETTLING,
            "box settles for 9s more, after it was given 2 runs",
        ),
        (
            {"book": Book(rigs={"box": Tally(failures=2, last_failure_at=NOW)})},
            Bar.BACKING_OFF,
            "box backs off for 2m 0s more, after 2 failures in a row",
        ),
    ],
)
def test_what_bars_an_agent_is_said(more, bar, why):
    found = one(fleet(agent("alice"), agent("bob", "other")), **more)
    assert (found.bar, found.why) == (bar, why)
    assert found.free == (0 if bar else 1)


def test_an_agent_without_a_command_takes_nothing():
    assert one(fleet(agent("alice", run=RunProfile()))).bar is Bar.NO_COMMAND


def test_a_rig_is_full_by_all_of_its_agents_also_those_that_do_not_answer():
    of = fleet(agent("alice", max_runs=3), agent("bob"), rigs=[Rig(name="box", max_runs=2)])
    found = one(of, seen={"alice": Seen(runs=1), "bob": Seen(runs=1, problem="no route")})
    assert (found.bar, found.why) == (Bar.FULL, "box is full: 2 of 2 runs")


def test_what_is_told_of_a_future_does_not_bar_for_longer():
    """The clock was set back: what is said to have happened in a minute happened now, and next year's never."""
    for ahead, until in ((50, NOW + 60), (60, NOW + 60), (61, None), (10**9, None)):
        assert one(fleet(agent("alice")), book=tally(failures=1, last_failure_at=NOW + ahead)).until == until
    settles = {"last_dispatch_count": 1, "last_sweep": "other"}
    for ahead, bar in ((5, Bar.SETTLING), (10**9, None)):
        assert one(fleet(agent("alice")), book=tally(last_dispatch_at=NOW + ahead, **settles)).bar is bar


@pytest.mark.parametrize(("failures", "seconds"), [(1, 60), (2, 120), (5, 960), (7, 3600), (100, 3600), (10_000, 3600)])
def test_back_off_doubles_up_to_its_cap(failures, seconds):
    assert backoff(fleet(agent("alice")).schedule, failures) == seconds


def test_it_ends_when_it_says():
    of = fleet(agent("alice"))
    for book in (
        tally(failures=4, last_failure_at=NOW - 3),
        tally(last_dispatch_at=NOW - 1, last_dispatch_count=9, last_sweep="other"),
    ):
        until = one(of, book=book).until
        assert one(of, book=book, now=until - 0.001).bar is not None
        assert one(of, book=book, now=until).bar is None


def test_what_a_pass_gave_takes_slots_and_the_last_turn_but_settles_nobody():
    of = fleet(agent("alice", max_runs=2), agent("bob"), agent("carol"))
    before = world(of, seen={"bob": Seen(runs=0, problem="")})
    then = after(before, {"alice": 1, "bob": 1})
    found = agents(then, rigs(then))
    assert [(each.agent, each.running, each.free, each.bar) for each in found.values()] == [
        ("alice", 1, 1, None),
        ("bob", 1, 0, Bar.FULL),
        ("carol", 0, 1, None),
    ]
    assert starts(plan(then, backlog(work(1), work(2)))) == [("1", "carol"), ("2", "alice")]
