"""Which issues are ready, in which order, and what is said of the others."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtrun.config import Schedule
from gtrun.counters import Book
from gtrun.model import Standing
from gtrun.names import IssueKey
from gtrun.planner import Held, readiness
from tests.planner.fleets import NOW, backlog, work

DAY = 86400.0


def told(of, *, book=None, label=None, now=NOW, **schedule):
    return {one.issue.key: one for one in readiness(of, book or Book(), Schedule(**schedule), label, now)}


def held(of, **more):
    return {key: one.held for key, one in told(of, **more).items() if one.held}


@pytest.mark.parametrize(
    ("what", "more", "why", "words"),
    [
        (work(1), {}, None, ""),
        (work(1, Standing.NOT_WORK), {}, Held.NOT_WORK, "is not work: it is closed or carries a terminal mark"),
        (work(1, Standing.AWAITING), {}, Held.AWAITING, "awaits a person: a run of it has succeeded, and nothing is"),
        (work(1, Standing.SHIPPED), {}, Held.SHIPPED, "is shipped: a pull request for it is merged"),
        (work(1), {"label": "ready"}, Held.UNLABELLED, "has no label 'ready'"),
        (work(1, is_by_stranger=True), {}, Held.UNTRUSTED, "was opened by a stranger, and no ready_label is set"),
        (work(1, labels=["Ready"]), {"label": "ready"}, None, ""),
    ],
)
def test_what_the_board_says(what, more, why, words):
    one = told(backlog(what), **more)["1"]
    assert one.held is why
    assert one.why.startswith(words)


def test_a_success_that_the_board_has_not_heard_of_is_one():
    book = Book(succeeded={IssueKey("1"): NOW - 10})
    assert held(backlog(work(1), work(2)), book=book) == {"1": Held.AWAITING}
    assert held(backlog(work(1, turned_at=NOW - 5)), book=book) == {}


def test_what_awaits_somebody_is_tried_again_by_rule_alone():
    """And only where somebody knows when its run has succeeded."""
    for works in (backlog(work(1)), backlog(work(1, Standing.AWAITING))):
        book = Book(succeeded={IssueKey("1"): NOW - 3600})
        assert held(works, book=book) == {"1": Held.AWAITING}
        one = told(works, book=book, retry=2 * 3600.0)["1"]
        assert (one.held, one.until) == (Held.AWAITING, NOW + 3600)
        assert one.why.endswith("and nothing is merged yet; it is tried again in 1h 0m")
        assert held(works, book=book, retry=3600.0) == {}
        assert held(works, book=Book(succeeded={IssueKey("1"): NOW + DAY}), retry=3600.0) == {"1": Held.AWAITING}
    assert held(backlog(work(1, Standing.AWAITING)), retry=1.0) == {"1": Held.AWAITING}
    for standing in (Standing.SHIPPED, Standing.NOT_WORK):
        assert held(backlog(work(1, standing)), book=Book(succeeded={IssueKey("1"): NOW - 3600}), retry=1.0) != {}


def test_the_most_urgent_come_first_then_the_oldest_then_the_first_numbers():
    works = [
        work(9),
        work(10),
        work(3, age=5),
        work(4, priority=0),
        work(5, priority=4, age=99),
        work(6, priority=0, age=1),
    ]
    for order in itertools.permutations(works):
        assert [one.issue.key for one in readiness(backlog(*order), Book(), Schedule(), None, NOW)] == [
            "6", "4", "3", "9", "10", "5",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("standing", "blocks"),
    [(Standing.READY, True), (Standing.AWAITING, True), (Standing.SHIPPED, False), (Standing.NOT_WORK, False)],
)
def test_what_is_blocked_waits_until_its_blocker_is_done(standing, blocks):
    one = told(backlog(work(1, standing), work(2, blocked_by=[1, 77])))["2"]  # 77 is closed, or nowhere
    assert (one.held, one.why) == ((Held.BLOCKED, "is blocked by 1, not done yet") if blocks else (None, ""))


def test_an_issue_of_another_repository_blocks_as_long_as_the_board_names_it():
    assert told(backlog(work(2, blocked_by=[1, "o/r#3"])))["2"].why == "is blocked by o/r#3, not done yet"


def test_many_blockers_are_told_in_short():
    works = [work(number) for number in range(1, 8)]
    assert told(backlog(*works, work(8, blocked_by=range(1, 8))))["8"].why == (
        "is blocked by 1, 2, 3 and 4 more, not done yet"
    )


class TestCycles:
    def test_one_is_said_of_all_in_it_and_of_nobody_else(self):
        of = backlog(
            work(1, blocked_by=[2]), work(2, blocked_by=[3]), work(3, blocked_by=[1]), work(4, blocked_by=[3]),
            work(5, blocked_by=[5]), work(6, blocked_by=[7]), work(7),
        )  # fmt: skip
        found = told(of)
        assert {key: one.held for key, one in found.items() if one.held} == {
            "1": Held.CYCLE, "2": Held.CYCLE, "3": Held.CYCLE, "4": Held.BLOCKED, "5": Held.CYCLE, "6": Held.BLOCKED,
        }  # fmt: skip
        assert found["1"].why == "can never be ready: it and 2 and 3 block each other"
        assert found["5"].why == "can never be ready: it blocks itself"

    def test_a_cycle_that_a_closed_issue_breaks_is_none(self):
        assert held(backlog(work(1, blocked_by=[2]), work(2, Standing.SHIPPED, blocked_by=[1]))) == {"2": Held.SHIPPED}

    def test_a_chain_longer_than_the_stack_is_no_trouble(self):
        length = 20_000
        chain = [work(number, blocked_by=[number + 1]) for number in range(1, length)] + [work(length)]
        assert set(held(backlog(*chain)).values()) == {Held.BLOCKED}
        ring = [*chain[:-1], work(length, blocked_by=[1])]
        assert set(held(backlog(*ring)).values()) == {Held.CYCLE}

    @given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), max_size=20))
    def test_it_is_a_cycle_if_and_only_if_the_issue_is_reached_from_itself(self, edges):
        blockers = {number: {there for here, there in edges if here == number} for number in range(1, 9)}
        reached = {number: set(blockers[number]) for number in blockers}
        for middle, start in itertools.product(blockers, blockers):
            if middle in reached[start]:
                reached[start] |= reached[middle]
        found = held(backlog(*(work(number, blocked_by=blockers[number]) for number in blockers)))
        assert {int(key) for key, why in found.items() if why is Held.CYCLE} == {
            number for number in blockers if number in reached[number]
        }


class TestRuns:
    def test_what_is_live_anywhere_is_not_ready(self):
        of = backlog(work(1), work(2), live={"task-1.service": "bob"})
        assert told(of)["1"].why == "is live on bob"
        assert held(of) == {"1": Held.LIVE}

    def test_what_ran_last_on_an_agent_that_does_not_answer_may_still_run(self):
        book = Book(running={IssueKey("1"): "bob", IssueKey("2"): "alice"})
        found = told(backlog(work(1), work(2), silent=["bob"]), book=book)
        assert found["1"].why == "may still be live on bob, which does not answer"
        assert found["2"].held is None  # alice answers, and has no unit of it: that run has ended

    def test_what_was_stopped_by_hand_does_not_begin_again_by_itself(self):
        book = Book(stopped={IssueKey("1"): NOW - 10})
        assert held(backlog(work(1), work(2)), book=book) == {"1": Held.STOPPED}
        assert held(backlog(work(1, turned_at=NOW - 5)), book=book) == {}


class TestFailures:
    def test_a_few_are_no_reason_and_many_are(self):
        for number in range(6):
            book = Book(failed={IssueKey("1"): [NOW - 60 * k for k in range(number)]})
            assert held(backlog(work(1)), book=book) == ({"1": Held.FAILING} if number >= 3 else {})

    def test_they_decay(self):
        """Three transient failures: it rests until the first of them is a day old, and is then tried again."""
        times = [NOW - 3 * 3600, NOW - 2 * 3600, NOW - 3600]
        book = Book(failed={IssueKey("1"): times})
        one = told(backlog(work(1)), book=book)["1"]
        assert one.until == times[0] + DAY
        assert one.why == (
            "3 runs of it failed within 1d 0h: it rests for 21h 0m more, or until somebody reopens it or changes its"
            " labels"
        )
        assert held(backlog(work(1)), book=book, now=one.until - 1) == {"1": Held.FAILING}
        assert held(backlog(work(1)), book=book, now=one.until) == {}

    def test_a_failure_more_lets_it_rest_for_longer(self):
        book = Book(failed={IssueKey("1"): [NOW - 4000.0, NOW - 3000.0, NOW - 2000.0, NOW - 1000.0]})
        assert told(backlog(work(1)), book=book)["1"].until == NOW - 3000.0 + DAY

    def test_a_persons_turn_forgets_them(self):
        book = Book(failed={IssueKey("1"): [NOW - 300, NOW - 200, NOW - 100]})
        assert held(backlog(work(1, turned_at=NOW - 50)), book=book) == {}
        assert held(backlog(work(1, turned_at=NOW - 400)), book=book) == {"1": Held.FAILING}

    def test_how_many_is_configured(self):
        book = Book(failed={IssueKey("1"): [NOW - 100]})
        assert held(backlog(work(1)), book=book, attempts=1) == {"1": Held.FAILING}
        assert held(backlog(work(1)), book=book, attempts=1, attempts_decay=99.0) == {}
