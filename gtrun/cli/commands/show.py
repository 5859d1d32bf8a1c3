"""`gtrun show`."""

import shlex

import msgspec
import typer

from gtrun.cli.commands import IssueArgument, JsonOption, command_parser
from gtrun.cli.forwarding import elsewhere
from gtrun.cli.output import document, say, table
from gtrun.cli.pulls import as_dict
from gtrun.cli.pulls import show as show_pulls
from gtrun.cli.times import iso, local
from gtrun.exits import Exit
from gtrun.looking import Aside, History, Past
from gtrun.looking import history as history_of
from gtrun.markers import outcome, used
from gtrun.measures import human_seconds
from gtrun.model import Ending, Standing
from gtrun.names import IssueKey, in_words, plugin_name
from gtrun.state.ledger import Attempt
from gtrun.text import plain

app = command_parser()
_NOTABLE = 0.1
"""Seconds: a claim lock that was waited for, or held, for less is not worth a word on the page."""


@app.command()
def show(
    context: typer.Context,
    issue: IssueArgument,
    as_json: JsonOption = False,  # noqa: FBT002
) -> int:
    """The history of an issue: attempts, guards that refused or failed open, runs and how they ended."""
    fleet = context.obj.fleet()
    key = fleet.work_key(issue)
    if (code := elsewhere(context.obj, fleet)) is not None:
        return code
    told = history_of(fleet, context.obj.caller(), key)
    if as_json:
        _document(key, told)
    else:
        _page(key, told)
    return Exit.DONE if told.issue or told.attempts or told.runs else Exit.FAILED


def _document(key: str, told: History) -> None:
    document(
        "show",
        issue=key,
        title=told.issue.title if told.issue else None,
        is_open=told.issue.is_open if told.issue else None,
        standing=told.standing,
        held=told.readiness.held if told.readiness else None,
        held_because=(told.readiness.why or None) if told.readiness else None,
        board_problem=told.board_problem or None,
        pull_requests=[as_dict(pull) for pull in told.pulls],
        attempts=[
            {
                "at": iso(one.at),
                "by": one.by,
                "agent": one.agent,
                "unit": one.unit,
                "outcome": one.outcome,
                "code": one.code,
                "reason": one.reason,
                "run": one.run,
                "digest": one.digest or None,
                "lock_waited": one.lock_waited,
                "lock_held": one.lock_held,
                "verdicts": [
                    {"guard": guard, "verdict": verdict, "reason": reason} for guard, verdict, reason in one.verdicts
                ],
            }
            for one in told.attempts
        ],
        runs=[
            {
                "agent": one.agent.name,
                "unit": one.run.resolved.unit,
                "run": one.run.run,
                "commit": one.run.release.rpartition("/")[2] or None,
                "digest": one.run.resolved.plugin.digest if one.run.resolved.plugin else None,
                "begun_at": iso(one.run.begun_at),
                "ended_at": iso(one.run.ended_at),
                "ending": _ending(one.run.ending),
                "markers_owed": [kind for kind in one.run.owed if kind not in one.run.posted],
                "markers_posted": list(one.run.posted),
            }
            for one in told.runs
        ],
        stashes=[
            {
                "agent": one.agent.name,
                "clone": one.stash.clone,
                "run": one.stash.run,
                "at": iso(one.stash.at),
                "what": one.stash.what,
                "command": list(one.stash.command),
            }
            for one in told.stashes
        ],
        damaged=told.damaged,
        unreachable=[{"agent": one.agent.name, "problem": one.problem} for one in told.unreachable],
    )


def _ending(ending: Ending | None) -> dict[str, object] | None:
    if ending is None:
        return None
    told: dict[str, object] = msgspec.to_builtins(ending)
    return told | ({"resets_at": iso(ending.resets_at)} if ending.resets_at is not None else {})


def _print_issue(key: IssueKey, told: History) -> None:
    if plugin_name(key) is not None:
        print(in_words(key))
        return
    if told.issue is None:
        say(told.board_problem or f"issue {key} is not on the board")
        return
    held = told.readiness if told.readiness and told.readiness.held else None
    # the board knows nothing of live units, stops and failures: what it calls ready may be held all the same
    standing = "" if held and told.standing == Standing.READY else f", {told.standing}"
    print(f"issue {key}: {plain(told.issue.title)} ({'open' if told.issue.is_open else 'closed'}{standing})")
    if held:
        print(f"not handed out by itself: it {plain(held.why)}")


def _page(key: IssueKey, told: History) -> None:
    _print_issue(key, told)
    if told.pulls:
        print("\npull requests")
        show_pulls(told.pulls)
    if told.attempts:
        print("\nattempts")
        table(("WHEN", "BY", "AGENT", "OUTCOME", "CODE", "WHY"), map(_attempt, told.attempts))
    if told.runs:
        print("\nruns")
        last = "SHA-256" if plugin_name(key) is not None else "MARKERS"
        table(("BEGUN", "AGENT", "RUN", "RESULT", "TOOK", last), map(_run, told.runs))
    if told.stashes:
        print("\nset aside")
        heads = ("WHEN", "AGENT", "RUN", "CLONE", "WHAT", "TO BRING IT BACK")
        table(heads, map(_aside, told.stashes))
    if (told.issue or plugin_name(key)) and not told.attempts and not told.runs:
        say("it has never been dispatched from here")
    if any(set(one.run.owed) - set(one.run.posted) for one in told.runs):
        say("what is owed is posted by: gtrun reconcile")
    for path in told.damaged:
        say(f"the run record {path} is damaged")
    for one in told.unreachable:
        say(f"{one.agent.name} could not be asked: {one.problem}")


def _attempt(one: Attempt) -> tuple[object, ...]:
    why = [f"{guard} guard failed open: {reason}" for guard, verdict, reason in one.verdicts if verdict == "open"]
    why += [one.reason] if one.reason else []
    if (one.lock_waited or 0.0) > _NOTABLE:
        why.append(f"waited {human_seconds(one.lock_waited or 0.0)} for the claim lock")
    if (one.lock_held or 0.0) > _NOTABLE:
        why.append(f"held the claim lock for {human_seconds(one.lock_held or 0.0)}")
    outcome_said = one.outcome or "not known (its dispatcher died, or it is under way)"
    return (local(one.at), one.by, one.agent, outcome_said, "-" if one.code is None else one.code, "; ".join(why))


def _run(one: Past) -> tuple[object, ...]:
    run = one.run
    owing = [kind for kind in run.owed if kind not in run.posted]
    markers = f"owed: {', '.join(owing)}" if owing else ", ".join(run.posted) or "none"
    if run.resolved.plugin is not None:
        markers = run.resolved.plugin.digest[:12]
    ended = outcome(run.ending) if run.ending else "not ended"
    took = (used(run.ending) if run.ending else "") or "-"
    return (local(run.begun_at), one.agent.name, (run.run or "-")[:12], ended, took, markers)


def _aside(one: Aside) -> tuple[object, ...]:
    stash = one.stash
    command = shlex.join(stash.command)
    return (local(stash.at), one.agent.name, stash.run[:12], stash.clone, stash.what, command)
