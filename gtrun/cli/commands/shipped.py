"""`gtrun shipped`."""

import typer

from gtrun.board.reference import open_own
from gtrun.cli.commands import IssueArgument, JsonOption, command_parser
from gtrun.cli.forwarding import elsewhere
from gtrun.cli.output import document, say, tell
from gtrun.cli.pulls import as_dict
from gtrun.errors import GtrunError
from gtrun.exits import Exit
from gtrun.pulls import Shipping, all_in_words, shipping

app = command_parser()


@app.command()
def shipped(
    context: typer.Context,
    issue: IssueArgument,
    as_json: JsonOption = False,  # noqa: FBT002
) -> int:
    """Whether a merged pull request closes the issue: 0. Otherwise 1, and how far its pull requests have come."""
    fleet = context.obj.fleet()
    key = fleet.issue_key(issue)
    if (code := elsewhere(context.obj, fleet)) is not None:
        return code
    with open_own(fleet.board) as board:
        if board.issue(key) is None:
            raise GtrunError(f"there is no issue {key} on the board {board.name}")
        pulls = board.pull_requests(key)
    best = shipping(pulls)
    is_shipped = best is Shipping.MERGED
    if as_json:
        document("shipped", issue=key, shipped=is_shipped, state=best, pull_requests=[as_dict(pull) for pull in pulls])
    else:
        tell(best)
        for sentence in all_in_words(pulls):
            say(sentence)
    return Exit.DONE if is_shipped else Exit.FAILED
