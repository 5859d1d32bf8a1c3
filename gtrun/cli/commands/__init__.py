"""One module a command: its arguments, one call into the package, its output."""

from typing import Annotated

import typer

_issue = typer.Argument(metavar="ISSUE", help="142, owner/repo#142, or its URL.", show_default=False)

IssueArgument = Annotated[str, _issue]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document.")]


def command_parser() -> typer.Typer:
    """A parser as every command has it: plain help, and no completion of its own."""
    return typer.Typer(no_args_is_help=False, add_completion=False, rich_markup_mode=None)
