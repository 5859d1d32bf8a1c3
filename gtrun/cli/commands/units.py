"""`gtrun units`."""

import sys
from typing import Annotated

import typer

from gtrun.cli.commands import JsonOption, command_parser
from gtrun.cli.output import document, tell
from gtrun.exits import Exit
from gtrun.reach.operations import VerifiedUnit
from gtrun.text import plain
from gtrun.unit_files import install as install_units
from gtrun.unit_files import uninstall as uninstall_units
from gtrun.verified import Verified
from gtrun.verified import verify as verify_units

app = command_parser()


@app.callback()
def _units() -> None:
    """The units of gtrun: those of runs, and the one that reconciles at boot."""


@app.command()
def install(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,  # noqa: FBT002
) -> None:
    """Have runs that a crash left open closed out at boot. What is there already is left as it is."""
    for line in install_units(context.obj.caller(), rehearse=dry_run):
        tell(line)


@app.command()
def uninstall(context: typer.Context) -> None:
    """Take out what `install` has put in."""
    for line in uninstall_units(context.obj.caller()):
        tell(line)


@app.command()
def verify(
    context: typer.Context,
    as_json: JsonOption = False,  # noqa: FBT002
) -> int:
    """Have systemd look at the unit of each agent's runs. Names its drop-ins; exits with 1 if one is to mend."""
    found = list(verify_units(context.obj.fleet(), context.obj.caller()))
    if as_json:
        document(
            "units-verify",
            units=[_fields(one, unit) for one in found for unit in one.units],
            unreachable=[{"agent": one.agent.name, "problem": one.problem} for one in found if one.problem],
        )
    else:
        for one in found:
            _print(one)
    bad = sum(bool(one.problem) + sum(not _is_fine(unit) for unit in one.units) for one in found)
    if bad and not as_json:
        print(f"gtrun: {bad} to mend", file=sys.stderr)
    return Exit.FAILED if bad else Exit.DONE


def _is_fine(unit: VerifiedUnit) -> bool:
    return not unit.problems and not unit.drop_ins


def _print(one: Verified) -> None:
    if one.problem:
        print(f"BAD  {one.agent.name}: {plain(one.problem)}")
        if one.hint:
            print(f"       {plain(one.hint)}")
    for unit in one.units:
        exposure = "" if unit.exposure is None else f", exposure {unit.exposure} of 10"
        print(f"{'ok  ' if _is_fine(unit) else 'BAD '} {one.agent.name}: {plain(unit.name)}{exposure}")
        for problem in unit.problems:
            print(f"       {plain(problem)}")
        for path in unit.drop_ins:
            print(f"       a drop-in changes it: {plain(path)}")


def _fields(one: Verified, unit: VerifiedUnit) -> dict[str, object]:
    return {
        "agent": one.agent.name,
        "unit": unit.name,
        "file": unit.file or None,
        "text": unit.text,
        "problems": unit.problems,
        "drop_ins": unit.drop_ins,
        "exposure": unit.exposure,
        "is_fine": _is_fine(unit),
    }
