"""What texts refer to."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtrun.board.github.references import blockers, closes

OURS = "o/r"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", []),
        ("Fixes #12", [(OURS, 12)]),
        ("close #1 closes #2 closed #3 fix #4 fixes #5 fixed #6 resolve #7 resolves #8 resolved #9", range(1, 10)),
        ("FIXES: #12", [(OURS, 12)]),
        ("This fixes\t#12.", [(OURS, 12)]),
        ("(closes #12)", [(OURS, 12)]),
        ("fixes Other/Repo.name#3", [("other/repo.name", 3)]),
        ("fixes https://github.com/Other/x/issues/3#issuecomment-1", [("other/x", 3)]),
        ("fixes https://github.example/other/x/issues/3", []),
        ("fixes https://github.com/other/x/pull/3", []),
        ("fixes #12, #13", [(OURS, 12)]),
        ("fixes #12, fixes #13, fixes #12", [(OURS, 12), (OURS, 13)]),
        ("#12", []),
        ("fix the thing in #12", []),
        ("prefixes #12", []),
        ("un-fixes #12", []),
        ("fixes #012", []),
        ("fixes #12a", []),
        ("fixes #0", []),
        ("fixes\n#12", []),
        ("<!-- e.g. fixes #12 -->", []),
        ("<!-- never closed: fixes #12", []),
        ("<!-- a -->fixes #12<!-- b -->", [(OURS, 12)]),
        ("`fixes #12`", []),
        ("```\nfixes #12\n```\nfixes #13", [(OURS, 13)]),
        ("~~~~ text\nfixes #12\n~~~\nfixes #13\n~~~~", []),
    ],
)
def test_what_a_pull_request_closes(body: str, expected: object) -> None:
    wanted = [(OURS, number) for number in expected] if isinstance(expected, range) else expected
    assert closes(body, repo=OURS, host="github.com") == wanted


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("Blocked by #12", [(OURS, 12)]),
        ("text\n- blocked by: #12, Other/x#3.\nmore", [(OURS, 12), ("other/x", 3)]),
        ("BLOCKED BY #1,#2 , #1\r", [(OURS, 1), (OURS, 2)]),
        ("This is blocked by #12", []),
        ("blocked by the weather", []),
        ("blocked by #12 and the weather, #13", [(OURS, 13)]),
        ("", []),
    ],
)
def test_what_blocks(body: str, expected: list[tuple[str, int]]) -> None:
    assert blockers(body, repo=OURS) == expected


@given(st.text(alphabet="fixes #1`<!->~\n, /oblckdby", max_size=200))
def test_any_text(body: str) -> None:
    for repo, number in closes(body, repo=OURS, host="github.com") + blockers(body, repo=OURS):
        assert "/" in repo
        assert number > 0


@pytest.mark.parametrize(
    "piece", ["<!-- ", "```\n", "`", "fixes ", "fixes #1 ", "a/b", "blocked by #1,", "fix\t\t", "~~~"]
)
def test_a_hostile_text_takes_no_time(piece: str) -> None:
    body = (piece * 65_536)[:65_536]
    began = time.process_time()
    closes(body, repo=OURS, host="github.com")
    blockers(body, repo=OURS)
    assert time.process_time() - began < 2.0


def test_few_blockers_of_other_repositories_are_asked_about() -> None:
    body = "\n".join(f"Blocked by #{number}, other/repo#{number}, other/repo#{number}" for number in range(1, 2000))
    found = blockers(body, repo="owner/name")
    assert [one for one in found if one[0] == "other/repo"] == [("other/repo", number) for number in range(1, 21)]
    assert len(found) == 1999 + 20
