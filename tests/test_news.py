"""NEWS.md is what `gtrun info` says is new."""

import re
from pathlib import Path

import gtrun
from gtrun.news import newest, what_is_new

PAGE = """# News

## 2.0

A word before.

- One thing,
  with a second line.
- Another.

Not yet: a third.

## 1.0

- Old.
"""


def test_the_first_version_counts_and_no_other():
    assert newest(PAGE) == ["One thing, with a second line.", "Another."]


def test_a_page_without_a_version_has_nothing():
    assert newest("# News\n\n- x\n") == []


def test_this_version_is_the_newest_on_the_page_and_says_something():
    page = Path(gtrun.__file__).with_name("NEWS.md").read_text()
    assert re.search(r"^## (.*)$", page, re.MULTILINE)[1] == gtrun.__version__
    assert len(what_is_new()) > 3
