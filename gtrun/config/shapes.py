"""Reading TOML tables by their shape: which keys exist, and all that was wrong at once."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gtrun.text import plain, shorten

Value = Callable[[object], Any]
"""Turns what TOML holds into what the schema holds. Raises ValueError: what was expected, what was found."""


class WrongValueError(ValueError):
    """One value that cannot be meant: what was expected and what was found."""


_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


class Keys(msgspec.Struct, frozen=True):
    """A table with known keys."""

    known: Mapping[str, "Shape"]


class Named(msgspec.Struct, frozen=True):
    """A table whose keys are names that a person chooses; `name` raises ValueError for an impossible one."""

    name: Callable[[str], None]
    each: "Shape"


Shape = Value | Keys | Named


def read(shape: Shape, value: object, wrong: list[str], at: str = "") -> Any:  # noqa: ANN401 - the shape says what
    """The value with each part checked; what is wrong is added to `wrong` with its place, and left out."""
    if not isinstance(shape, (Keys, Named)):
        return shape(value)
    if not isinstance(value, dict):
        raise WrongValueError(f"expected a table like {_example(shape)}, found {found(value)}")
    result = {}
    for key, inner in value.items():
        place = f"{at}.{_shown(key)}" if at else _shown(key)
        try:
            result[key] = read(_shape(shape, key), inner, wrong, place)
        except ValueError as error:
            wrong.append(f"{place}: {error}")
    return result


def _shape(shape: Keys | Named, key: str) -> Shape:
    if isinstance(shape, Named):
        shape.name(key)
        return shape.each
    if key in shape.known:
        return shape.known[key]
    raise WrongValueError(f"unknown key; {_suggestion(key, shape.known)}known here: {', '.join(shape.known)}")


def _example(shape: Keys | Named) -> str:
    return f"{{ {next(iter(shape.known)) if isinstance(shape, Keys) else 'NAME'} = … }}"


def _suggestion(key: str, known: Mapping[str, Shape]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - 4 ms that only a mistake pays

    close = get_close_matches(key, known, n=1)
    return f"did you mean {close[0]!r}? " if close else ""


def _shown(key: str) -> str:
    return key if _BARE.fullmatch(key) else f'"{shorten(plain(key), 60)}"'


def found(value: object) -> str:
    """A value as an error names it, in one line."""
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return f"the number {shorten(str(value), 40)}" if abs(value) < 1e40 else "a huge number"
        case str():
            return plain(shorten(repr(value), 80))
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return "a date or a time"
