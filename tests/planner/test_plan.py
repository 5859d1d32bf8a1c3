"""The plan: who is started, on whom, who is skipped, and why; and what holds for every fleet and every backlog."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtrun.config import Rig
from gtrun.counters import EVERYBODY, Book, Pause, Tally
from gtrun.names import IssueKey
from gtrun.planner import Held, Seen, plan
from tests.planner.fleets import NOW, agent, backlog, fleet, starts, work, world


@pytest.mark.parametrize(
    ("capacity", "batch", "ready", "started", "skipped", "why"),
    [
        (5, 3, 0, 0, 0, "none"),
        (0, 3, 10, 0, 10, "capacity"),
        (2, 3, 10, 2, 8, "capacity"),
        (10, 3, 10, 3, 7, "batch"),
        (10, 5, 2, 2, 0, "ready"),
        (3, 3, 3, 3, 0, "batch"),
        (3, None, 3, 3, 0, "ready"),
        (3, None, 9, 3, 6, "capacity"),
        (0, None, 0, 0, 0, "none"),
    ],
)
@pytest.mark.parametrize("shape", ["many agents", "one agent", "one rig"])
def test_vectors(capacity, batch, ready, started, skipped, why, shape):
    """CASE 35, with the capacity in one-run agents, in one agent, and in what a rig leaves."""
    match shape:
        case "many agents":
            of = fleet(agent("busy"), *(agent(f"a{number}") for number in range(capacity)))
        case "one agent":
            of = fleet(agent("busy"), agent("a", max_runs=capacity + 2))
        case _:
            names = [f"a{number}" for number in range(capacity + 5)]
            of = fleet(agent("busy"), *map(agent, names), rigs=[Rig(name="box", max_runs=capacity + 3)])
    runs = {"busy": Seen(runs=1 if shape != "one rig" else 3), "a": Seen(runs=2)}
    seen = {name: each for name, each in runs.items() if name in of.agents}
    made = plan(world(of, seen=seen), backlog(*(work(n + 1) for n in range(ready))), batch=batch)
    assert (made.started, made.skipped, made.why) == (started, skipped, why)
    assert [key for key, _ in starts(made)] == [str(n + 1) for n in range(started)]


def test_who_waited_longest_is_next_then_the_name():
    of = fleet(agent("alice"), agent("bob"), agent("carol"), agent("dan"))
    book = Book(
        agents={
            "alice": Tally(last_dispatch_at=NOW - 100, last_dispatch_count=1),
            "bob": Tally(last_dispatch_at=NOW - 300, last_dispatch_count=1),
        }
    )
    made = plan(world(of, book=book), backlog(*(work(n) for n in range(1, 6))))
    assert starts(made) == [("1", "carol"), ("2", "dan"), ("3", "bob"), ("4", "alice")]
    assert made.issues[0].why == "goes to carol, which has waited longest"
    assert made.issues[3].why == "goes to alice, the only one free"
    assert made.issues[4].why == "waits for an agent: 4 given other issues"


def test_work_is_spread_before_it_is_stacked():
    of = fleet(agent("alice", max_runs=2), agent("bob", max_runs=2))
    made = plan(world(of), backlog(*(work(n) for n in range(1, 5))))
    assert starts(made) == [("1", "alice"), ("2", "bob"), ("3", "alice"), ("4", "bob")]


class TestSkills:
    FLEET = fleet(agent("alice"), agent("bob", skills=("go",)), agent("carol", skills=("go", "sql")))

    @pytest.mark.parametrize(
        ("labels", "asked", "who", "why"),
        [
            ([], [], "alice", "goes to alice, which has waited longest"),
            ([], ["go"], "bob", "goes to bob, which has the skill go"),
            ([], ["GO "], "bob", "goes to bob, which has the skill go"),
            (["skill:go"], [], "bob", "goes to bob, which has the skill go"),
            (["Skill: SQL"], [], "carol", "goes to carol, which has the skill sql"),
            (["skill:go", "skill:sql"], [], "carol", "goes to carol, which has the skill go, sql"),
            (["skill:go"], ["sql"], "carol", "goes to carol, which has the skill go, sql"),
            (["skill:"], [], "alice", "goes to alice, which has waited longest"),
            (["go"], [], "alice", "goes to alice, which has waited longest"),
            (
                ["skill:rust"],
                [],
                "alice",
                "goes to alice, which has waited longest; nobody free has the skill rust",
            ),
        ],
    )
    def test_they_are_preferred(self, labels, asked, who, why):
        made = plan(world(self.FLEET), backlog(work(1, labels=labels)), prefer_skills=asked)
        assert starts(made) == [("1", who)]
        assert made.issues[0].why == why

    def test_they_are_not_required(self):
        seen = {"bob": Seen(runs=1), "carol": Seen(runs=1)}
        made = plan(world(self.FLEET, seen=seen), backlog(work(1, labels=["skill:go"])))
        assert starts(made) == [("1", "alice")]
        assert made.issues[0].why == "goes to alice, the only one free; nobody free has the skill go"


class TestTargets:
    FLEET = fleet(agent("alice"), agent("bob"), agent("carol", "other"))

    def test_nobody_else_is_given_work(self):
        made = plan(world(self.FLEET), backlog(work(1), work(2, priority=0), work(3)), targets={"bob"}, batch=1)
        assert starts(made) == [("2", "bob")]
        assert {one.availability.agent: one.why for one in made.agents} == {
            "alice": "is not asked for", "bob": "is given 2", "carol": "is not asked for",
        }  # fmt: skip

    def test_one_that_takes_nothing_leaves_all_waiting(self):
        made = plan(world(self.FLEET, seen={"bob": Seen(runs=1)}), backlog(work(1)), targets={"bob"}, batch=1)
        assert (starts(made), made.why, made.issues[0].why) == ([], "capacity", "waits for an agent: 1 full")


def test_the_urgent_never_waits_behind_the_other_also_for_the_only_slot():
    of = fleet(agent("alice"), agent("bob"))
    works = [work(n, age=n) for n in range(1, 30)] + [work(99, priority=0)]
    assert starts(plan(world(of, seen={"bob": Seen(runs=1)}), backlog(*works))) == [("99", "alice")]


def test_every_issue_and_every_agent_gets_its_reason():
    of = fleet(agent("alice"), agent("bob", "other"), agent("carol", "other"))
    book = Book(pauses={"other": Pause(by="ops", at=NOW)})
    works = [work(1, blocked_by=[2]), work(2), work(3), work(4)]
    made = plan(world(of, book=book), backlog(*works, live={"task-4.service": "carol"}))
    assert [(one.issue.key, one.why) for one in made.issues] == [
        ("1", "is blocked by 2, not done yet"),
        ("2", "goes to alice, the only one free"),
        ("3", "waits for an agent: 1 given other issues, 2 paused"),
        ("4", "is live on carol"),
    ]
    assert [one.why for one in made.agents] == [
        "is given 2",
        *["other is paused by ops since 2027-01-15 08:00 UTC"] * 2,
    ]


# --- what always holds -----------------------------------------------------------------------------------------------

RIGS = ["r0", "r1", "r2"]
skill = st.sampled_from(["go", "sql"])
an_agent = st.fixed_dictionaries(
    {"rig": st.sampled_from(RIGS), "max_runs": st.integers(1, 3), "skills": st.lists(skill, max_size=2).map(tuple)}
)
a_look = st.one_of(
    st.integers(0, 3).map(lambda runs: Seen(runs=runs)), st.just(Seen()), st.just(Seen(problem="no route"))
)
a_tally = st.one_of(
    st.just(Tally()),
    st.builds(
        Tally,
        last_dispatch_at=st.sampled_from([NOW - 900, NOW - 60, NOW - 1]),
        last_dispatch_count=st.integers(1, 3),
        failures=st.integers(0, 2),
        last_failure_at=st.sampled_from([NOW - 9000, NOW - 1]),
    ),
)
an_issue = st.fixed_dictionaries(
    {
        "priority": st.integers(0, 4),
        "age": st.integers(0, 5).map(float),
        "labels": st.lists(skill.map("skill:{}".format), max_size=2),
        "blocked_by": st.lists(st.integers(1, 12), max_size=1),
    }
)


@st.composite
def scenes(draw):
    """A world with its backlog and batch."""
    agents = draw(st.lists(an_agent, min_size=1, max_size=6))
    names = [f"a{number}" for number in range(len(agents))]
    rigs = [Rig(name=name, max_runs=draw(st.none() | st.integers(1, 4))) for name in RIGS]
    of = fleet(*(agent(name, **keys) for name, keys in zip(names, agents, strict=True)), rigs=rigs)
    paused = draw(st.lists(st.sampled_from([*names, *RIGS]), max_size=1))
    book = Book(
        agents={name: draw(a_tally) for name in names},
        rigs={name: draw(a_tally) for name in RIGS},
        pauses={name: Pause(by="ops", at=NOW) for name in paused},
        failed={IssueKey("1"): draw(st.lists(st.just(NOW - 5), max_size=3))},
    )
    seen = {name: draw(a_look) for name in names}
    works = [work(number + 1, **keys) for number, keys in enumerate(draw(st.lists(an_issue, max_size=12)))]
    live = {"task-2.service": "a0"} if draw(st.booleans()) else {}
    return world(of, seen=seen, book=book), backlog(*works, live=live), draw(st.none() | st.integers(1, 5))


@given(scenes())
def test_nobody_is_over_capacity_and_no_issue_is_started_twice(scene):
    seen, of, batch = scene
    given_to = starts(plan(seen, of, batch=batch))
    assert len({key for key, _ in given_to}) == len(given_to)
    running = {name: seen.seen[name].runs for name in seen.fleet.agents}
    for _, name in given_to:
        running[name] += 1
    for name in {name for _, name in given_to}:
        assert running[name] <= seen.fleet.agents[name].max_runs
    for rig in {seen.fleet.agents[name].rig for _, name in given_to}:
        most = seen.fleet.rigs[rig].max_runs
        assert most is None or sum(n for name, n in running.items() if seen.fleet.agents[name].rig == rig) <= most
    assert batch is None or len(given_to) <= batch


@given(scenes())
def test_no_slot_stays_free_while_an_issue_is_ready(scene):
    """A second plan on top of the first one finds nothing to do, unless the batch was used up."""
    seen, of, batch = scene
    made = plan(seen, of, batch=batch)
    assert made.started + made.skipped == sum(one.readiness.held is None for one in made.issues)
    if made.skipped == 0 or made.started == batch:
        return
    running = {name: seen.seen[name] for name in seen.fleet.agents}
    for _, name in starts(made):
        running[name] = Seen(runs=running[name].runs + 1)
    left = [one for one in of.works if one.issue.key not in {key for key, _ in starts(made)}]
    again = plan(world(seen.fleet, seen=running, book=seen.book), backlog(*left, live=of.live))
    assert all(one.availability.free == 0 for one in again.agents)


@given(scenes())
def test_the_order_is_by_priority_then_age(scene):
    seen, of, batch = scene
    made = plan(seen, of, batch=batch)
    ready = [one for one in made.issues if one.readiness.held is None]
    assert [one.agent is not None for one in ready] == sorted((one.agent is not None for one in ready), reverse=True)
    turns = [(one.issue.priority, one.issue.created_at, int(one.issue.key)) for one in made.issues]
    assert turns == sorted(turns)


@given(scenes(), st.randoms(use_true_random=False))
def test_the_order_in_which_things_are_told_changes_nothing(scene, chance: random.Random):
    seen, of, batch = scene
    works = list(of.works)
    chance.shuffle(works)
    assert starts(plan(seen, backlog(*works, live=of.live), batch=batch)) == starts(plan(seen, of, batch=batch))


@given(scenes(), an_agent)
def test_one_agent_more_takes_nothing_from_anybody(scene, more):
    seen, of, batch = scene
    before = plan(seen, of, batch=batch)
    bigger = fleet(*seen.fleet.agents.values(), agent("newcomer", **more), rigs=list(seen.fleet.rigs.values()))
    after = plan(world(bigger, seen=seen.seen, book=seen.book), of, batch=batch)
    assert {key for key, _ in starts(before)} <= {key for key, _ in starts(after)}


@given(scenes())
def test_everything_has_a_reason(scene):
    seen, of, batch = scene
    made = plan(seen, of, batch=batch)
    assert all(one.why for one in made.issues)
    assert all(one.why for one in made.agents)
    assert {one.issue.key for one in made.issues} == {one.issue.key for one in of.works}
    assert [one.availability.agent for one in made.agents] == list(seen.fleet.agents)
    assert not any(one.agent for one in made.issues if one.readiness.held in {Held.BLOCKED, Held.CYCLE, Held.LIVE})
    if EVERYBODY in seen.book.pauses:
        assert not made.started
