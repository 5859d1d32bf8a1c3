"""The commands and their option parser. A command's module is imported when that command is typed."""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer._click.exceptions import ClickException, NoArgsIsHelpError
from typer.core import TyperGroup

from gtrun import __version__
from gtrun.cli.invocation import Invocation
from gtrun.errors import GtrunError, UsageError
from gtrun.exits import Exit

COMMANDS = {
    "dispatch": "Start a run of one issue by one agent, exactly once.",
    "sweep": "Match ready issues with agents that are free, and dispatch each.",
    "ps": "Every live run.",
    "live": "Every live unit for one issue.",
    "show": "The history of an issue: attempts, refusals, runs, results.",
    "shipped": "Whether a merged pull request closes an issue.",
    "logs": "What one run wrote.",
    "stop": "Stop the whole run and close it out.",
    "rigs": "What each rig and agent was given, and what it can take now.",
    "pause": "Hand out no work by itself any more.",
    "resume": "Hand out work again.",
    "stashes": "Work that a clone sync set aside, and how to bring it back.",
    "quota": "Which agents' quotas are used up; set and clear it by hand.",
    "preflight": "Would a dispatch be refused?",
    "reconcile": "Close out runs that were lost, post markers still owed.",
    "board": "The local board: its issues, comments, labels, pull requests.",
    "init": "Write a commented fleet.toml.",
    "doctor": "Check this box and say how to mend each fault.",
    "units": "Reconcile at boot, sweep by the clock; have systemd look at the units of runs.",
    "info": "Versions of gtrun, systemd and Python, and what is new.",
}

_BEFORE = "--config and --debug come before the command: gtrun --config FILE ps"
_BETTER_HINTS = {"--config": _BEFORE, "--debug": _BEFORE}
_TYPED = "gtrun.typed"
"""Where the parser's context keeps the command and its arguments as they were typed."""


class _Lazy(TyperGroup):
    """A group that imports only the module of the command it runs."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - typer's own signature
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"gtrun.cli.commands.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        command.help = command.help or COMMANDS[cmd_name]
        command.short_help = COMMANDS[cmd_name]
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        ctx.meta[_TYPED] = list(args)
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches  # noqa: PLC0415 - 4 ms that only a mistake pays

            close = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {close[0]}?" if close else "gtrun --help lists them"
            raise UsageError(f"there is no command {args[0][:80]!r}", hint=hint)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # the parser would make a silent exit of it
            raise GtrunError("interrupted", code=Exit.INTERRUPTED) from None


app = typer.Typer(
    cls=_Lazy,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(asked: bool) -> None:  # noqa: FBT001 - the parser's own way to call it
    if asked:
        print(f"gtrun {__version__}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_tell_version, help="Say which version it is.")
]


@app.callback()
def _options(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option(help="Use this fleet.toml.", metavar="FILE")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a bug.")] = False,  # noqa: FBT002
    version: VersionOption = False,  # noqa: ARG001, FBT002
) -> None:
    """Start one run of one issue by one coding agent, exactly once, as a systemd unit."""
    typed = [*(["--debug"] if debug else []), *context.meta[_TYPED]]
    context.obj = context.obj or Invocation.of(os.environ, config, typed)


def parse_and_run(arguments: Sequence[str], forwarded: Invocation | None = None) -> int:
    """Parse a command line and run its command; returns the exit code that the command chose. Raises UsageError.

    `forwarded` is the invocation if it came from elsewhere.
    """
    try:
        result = app(list(arguments), prog_name="gtrun", standalone_mode=False, obj=forwarded)
    except typer.Exit as stop:
        return int(stop.exit_code)
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # the parser's own answer to one: exit code 1
            raise stop.__context__ from None
        raise
    except NoArgsIsHelpError as error:
        error.show()
        return Exit.USAGE
    except ClickException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "gtrun"
        hint = _BETTER_HINTS.get(getattr(error, "option_name", ""), f"how it is typed: {command} --help")
        raise UsageError(error.format_message().rstrip("."), hint=hint) from error
    return result if isinstance(result, int) else Exit.DONE
