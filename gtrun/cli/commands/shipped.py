"""`gtrun shipped`."""

import typer

from gtrun.board.local import LocalBoard
from gtrun.cli.commands import IssueArgument, JsonOption, command_parser
from gtrun.cli.forwarding import elsewhere
from gtrun.cli.output import document, say, tell
from gtrun.cli.pulls import as_dict
from gtrun.errors import GtrunError
from gtrun.exits import Exit
from gtrun.names import parse_issue
from gtrun.pulls import Shipping, all_in_words, shipping

app = command_parser()


@app.command()
def shipped(
    context: typer.Context,
    issue: IssueArgument,
    as_json: JsonOption = False,  # noqa: FBT002
) -> int:
    """Whether a merged pull request closes the issue: 0. Otherwise 1, and how far its pull requests have come."""
    key = parse_issue(issue)
    fleet = context.obj.fleet()
    if (code := elsewhere(context.obj, fleet)) is not None:
        return code
    with LocalBoard.open(fleet.board.path) as board:
        if board.issue(key) is None:
            raise GtrunError(f"there is no issue {key} on the board {board.path}")
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
