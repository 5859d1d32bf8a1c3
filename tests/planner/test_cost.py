"""How much a plan costs: under a second for 10,000 issues and 100 agents, and in proportion to the issues."""

import time

from gtrun.planner import plan
from tests.planner.fleets import agent, backlog, fleet, work, world

FLEET = fleet(*(agent(f"a{n}", f"r{n % 20}", max_runs=2, skills=("go",)) for n in range(100)))


def cost(issues):
    """Seconds of CPU, the least of three; every tenth issue is blocked by the one before it."""
    works = [
        work(n + 1, priority=n % 5, age=float(n % 977), labels=["skill:go"] if n % 3 else [],
             blocked_by=[n] if n % 10 == 9 else [])
        for n in range(issues)
    ]  # fmt: skip
    of, seen, times = backlog(*works), world(FLEET), []
    for _ in range(3):
        began = time.process_time()
        made = plan(seen, of)
        times.append(time.process_time() - began)
    assert made.started == 200
    return min(times)


def test_it_is_small_and_linear():
    few, many = cost(5_000), cost(40_000)
    assert cost(10_000) < 1.0
    assert many < 8 * 2.5 * few, f"8 times the issues take {many / few:.1f} times as long"
