"""What commands print: data on stdout as a table or as one JSON document, everything else on stderr."""

import sys
import time
from collections.abc import Iterable, Sequence

from gtrun.cli.times import local
from gtrun.text import plain

SCHEMA = 1
"""Version of every `--json` document; it grows when a field changes its meaning or goes away."""


def say(text: str) -> None:
    """One line for the person, on stderr."""
    print(f"gtrun: {plain(text)}", file=sys.stderr)


def tell(text: str) -> None:
    """One line for the person, on stdout."""
    print(plain(text))


def begin_page() -> None:
    """What comes next takes the place of what was there: on a cleared terminal, elsewhere below the time."""
    if sys.stdout.isatty():
        print("\x1b[H\x1b[2J", end="")
    print(local(time.time()))


def document(kind: str, **fields: object) -> None:
    """One JSON document on stdout: `schema`, `kind`, and the fields that the README lists for that kind."""
    import json  # noqa: PLC0415 - 1 ms that no plain dispatch pays

    print(json.dumps({"schema": SCHEMA, "kind": kind, **fields}, ensure_ascii=True))


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on stdout: aligned columns, no rules; every cell is escaped. Nothing is printed for no rows."""
    cells = [[plain(str(cell)) for cell in row] for row in rows]
    if not cells:
        return
    from rich.cells import cell_len  # noqa: PLC0415 - 12 ms that only tables need: wide characters

    lines = [list(heads), *cells]
    widths = [max(cell_len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())
