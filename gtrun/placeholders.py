"""Placeholders in commands and prompts: `{issue}` is replaced, `{{` and `}}` are braces, nothing else may be.

Not `str.format`: its fields reach attributes (`{a.b}`), items and conversions of whatever they name.
"""

import re
from collections.abc import Mapping

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = re.compile(r"[a-z][a-z_]*", re.ASCII)


def _name(token: re.Match[str]) -> str | None:
    """The placeholder that a token is; None for a doubled brace. Raises ValueError."""
    if token[0] in {"{{", "}}"}:
        return None
    if token[1] is None:
        raise ValueError(f"a single {token[0]!r} means nothing: write {token[0] * 2!r} for a brace")
    if not _NAME.fullmatch(token[1]):
        raise ValueError(f"{token[0]!r} is no placeholder: one is a name, as {{issue}}; write {{{{ and }}}} for braces")
    return token[1]


def fields(template: str) -> list[str]:
    """The placeholders of a template in their order, with repetitions. Raises ValueError."""
    return [name for name in map(_name, _TOKEN.finditer(template)) if name is not None]


def literal_prefix(template: str) -> str:
    """The text that stands before the first placeholder, whatever the values. Raises ValueError."""
    prefix, end = "", 0
    for token in _TOKEN.finditer(template):
        prefix += template[end : token.start()]
        end = token.end()
        if _name(token) is not None:
            return prefix
        prefix += token[0][0]
    return prefix + template[end:]


def expand(template: str, values: Mapping[str, str]) -> str:
    """The template with its placeholders replaced, in one pass: no value is scanned. Raises ValueError."""

    def value(token: re.Match[str]) -> str:
        name = _name(token)
        if name is None:
            return token[0][0]
        if name not in values:
            raise ValueError(
                f"unknown placeholder {{{name}}}; known here: {' '.join(f'{{{known}}}' for known in values)}"
            )
        return values[name]

    return _TOKEN.sub(value, template)
