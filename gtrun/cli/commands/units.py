"""`gtrun units`."""

import sys
from collections.abc import Collection
from typing import Annotated

import typer

from gtrun import catalog
from gtrun.cli.commands import JsonOption, command_parser
from gtrun.cli.forwarding import belongs_elsewhere
from gtrun.cli.output import document, say, tell
from gtrun.errors import UsageError
from gtrun.exits import Exit
from gtrun.reach.operations import VerifiedUnit
from gtrun.text import plain
from gtrun.unit_files import UNITS, terms_of
from gtrun.unit_files import install as install_units
from gtrun.unit_files import uninstall as uninstall_units
from gtrun.verified import Verified
from gtrun.verified import verify as verify_units

app = command_parser()
_CATALOG = "catalog"
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[reconcile] [sweep] [catalog]", show_default=False, help="Which; without, all."),
]


@app.callback()
def _units() -> None:
    """The units of gtrun: those of runs, the one that reconciles at boot, and the timer of the sweep."""


@app.command()
def install(
    context: typer.Context,
    names: Names = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,  # noqa: FBT002
) -> None:
    """Reconcile at boot, and hand out work from now on.

    This account's user manager then runs a sweep as often as `[schedule] every` of fleet.toml says, which is written
    into the timer. What is there already is left as it is. Needs no login if the account lingers, which is checked. The
    catalog has `journalctl -x` explain what gtrun writes, and is for root to put in.
    """
    invocation = context.obj
    fleet, account, wanted = invocation.fleet(), invocation.caller(), _known(names)
    if "sweep" in wanted and belongs_elsewhere(invocation, fleet):
        say(f"the sweep is left out: work is handed out by {fleet.claim.host}, so install it there")
        wanted = [name for name in wanted if name != "sweep"]
    terms = terms_of(fleet, account, invocation.environment, invocation.config)
    if set(wanted) & set(UNITS):
        for line in install_units(account, terms, wanted, rehearse=dry_run):
            tell(line)
    if _CATALOG in wanted:
        for line in catalog.install(rehearse=dry_run):
            tell(line)


@app.command()
def uninstall(context: typer.Context, names: Names = None) -> None:
    """Take out what `install` has put in. What it has started goes on."""
    wanted, found = _known(names), False
    if set(wanted) & set(UNITS):
        for line in uninstall_units(context.obj.caller(), wanted):
            tell(line)
            found = True
    if _CATALOG in wanted:
        for line in catalog.uninstall():
            tell(line)
            found = True
    if not found:
        say("there is nothing to take out")


def _known(names: Collection[str] | None) -> Collection[str]:
    for name in names or ():
        if name not in {*UNITS, _CATALOG}:
            raise UsageError(f"there is no {name[:80]!r} to install; there are {', '.join(UNITS)} and {_CATALOG}")
    return names or (*UNITS, _CATALOG)


@app.command()
def verify(
    context: typer.Context,
    as_json: JsonOption = False,  # noqa: FBT002
) -> int:
    """Have systemd look at the units of runs, and at gtrun's own.

    Names the drop-ins over a run; exits with 1 if something is to mend.
    """
    found = list(verify_units(context.obj.fleet(), context.obj.caller()))
    if as_json:
        document(
            "units-verify",
            units=[_fields(one, unit) for one in found for unit in one.units],
            unreachable=[{**_whose(one), "problem": one.problem} for one in found if one.problem],
        )
    else:
        for one in found:
            _print(one)
        if not any(one.units or one.problem for one in found):
            say("there is no unit to look at: no agent has a command, and `gtrun units install` has put none in")
    bad = sum(bool(one.problem) + sum(not _is_fine(unit) for unit in one.units) for one in found)
    if bad and not as_json:
        print(f"gtrun: {bad} to mend", file=sys.stderr)
    return Exit.FAILED if bad else Exit.DONE


def _is_fine(unit: VerifiedUnit) -> bool:
    return not unit.problems and not unit.drop_ins


def _print(one: Verified) -> None:
    whose = plain(one.agent.name if one.agent else one.account)
    if one.problem:
        print(f"BAD  {whose}: {plain(one.problem)}")
        if one.hint:
            print(f"       {plain(one.hint)}")
    for unit in one.units:
        exposure = "" if unit.exposure is None else f", exposure {unit.exposure} of 10"
        print(f"{'ok  ' if _is_fine(unit) else 'BAD '} {whose}: {plain(unit.name)}{exposure}")
        for problem in unit.problems:
            print(f"       {plain(problem)}")
        for path in unit.drop_ins:
            print(f"       a drop-in changes it: {plain(path)}")


def _whose(one: Verified) -> dict[str, object]:
    return {"agent": one.agent.name if one.agent else None, "account": one.account}


def _fields(one: Verified, unit: VerifiedUnit) -> dict[str, object]:
    return {
        **_whose(one),
        "unit": unit.name,
        "file": unit.file or None,
        "text": unit.text,
        "problems": unit.problems,
        "drop_ins": unit.drop_ins,
        "exposure": unit.exposure,
        "is_fine": _is_fine(unit),
    }
