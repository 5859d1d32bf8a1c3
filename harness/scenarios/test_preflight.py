"""`gtrun preflight` and `dispatch --dry-run` say what a dispatch then does, in the same words, and write nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from harness.box import Box
from harness.conftest import MakeBox
from harness.fleet import open_lines, root_of
from harness.scene import Scene

AGAIN = {"DISPATCH_ALLOW_DUPLICATE": "1"}
FILE = "/home/alice/.local/state/gtrun/quota.json"


@dataclass(frozen=True)
class Case:
    """How things are for issue `issue` before a dispatch to alice, and the code that it must end with."""

    name: str
    arrange: Callable[[Box, Scene, str], object]
    code: int
    environment: Mapping[str, str] = field(default_factory=dict)


def nothing(_box: Box, _root: Scene, _issue: str) -> None:
    """As it is."""


def on(*agents: str) -> Callable[[Box, Scene, str], None]:
    """The issue is live on these agents."""

    def arrange(_box: Box, root: Scene, issue: str) -> None:
        for agent in agents:
            root.gtrun("dispatch", agent, issue, env=AGAIN)

    return arrange


def on_both(box: Box, _root: Scene, issue: str) -> None:
    """A unit of the issue's name that gtrun did not start, on each agent."""
    for agent in ("alice", "bob"):
        unit = f"--unit=task-{issue}.service"
        box.run("systemd-run", "--user", "--quiet", "--collect", unit, "sleep", "60", account=agent)


def dark(_box: Box, root: Scene, _issue: str) -> None:
    """Alice's quota is used up."""
    root.gtrun("quota", "set", "alice", "--until", "1h")


def dark_and_live(box: Box, root: Scene, issue: str) -> None:
    """Both of it."""
    on("alice")(box, root, issue)
    dark(box, root, issue)


def corrupt(box: Box, _root: Scene, _issue: str) -> None:
    """Alice's quota state is none."""
    box.write(FILE, "{", owner="alice", mode=0o600)


def corrupt_and_elsewhere(box: Box, root: Scene, issue: str) -> None:
    """Both of it."""
    on("bob")(box, root, issue)
    corrupt(box, root, issue)


CASES = [
    Case("free", nothing, 0),
    Case("live here", on("alice"), 11),
    Case("live here, on purpose", on("alice"), 0, AGAIN),
    Case("live there", on("bob"), 14),
    Case("live there, on purpose", on("bob"), 14, AGAIN),
    Case("live on both", on_both, 11),
    Case("live on both, on purpose", on_both, 14, AGAIN),
    Case("dark", dark, 9),
    Case("dark, ignored", dark, 0, {"DISPATCH_IGNORE_QUOTA": "1"}),
    Case("dark and live", dark_and_live, 9),
    Case("dark, ignored, and live", dark_and_live, 11, {"DISPATCH_IGNORE_QUOTA": "1"}),
    Case("corrupt quota", corrupt, 0),
    Case("corrupt quota, live there", corrupt_and_elsewhere, 14),
]


OPENS = {corrupt, corrupt_and_elsewhere}
"""What a guard cannot see through."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[pytest.mark.expects_fail_open] if case.arrange in OPENS else [])
        for case in CASES
    ],
)
def test_it_says_what_a_dispatch_does(case: Case, make_box: MakeBox) -> None:
    box = make_box(group="gtrun")
    root = root_of(box)
    issue = root.issue()
    case.arrange(box, root, issue)
    before = root.asks("show", issue)["attempts"]

    def types(*argv: str) -> tuple[int, str, list[str]]:
        done = root.gtrun(*argv, env=case.environment, check=None)
        refused = [line for line in (done.out + done.err).splitlines() if "refused: " in line]
        return done.code, "".join(refused).removeprefix("gtrun: "), open_lines(done)

    guards = [types("preflight", "quota", "alice"), types("preflight", "duplicate", "alice", issue)]
    claim = types("preflight", "claim", issue)
    rehearsed = types("dispatch", "--dry-run", "alice", issue)
    assert root.asks("show", issue)["attempts"] == before
    if case.code != 0:
        assert not [unit for unit in Scene(box, "alice").units() if "dup" in unit]
    done = types("dispatch", "alice", issue)
    assert done[0] == case.code, done
    assert rehearsed == done
    refusals = [answer for answer in guards if answer[0] != 0]
    if case.code in {9, 11}:
        assert refusals[0][:2] == done[:2]
    else:
        assert refusals == []
        # it does not know the agent: what is live on that one itself is somebody else's to it as well
        own = case.code == 0 and case.environment == AGAIN
        assert claim[0] == (14 if own else case.code)
    assert [line for _, _, lines in guards for line in lines] == done[2]
    for agent in ("alice", "bob"):
        Scene(box, agent).sh("systemctl --user stop 'task-*'")
    root.gtrun("reconcile")
