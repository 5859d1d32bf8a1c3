"""`gtrun rigs`."""

import typer

from gtrun.cli.commands import JsonOption, command_parser
from gtrun.cli.forwarding import elsewhere
from gtrun.cli.output import document, table
from gtrun.cli.times import iso, local
from gtrun.counters import Tally
from gtrun.exits import Exit
from gtrun.gather import world_of
from gtrun.planner import Availability, RigAvailability, agents
from gtrun.planner import rigs as rigs_of
from gtrun.state.ledger import Ledger

app = command_parser()


@app.command()
def rigs(
    context: typer.Context,
    as_json: JsonOption = False,  # noqa: FBT002
) -> int:
    """What each rig and each agent has been given, and what it can take now."""
    fleet = context.obj.fleet()
    if (code := elsewhere(context.obj, fleet)) is not None:
        return code
    caller = context.obj.caller()
    with Ledger(caller.state, keep=False) as ledger:
        world = world_of(fleet, caller, ledger)
    found = rigs_of(world)
    theirs = agents(world, found)
    if as_json:
        document(
            "rigs",
            rigs=[{"rig": one.rig, **_fields(one)} for one in found.values()],
            agents=[{"agent": one.agent, "rig": one.rig, **_fields(one)} for one in theirs.values()],
        )
        return Exit.DONE
    heads = ("RIG", "AGENT", "STATE", "RUNS", "OF", "FREE", "GIVEN", "LAST", "SUCCEEDED", "FAILED IN A ROW", "WHY")
    rows = []
    for rig in found.values():
        rows.append((rig.rig, "", *_cells(rig)))
        rows += [("", one.agent, *_cells(one)) for one in theirs.values() if one.rig == rig.rig]
    table(heads, rows)
    return Exit.DONE


def _fields(one: RigAvailability | Availability) -> dict[str, object]:
    return {
        "running": one.running,
        "max_runs": one.max_runs,
        "free": one.free,
        "state": one.bar or "free",
        "why": one.why or None,
        "until": iso(one.until),
        "dispatched": one.tally.dispatched,
        "last_dispatch_at": iso(one.tally.last_dispatch_at),
        "last_dispatch_count": one.tally.last_dispatch_count,
        "successes": one.tally.successes,
        "failures": one.tally.failures,
    }


def _cells(one: RigAvailability | Availability) -> tuple[object, ...]:
    tally: Tally = one.tally
    last = local(tally.last_dispatch_at)
    if tally.last_dispatch_count > 1:
        last += f" ({tally.last_dispatch_count})"
    unlimited = "-" if one.max_runs is None else one.max_runs
    free = "-" if one.free is None else one.free
    state = (one.bar or "free").replace("-", " ")
    return (state, one.running, unlimited, free, tally.dispatched, last, tally.successes, tally.failures, one.why)
