"""The run's first step: it goes on in the newest release once, whole, or says why not."""

from __future__ import annotations

from harness.box import Box
from harness.releases import WORK, Releases
from harness.scene import Scene

PLAIN = "exit 0"


def all_in(version: int) -> list[tuple[int, str]]:
    """A whole run of one version."""
    return [(version, what) for what in WORK]


def run_to_its_end(releases: Releases, issue: str) -> None:
    releases.scene.gtrun("dispatch", "me", issue, "--wait")
    releases.scene.idle()


def updates_once(box: Box) -> None:
    """CASE 27: a new runner is executed once; another change right after is left to the next run."""
    releases = Releases.installed(Scene(box))
    releases.configure(PLAIN)
    first, second, third = (releases.scene.issue() for _ in range(3))
    run_to_its_end(releases, first)
    assert (releases.begun(first), releases.worked(first)) == ([1], all_in(1)), releases.trace(first)
    releases.push(2)
    releases.hold(second, 2, "run", "begins")
    releases.scene.gtrun("dispatch", "me", second)
    releases.held(second, 2, "run", "begins")
    releases.push(3)
    releases.let_go(second, 2, "run", "begins")
    releases.scene.ends(second)
    releases.scene.idle()
    assert releases.begun(second) == [1, 2], f"runners of versions {releases.begun(second)}"
    assert releases.worked(second) == all_in(2), f"the work of {releases.worked(second)}"
    assert releases.current() == releases.commits[2] == releases.head()
    assert releases.scene.results(second) == ["success"]
    assert releases.scene.kinds(second) == ["started", "finished"]
    run_to_its_end(releases, third)
    assert releases.begun(third) == [2, 3], f"runners of versions {releases.begun(third)}"
    assert releases.worked(third) == all_in(3)
    assert [releases.note(issue) for issue in (first, second, third)] == ["", "", ""]


def test_updates_once(box: Box) -> None:
    updates_once(box)
