"""Untrusted text neither moves a cursor nor begins a line of its own."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gtrun.text import plain, plain_lines, shorten

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
hostile = st.text(
    st.one_of(st.characters(), st.sampled_from("\x1b\x9b\r\n\t\x00\x7f\x85\u2028\u2029\ufeff\u200b" + BIDI))
)


@given(hostile)
@example("".join(map(chr, range(0x100))))
@example(BIDI)
@example("\ud800\ue000\U0010ffff\U000e0001")
def test_plain_text_is_one_line_without_controls(text):
    shown = plain(text)
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in shown)
    assert not set(shown) & set(BIDI)
    assert len(shown.splitlines()) <= 1
    shown.encode()  # no lone surrogate is left that a stream could refuse


@given(hostile)
def test_plain_text_is_stable_and_loses_nothing_visible(text):
    shown = plain(text)
    assert plain(shown) == shown
    kept = [char for char in text if unicodedata.category(char)[0] in "LMNPS" or char == " "]
    remaining = iter(shown)
    assert all(char in remaining for char in kept)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("Fix the parser", "Fix the parser"),
        ("naïve 修复 ✅ 👍", "naïve 修复 ✅ 👍"),
        ("\x1b[2Jx", "\\x1b[2Jx"),
        ("a\nb", "a\\x0ab"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb", "a\\u202eb"),
        ("\U000e0041", "\\U000e0041"),
        ("\udcff", "\\udcff"),
    ],
)
def test_plain_by_example(text, shown):
    assert plain(text) == shown


@given(hostile)
def test_plain_lines_keep_their_lines_and_nothing_else(text):
    shown = plain_lines(text)
    assert shown.count("\n") == text.count("\n")
    assert all(plain(line) == line for line in shown.split("\n"))


def test_plain_lines_by_example():
    assert plain_lines("a\tb\r\n\x1b[1m\rc") == "a       b\n\\x1b[1m\\x0dc"


@pytest.mark.parametrize(
    ("text", "short"), [("", ""), ("abcde", "abcde"), ("abcdef", "abcd…"), ("修" * 9, "修修修修…")]
)
def test_shorten_says_that_it_cut(text, short):
    assert shorten(text, 5) == short
