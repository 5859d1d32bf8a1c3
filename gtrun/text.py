"""Untrusted text on its way to a terminal, a log line or a unit property."""

import unicodedata

# Cc: C0 and C1 controls (terminal escapes); Cf: bidirectional overrides and zero-width; Cs, Co, Cn, Zl, Zp
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def _shown(char: str) -> str:
    if unicodedata.category(char) not in _UNSAFE:
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def plain(text: str) -> str:
    """One line that cannot move a cursor: every control and invisible character is written as its escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_shown, text))


def plain_lines(text: str) -> str:
    """`plain` for each line of a text; line ends and tabs stay."""
    return "\n".join(plain(line.expandtabs()) for line in text.replace("\r\n", "\n").split("\n"))


def shorten(text: str, length: int) -> str:
    """The text cut to `length` characters, with an ellipsis where something was cut."""
    return text if len(text) <= length else text[: length - 1] + "…"
