"""What an exit code does not prove: whether a pull request is there, open, armed or merged is said; `shipped` asks."""

from __future__ import annotations

import pytest

from harness.box import Box
from harness.control import Edit, Mutant, kill
from harness.scene import Scene

URL = "https://git.example/pulls/7"
# what is noted of the pull request; the code of `shipped`, its word, and what the marker says
STATES = [
    (None, 1, "none", "An exit code is not a merge: there is no pull request for this issue."),
    ("open", 1, "open", f"An exit code is not a merge: pull request {URL} is open, and not merged."),
    ("draft", 1, "open", f"An exit code is not a merge: pull request {URL} is open as a draft, and not merged."),
    ("armed", 1, "auto-merge armed",
     f"An exit code is not a merge: pull request {URL} is open with auto-merge armed, and not merged."),
    ("closed", 1, "closed unmerged", f"An exit code is not a merge: pull request {URL} was closed without a merge."),
    ("merged", 0, "merged", f"Pull request {URL} is merged."),
]  # fmt: skip


def each_state_is_said(box: Box) -> None:
    """In the finished marker, as it was when the run ended, and by `shipped` as it is now; only merged is 0."""
    scene = Scene(box)
    scene.runs_shell("test ! -e ~/fails; exit $?")
    for state, code, word, said in STATES:
        issue = scene.issue(word)
        if state:
            scene.gtrun("board", "pr", issue, "--url", URL, "--state", state)
        scene.gtrun("dispatch", "me", issue)
        scene.idle()
        body = scene.asks("board", "show", issue)["comments"][-1]["body"]
        assert f"\n\n{said}\n\n<!--" in body, body
        done = scene.gtrun("shipped", issue, check=None)
        assert (done.code, done.out) == (code, f"{word}\n"), f"{state}: shipped is {done.code}, {done.out}"
        told = scene.asks("shipped", issue, check=code)
        assert (told["shipped"], told["state"], len(told["pull_requests"])) == (code == 0, word, int(state is not None))
        shown = scene.asks("show", issue)
        stands = "shipped" if state == "merged" else "awaiting"
        assert (shown["standing"], shown["pull_requests"]) == (stands, told["pull_requests"]), shown["standing"]
        assert [one["standing"] for one in scene.asks("board", "list")["issues"] if one["issue"] == issue] == [stands]

    # one that is merged later counts, beside one that was closed; a failed run says so too, without a success's words
    scene.gtrun("board", "pr", issue, "--url", f"{URL}0", "--state", "closed")
    assert scene.gtrun("shipped", issue).err.splitlines() == [
        f"gtrun: pull request {URL} is merged", f"gtrun: pull request {URL}0 was closed without a merge",
    ]  # fmt: skip
    scene.sh("touch ~/fails")
    failing = scene.issue()
    scene.gtrun("dispatch", "me", failing)
    scene.idle()
    body = scene.asks("board", "show", failing)["comments"][-1]["body"]
    assert "\n\nThere is no pull request for this issue.\n\n<!--" in body, body
    assert scene.asks("show", failing)["standing"] == "ready"
    assert scene.gtrun("shipped", "99", check=1).err == (
        f"gtrun: there is no issue 99 on the board {scene.home}/.local/share/gtrun/board/board.db\n"
    )
    scene.sh("mv ~/.local/share/gtrun/board ~/away")
    scene.gtrun("shipped", failing, check=75)


def test_each_state_is_said(box: Box) -> None:
    each_state_is_said(box)


def awaiting_until_somebody_says_so(box: Box) -> None:
    """A run that succeeded and did not ship leaves its issue awaiting; a label or a reopening makes it ready again."""
    scene = Scene(box)
    scene.runs_shell("exit 0")
    issue = scene.issue()

    def stands() -> str:
        return str(scene.asks("show", issue)["standing"])

    assert stands() == "ready"
    turns: list[list[tuple[str, ...]]] = [
        [("label", issue, "--add", "again")],
        [("label", issue, "--remove", "again")],
        [("close", issue), ("reopen", issue)],
    ]
    for turn in turns:
        scene.gtrun("dispatch", "me", issue)  # a person names it: awaiting or not, it is started
        scene.idle()
        assert stands() == "awaiting", f"it is {stands()}"
        scene.gtrun("dispatch", "me", issue)
        scene.idle()
        assert stands() == "awaiting"
        for command in turn:
            scene.gtrun("board", *command)
        assert stands() == "ready", f"after {turn} it is {stands()}"


def test_awaiting_until_somebody_says_so(box: Box) -> None:
    awaiting_until_somebody_says_so(box)


MUTANTS = [
    Mutant(
        "an armed auto-merge taken for a merge",
        [Edit("pulls.py", "return Shipping.ARMED if pull.auto_merge", "return Shipping.MERGED if pull.auto_merge")],
        each_state_is_said,
        r"Pull request https://git.example/pulls/7 is merged",
    ),
    Mutant(
        "finished taken for ready",
        [Edit("board/standing.py", "return Standing.AWAITING if done", "return Standing.READY if done")],
        awaiting_until_somebody_says_so,
        "it is ready",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
