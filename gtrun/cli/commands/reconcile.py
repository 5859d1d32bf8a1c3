"""`gtrun reconcile`."""

import typer

from gtrun.cli.commands import JsonOption, command_parser
from gtrun.cli.forwarding import elsewhere
from gtrun.cli.output import document, say, tell
from gtrun.exits import Exit
from gtrun.names import in_words
from gtrun.reconcile import reconcile as _reconcile

app = command_parser()


@app.command()
def reconcile(
    context: typer.Context,
    as_json: JsonOption = False,  # noqa: FBT002
) -> int:
    """Close out runs that ended without a close-out, post the markers still owed, settle unfinished attempts."""
    fleet = context.obj.fleet()
    if (code := elsewhere(context.obj, fleet)) is not None:
        return code
    report = _reconcile(fleet, context.obj.caller())
    for problem in report.problems:
        say(problem)
    if as_json:
        document(
            "reconcile",
            lost=[
                {
                    "issue": run.resolved.issue.key,
                    "agent": run.resolved.agent,
                    "run": run.run,
                    "reason": run.ending.reason if run.ending else "",
                }
                for run in report.lost
            ],
            resolved=[{"issue": one.issue, "agent": one.agent} for one in report.resolved],
            posted=report.posted,
            owing=report.owing,
            problems=report.problems,
        )
    else:
        for run in report.lost:
            why = run.ending.reason if run.ending else ""
            tell(f"lost: {in_words(run.resolved.issue.key)} on {run.resolved.agent}, run {run.run}: {why}")
        for one in report.resolved:
            tell(f"settled: an attempt at {in_words(one.issue)} on {one.agent}, whose dispatcher had died")
        if report.posted:
            print(f"posted: {_markers(report.posted)}")
        print(f"still owed: {_markers(report.owing)}" if report.owing else "nothing is owed any more")
    return Exit.FAILED if report.problems else Exit.DONE


def _markers(count: int) -> str:
    return f"{count} marker" if count == 1 else f"{count} markers"
