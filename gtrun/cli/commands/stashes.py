"""`gtrun stashes`."""

import shlex

import typer

from gtrun.cli.commands import JsonOption, command_parser
from gtrun.cli.output import document, say, table
from gtrun.cli.times import iso, local
from gtrun.looking import stashes as stashes_of

app = command_parser()


@app.command()
def stashes(
    context: typer.Context,
    as_json: JsonOption = False,  # noqa: FBT002
) -> None:
    """Work that a clone sync set aside, and the command that brings it back, typed as the agent's account."""
    found, damaged, silent = stashes_of(context.obj.fleet(), context.obj.caller())
    if as_json:
        document(
            "stashes",
            stashes=[
                {
                    "agent": one.agent.name,
                    "account": one.account.name,
                    "clone": one.stash.clone,
                    "run": one.stash.run,
                    "issue": one.stash.issue,
                    "at": iso(one.stash.at),
                    "what": one.stash.what,
                    "ref": one.stash.ref or None,
                    "commit": one.stash.commit or None,
                    "worktree": one.stash.folder or None,
                    "command": list(one.stash.command),
                }
                for one in found
            ],
            damaged=damaged,
            unreachable=[{"agent": one.agent.name, "problem": one.problem} for one in silent],
        )
        return
    rows: list[tuple[object, ...]] = [
        (
            local(one.stash.at), one.agent.name, one.stash.issue, one.stash.run[:12], one.stash.clone, one.stash.what,
            shlex.join(one.stash.command),
        )
        for one in found
    ]  # fmt: skip
    rows += [("-", one.agent.name, "-", "-", "unreachable", one.problem, "-") for one in silent]
    table(("WHEN", "AGENT", "ISSUE", "RUN", "CLONE", "WHAT", "TO BRING IT BACK"), rows)
    for path in damaged:
        say(f"the record {path} is damaged")
    for hint in {one.hint for one in silent if one.hint}:
        say(f"hint: {hint}")
    if not rows:
        say("nothing is set aside")
