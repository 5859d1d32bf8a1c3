"""`gtrun sweep`."""

from typing import Annotated

import typer

from gtrun.cli.commands import JsonOption, command_parser
from gtrun.cli.dispatching import end_with_connection
from gtrun.cli.forwarding import belongs_elsewhere, run_there
from gtrun.cli.output import document, say, table
from gtrun.cli.times import iso
from gtrun.exits import Exit
from gtrun.pick import Order, Swept, new_sweep, planned
from gtrun.pick import sweep as _sweep
from gtrun.planner import AgentPlan, IssuePlan, Plan, Why
from gtrun.reach import Worker

app = command_parser()
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be started, and why; start nothing.")]
MaxOption = Annotated[
    int | None, typer.Option("--max", min=1, metavar="N", help="Start at most so many; `batch` of fleet.toml without.")
]
SkillOption = Annotated[
    list[str] | None, typer.Option(metavar="S", help="Of the agents that are free, those with it. Repeatable.")
]


@app.command()
def sweep(
    context: typer.Context,
    dry_run: DryRunOption = False,  # noqa: FBT002
    most: MaxOption = None,
    prefer_skill: SkillOption = None,
    as_json: JsonOption = False,  # noqa: FBT002
) -> int:
    """Match ready issues with agents that are free, and dispatch each."""
    invocation = context.obj
    with Worker.start() as worker:
        fleet, caller = invocation.fleet(), invocation.caller()
        if belongs_elsewhere(invocation, fleet):
            worker.close()
            return run_there(invocation, fleet, starts=None if dry_run else "gtrun ps")
        order = Order(
            caller=caller, environment=invocation.environment, by=invocation.by(), sweep=new_sweep(),
            prefer_skills=tuple(prefer_skill or ()),
        )  # fmt: skip
        batch = fleet.schedule.batch if most is None else most
        if dry_run:
            made = planned(fleet, order, batch=batch)
            if as_json:
                _document(made, None)
            else:
                _page(made)
            return Exit.DONE
        end_with_connection(invocation)
        done = _sweep(
            fleet, order, worker, say, batch=batch,
            heard=lambda one: None if as_json else print(
                f"started {one.run.unit} on {one.run.agent}, run {one.launched.run}", flush=True
            ),
        )  # fmt: skip
    return _report(done, as_json=as_json)


def _report(done: Swept, *, as_json: bool) -> int:
    for problem in done.report.problems:
        say(problem)
    for issue, agent, error in done.failed:
        say(f"issue {issue.key} was not started on {agent}: {error.message}")
    if as_json:
        _document(done.plan, done)
    else:
        print(f"Dispatched {len(done.started)} of {done.plan.started} planned{_left(done.plan)}")
    if done.interrupted is not None:
        raise done.interrupted
    return Exit.DONE


def _left(made: Plan) -> str:
    return f"; {made.skipped} more ready, which wait for the {_LIMITS[made.why]}" if made.skipped else ""


_LIMITS = {Why.BATCH: "next pass", Why.CAPACITY: "next free agent"}


def _page(made: Plan) -> None:
    """A line for each issue and each agent."""
    table(
        ("ISSUE", "PRIORITY", "NOW", "WHY", "TITLE"),
        [(one.issue.key, f"P{one.issue.priority}", _now(one), one.why, one.issue.title) for one in made.issues],
    )
    if made.issues:
        print()
    table(("AGENT", "RIG", "RUNS", "GETS", "WHY"), [_agent(one) for one in made.agents])
    print(f"\nwould dispatch {made.started}{_left(made)}")


def _now(one: IssuePlan) -> str:
    if one.agent is not None:
        return f"starts on {one.agent}"
    return "waits" if one.readiness.held is None else str(one.readiness.held).replace("-", " ")


def _agent(one: AgentPlan) -> tuple[object, ...]:
    found = one.availability
    gets = ", ".join(one.issues) or "-"
    return (found.agent, found.rig, f"{found.running} of {found.max_runs}", gets, one.why)


def _document(made: Plan, done: Swept | None) -> None:
    document(
        "sweep",
        dry_run=done is None,
        why=made.why,
        planned=made.started,
        skipped=made.skipped,
        started=[
            {"issue": one.run.issue.key, "agent": one.run.agent, "unit": one.run.unit, "run": one.launched.run}
            for one in (done.started if done else ())
        ],
        failed=[
            {"issue": issue.key, "agent": agent, "code": int(error.code), "reason": error.message}
            for issue, agent, error in (done.failed if done else ())
        ],
        issues=[_issue_fields(one) for one in made.issues],
        agents=[_agent_fields(one) for one in made.agents],
    )


def _issue_fields(one: IssuePlan) -> dict[str, object]:
    held = one.readiness.held
    return {
        "issue": one.issue.key,
        "title": one.issue.title,
        "priority": one.issue.priority,
        "agent": one.agent,
        "held": held,
        "waits_for": one.waits_for,
        "until": iso(one.readiness.until),
        "why": one.why,
    }


def _agent_fields(one: AgentPlan) -> dict[str, object]:
    found = one.availability
    return {
        "agent": found.agent,
        "rig": found.rig,
        "running": found.running,
        "max_runs": found.max_runs,
        "free": found.free,
        "state": found.bar or "free",
        "until": iso(found.until),
        "issues": list(one.issues),
        "why": one.why,
    }
