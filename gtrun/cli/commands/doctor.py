"""`gtrun doctor`."""

import sys

import msgspec
import typer

from gtrun.cli.commands import JsonOption, command_parser
from gtrun.cli.output import document
from gtrun.doctor import examine
from gtrun.exits import Exit
from gtrun.text import plain

app = command_parser()


@app.command()
def doctor(
    context: typer.Context,
    as_json: JsonOption = False,  # noqa: FBT002
) -> int:
    """Check this box: configuration, board, each agent's account and manager. Exits with 1 if something is to mend."""
    findings = list(examine(context.obj.fleet(), context.obj.caller()))
    if as_json:
        document("doctor", findings=[msgspec.to_builtins(finding) for finding in findings])
    else:
        for finding in findings:
            print(f"{'ok  ' if finding.is_fine else 'BAD '} {finding.subject}: {plain(finding.what)}")
            if finding.mend:
                print(f"       {plain(finding.mend)}")
    bad = sum(not finding.is_fine for finding in findings)
    if bad and not as_json:
        print(f"gtrun: {bad} to mend", file=sys.stderr)
    return Exit.FAILED if bad else Exit.DONE
