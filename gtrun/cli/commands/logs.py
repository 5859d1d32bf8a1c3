"""`gtrun logs`."""

from collections.abc import Iterable
from typing import Annotated

import typer

from gtrun.cli.commands import IssueArgument, JsonOption, command_parser
from gtrun.cli.forwarding import whose
from gtrun.cli.output import document, say
from gtrun.cli.times import local
from gtrun.errors import GtrunError
from gtrun.looking import follow as read_on
from gtrun.looking import printed, runs_of
from gtrun.markers import outcome
from gtrun.names import in_words

app = command_parser()
_MANY = 5000  # lines from which journald's rate limit is near


@app.command()
def logs(
    context: typer.Context,
    issue: IssueArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the run ends.")] = False,  # noqa: FBT002
    run: Annotated[str | None, typer.Option(help="This run, by the beginning of its ID.", metavar="ID")] = None,
    agent: Annotated[str | None, typer.Option(help="A run of this agent.", metavar="A")] = None,
    lines: Annotated[int | None, typer.Option("--lines", "-n", help="Only the last N.", metavar="N", min=0)] = None,
    as_json: JsonOption = False,  # noqa: FBT002
) -> None:
    """What one run wrote: the newest run of the issue, unless --run or --agent says which."""
    fleet = context.obj.fleet()
    key = fleet.work_key(issue)
    past, damaged, silent = runs_of(fleet, context.obj.caller(), key, agent=agent)
    for problem in [*(f"{one.agent.name} could not be asked: {one.problem}" for one in silent),
                    *(f"the run record {path} is damaged" for path in damaged)]:  # fmt: skip
        say(problem)
    chosen = [one for one in past if run is None or (one.run.run or "").startswith(run.lower())]
    if not chosen:
        which = f"run {run!r}" if run is not None else "run"
        hint = whose(context.obj, fleet) or f"what is known about it: gtrun show {key}"
        raise GtrunError(f"there is no {which} of {in_words(key)}", hint=hint)
    one = chosen[-1]
    if follow and not as_json and one.run.ending is None:
        _print(read_on(one, lines))
        found = printed(one, 0)
        _tell_suppressed(found.suppressed, one.account.name)
        return
    found = printed(one, lines)
    if as_json:
        document("logs", run=one.run.run, agent=one.agent.name, issue=key, lines=found.lines,
                 suppressed=found.suppressed)  # fmt: skip
        return
    ending = one.run.ending
    say(f"run {one.run.run} of {in_words(key)} on {one.agent.name}, {local(one.run.begun_at)}: "
        + (outcome(ending) if ending else "live"))  # fmt: skip
    _print(found.lines)
    _tell_suppressed(found.suppressed, one.account.name)
    if not found.suppressed and len(found.lines) >= _MANY:
        say("whether the journal suppressed lines is told only to root and the group systemd-journal")


def _tell_suppressed(count: int, account: str) -> None:
    if count:
        say(f"{count} lines suppressed by the journal's rate limit (of all that {account} ran then)")


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, flush=True)
