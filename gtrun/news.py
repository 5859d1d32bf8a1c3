"""What is new: the first section of NEWS.md, which comes with the package."""

import re
from pathlib import Path


def newest(text: str) -> list[str]:
    """The items of a page's first version, each as one line without its dash. Empty if it has no version."""
    sections = re.split(r"^## .*$", text, flags=re.MULTILINE)
    items = re.findall(r"^- (.*(?:\n  .*)*)", sections[1], re.MULTILINE) if sections[1:] else []
    return [" ".join(item.split()) for item in items]


def what_is_new() -> list[str]:
    """What this version brought, an item each."""
    return newest(Path(__file__).with_name("NEWS.md").read_text())
