"""Whether a run ended of its quota, by the words that the agent programs of the shipped profiles are known to print."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtrun.exhausted import LEAST, LINES, PATTERNS, UNSTATED, Exhausted, exhausted, patterns_of
from gtrun.quota import HORIZON

NOW = 1_790_000_000.0

SAID = [
    ("claude", "Claude AI usage limit reached|1790003000", 3000),
    ("claude", "Claude usage limit reached. Your limit will reset in 2 hours", 7200),
    ("claude", "You've hit your limit · resets in 3h 12m", 3 * 3600 + 720),
    ("claude", "You\u2019ve hit your weekly limit · resets in 2d", 2 * 86400),
    ("claude", "You've hit your Fable limit · resets in 1h", 3600),
    ("claude", "5-hour limit reached ∙ resets in 1h", 3600),
    ("claude", "\x1b[31mYou've hit your \x1b[1msession limit\x1b[0m", UNSTATED),
    ("claude", "Credit balance is too low", UNSTATED),
    ("claude", '{"is_error":true,"result":"You\'ve hit your limit · resets in 1h"}', 3600),
    ("codex", "■ You've hit your usage limit. Upgrade to Pro (https://…) or try again in 5 days 22 hours", 511_200),
    ("codex", '{"error":{"type":"usage_limit_reached","resets_in_seconds":602705}}', 602_705),
    ("codex", "ERROR: YOU'VE HIT YOUR USAGE LIMIT. Try again later.", UNSTATED),
    ("gemini", "TerminalQuotaError: You have exhausted your capacity on this model. It resets after 9h29m20s.", 34_160),
    ("gemini", "You have exhausted your daily quota on this model.", UNSTATED),
]  # fmt: skip
STACK = ["    at classifyGoogleError (file:///opt/x.js:136:28)"] * 12


def judged(lines, code=1, backend="claude", **more):
    return exhausted(lines, code, patterns=patterns_of(backend, ""), now=NOW, **more)


@pytest.mark.parametrize(("backend", "line", "seconds"), SAID, ids=[line[:40] for _, line, _ in SAID])
def test_what_the_shipped_programs_say(backend, line, seconds):
    for lines in ([line], ["working", line, *STACK]):
        found = judged(lines, backend=backend)
        assert found is not None
        assert found.resets_at == NOW + seconds
        assert found.line.isprintable()
    assert exhausted([line], 1, patterns=(), now=NOW) is None


@pytest.mark.parametrize(
    "line",
    [
        "done", "the usage limits are documented", "API Error: 529 overloaded", "tests failed: 3",
        "Attempt 1 failed: You have exhausted your capacity on this model. Retrying after 5179ms...",
    ],
)  # fmt: skip
def test_what_is_no_end_of_a_quota(line):
    assert all(judged([line], backend=backend) is None for backend in PATTERNS)


def test_only_the_last_lines_count():
    assert judged(["usage limit reached", *["x"] * LINES]) is None
    assert judged(["usage limit reached", *["x"] * (LINES - 1)]) is not None


def test_the_last_word_counts_and_its_time_may_come_later():
    assert judged(["hit your limit · resets in 1h", "hit your limit · resets in 2h"]).resets_at == NOW + 7200
    assert judged(["hit your usage limit", "  or try again in 2 hours"]).resets_at == NOW + 7200


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (f"|{int(NOW) - 86400}", UNSTATED),  # long past
        (f"|{int(NOW) - 100}", LEAST),
        (" in 0 seconds", LEAST),
        (f"|{int(NOW + HORIZON) + 60}", UNSTATED),  # absurd
        (f"|{int(NOW + HORIZON) - 60}", HORIZON - 60),
        (" resets Feb 30", UNSTATED),
    ],
)
def test_a_time_that_nobody_believes(said, seconds):
    assert judged(["usage limit reached, try again" + said]).resets_at == NOW + seconds


def test_patterns_are_found_by_backend_and_by_program():
    assert patterns_of("claude", "/usr/bin/claude") == PATTERNS["claude"]
    assert patterns_of("claude", "~/bin/codex") == tuple(dict.fromkeys(PATTERNS["claude"] + PATTERNS["codex"]))
    assert patterns_of("mine", "sh") == ()


def test_patterns_of_ones_own():
    assert exhausted(["Out of CREDITS: 3h"], 1, patterns=["out * credits"], now=NOW).line == "Out of CREDITS: 3h"
    assert exhausted(["credits out of"], 1, patterns=["out * credits"], now=NOW) is None


def test_exit_codes_of_ones_own():
    found = exhausted([], 75, patterns=(), exit_codes=(75,), now=NOW)
    assert found == Exhausted("exit code 75", NOW + UNSTATED)
    assert exhausted(["back soon: try again in 2h"], 75, patterns=(), exit_codes=(75,), now=NOW).resets_at == NOW + 7200
    assert exhausted([], 1, patterns=(), exit_codes=(75,), now=NOW) is None


def test_what_is_shown_is_the_sentence_within_a_long_line():
    found = judged(["x" * 50_000 + "You've hit your limit · resets in 2h " + "y" * 500_000])
    assert found.line.startswith("hit your limit · resets in 2h")
    assert len(found.line) <= 160
    assert found.resets_at == NOW + 7200


@given(st.lists(st.text()), st.text(), st.integers(1, 255))
def test_every_answer_can_be_acted_on(lines, tail, code):
    for found in (judged([*lines, "usage limit reached" + tail]), judged([*lines, "usage limit reached", tail])):
        if found is not None:  # the tail may be one that tries again
            assert NOW + LEAST <= found.resets_at <= NOW + HORIZON
            assert "\n" not in found.line
            assert "\x1b" not in found.line
    assert judged(lines, code) is None or any("limit" in line or "credit" in line for line in lines)


@pytest.mark.parametrize(
    "junk", ["\x1b[" * 300_000, "\x1b]" + "a" * 10**6, "hit your " * 120_000, "é" * 10**6, "\x1b[0;" * 250_000]
)
def test_no_output_takes_long(junk):
    before = time.process_time()
    exhausted([junk] * 50, 1, patterns=["*hit*your*é*limit*", *patterns_of("claude", "codex")], exit_codes=[1], now=NOW)
    assert time.process_time() - before < 2  # measured: 30 ms
