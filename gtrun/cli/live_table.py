"""The rows that `ps` and `live` share."""

import time

from gtrun.cli.output import document, say, table
from gtrun.cli.times import iso
from gtrun.looking import Live, Unreachable
from gtrun.measures import human_seconds


def show(kind: str, found: list[Live], silent: list[Unreachable], *, as_json: bool) -> None:
    """Print live units, and one line for each agent that could not be asked."""
    if as_json:
        document(
            kind,
            runs=[_fields(one) for one in found],
            unreachable=[{"agent": one.agent.name, "problem": one.problem} for one in silent],
        )
        return
    heads = ("AGENT", "ISSUE", "UNIT", "STATE", "FOR", "RUN", "TITLE")
    rows = [_row(one) for one in found]
    table(heads, [*rows, *((one.agent.name, "-", "-", "unreachable", "-", "-", one.problem) for one in silent)])
    for one in found:
        if one.run.not_in_force:
            say(f"not in force for {one.run.unit.state.name} on {one.agent.name}: {', '.join(one.run.not_in_force)}")
        if one.run.drop_ins:
            say(f"changed by a drop-in is {one.run.unit.state.name} on {one.agent.name}: {', '.join(one.run.drop_ins)}")
    for hint in dict.fromkeys(one.hint for one in silent if one.hint):
        say(f"hint: {hint}")


def _fields(one: Live) -> dict[str, object]:
    seen, record = one.run.unit, one.run.record
    return {
        "agent": one.agent.name,
        "account": one.account.name,
        "rig": one.agent.rig,
        "unit": seen.state.name,
        "active": seen.state.active,
        "sub": seen.state.sub,
        "main_pid": seen.main_pid or None,
        "run": seen.run,
        "issue": record.resolved.issue.key if record else None,
        "title": record.resolved.issue.title if record else None,
        "begun_at": iso(record.begun_at) if record else None,
        "started_by_gtrun": record is not None,
        "not_in_force": one.run.not_in_force,
        "drop_ins": one.run.drop_ins,
    }


def _row(one: Live) -> tuple[object, ...]:
    seen, record = one.run.unit, one.run.record
    state = f"{seen.state.active}/{seen.state.sub}"
    if record is None:
        return (one.agent.name, "-", seen.state.name, state, "-", "-", "(not started by gtrun)")
    lasted = "-" if record.begun_at is None else human_seconds(max(0.0, time.time() - record.begun_at))
    issue = record.resolved.issue
    return (one.agent.name, issue.key, seen.state.name, state, lasted, (seen.run or "-")[:12], issue.title)
