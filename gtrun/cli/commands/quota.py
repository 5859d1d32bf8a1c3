"""`gtrun quota`: which agents are dark, and until when; set and clear it by hand."""

import re
import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from gtrun.cli.commands import JsonOption, command_parser
from gtrun.cli.output import document, say, table
from gtrun.cli.times import iso, local
from gtrun.config import Agent
from gtrun.errors import UsageError
from gtrun.exits import Exit
from gtrun.measures import seconds
from gtrun.quota import HORIZON, Quota, dark_until, instant
from gtrun.reach import operations as at_agent
from gtrun.reach import worker as workers
from gtrun.survey import agents_of, route_of, survey

app = command_parser()
AgentArgument = Annotated[str, typer.Argument(metavar="AGENT", help="An agent of fleet.toml.", show_default=False)]


@app.callback(invoke_without_command=True)
def quota(
    context: typer.Context,
    dark: Annotated[bool, typer.Option("--dark", help="Only the names of the agents that are dark now.")] = False,  # noqa: FBT002
    as_json: JsonOption = False,  # noqa: FBT002
) -> int:
    """Which agents' quotas are used up, until when, and how that is known."""
    if context.invoked_subcommand is not None:
        return Exit.DONE
    rows: list[tuple[str, str, float | None, str]] = []
    fleet, caller = context.obj.fleet(), context.obj.caller()
    for answer in survey(agents_of(fleet, None), fleet, caller, at_agent.read_quota, at_agent.Nothing()):
        name = answer.agent.name
        if answer.value is None:
            rows.append((name, "unreachable", None, answer.problem))
            continue
        try:
            until = dark_until(answer.value, time.time())
        except ValueError as error:
            rows.append((name, "unknown", None, str(error)))
        else:
            rows.append((name, "dark", until.at, until.source) if until else (name, "ready", None, ""))
    if dark:
        for name, state, *_ in rows:
            if state == "dark":
                print(name)
    elif as_json:
        heads = ("agent", "state", "resets_at", "source")
        document("quota", agents=[dict(zip(heads, (n, s, iso(at), why), strict=True)) for n, s, at, why in rows])
    else:
        table(("AGENT", "STATE", "RESETS", "SOURCE"), ((n, s, local(at), why) for n, s, at, why in rows))
    return Exit.DONE


@app.command("set")
def set_quota(
    context: typer.Context,
    agent: AgentArgument,
    until: Annotated[
        str, typer.Option(metavar="T", help="2026-11-30T18:00 (local), 2026-11-30T18:00Z, or 90m from now.")
    ],
) -> None:
    """Say that this agent's quota is used up until T. Without a zone T is local time."""
    at = _instant(until)
    quota_now = Quota(exhausted=True, resets_at=iso(at), source="gtrun quota set")
    _write(context, context.obj.fleet().agent(agent), quota_now)
    say(f"{agent} gets no work until {local(at)}")


@app.command("clear")
def clear(context: typer.Context, agent: AgentArgument) -> None:
    """Say that this agent can work again."""
    _write(context, context.obj.fleet().agent(agent), None)
    say(f"{agent} can be given work")


def _write(context: typer.Context, agent: Agent, quota: Quota | None) -> None:
    with workers.as_account(route_of(context.obj.fleet(), agent, context.obj.caller())) as worker:
        worker.call(at_agent.set_quota, at_agent.ToSetQuota(quota))


def _instant(text: str) -> float:
    now = time.time()
    try:
        if re.fullmatch(r"[0-9a-z. ]+", text):
            at = now + seconds(text)
        elif datetime.fromisoformat(text).tzinfo is None:
            at = datetime.fromisoformat(text).astimezone(UTC).timestamp()
        else:
            at = instant(text)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{text!r} is no instant", hint="like 2026-11-30T18:00, 2026-11-30T18:00:00Z, or 90m from now"
        ) from None
    if not now < at <= now + HORIZON:
        raise UsageError(f"{text!r} is not within the next {HORIZON / 86400:.0f} days")
    return at
