"""`gtrun board …`: the board by hand."""

import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gtrun.board import Board
from gtrun.board.local import BODY_MAX, LocalBoard
from gtrun.board.reference import open_own
from gtrun.board.standing import standing
from gtrun.cli.invocation import Invocation
from gtrun.cli.output import document, say, table
from gtrun.cli.pulls import as_dict as pull_as_dict
from gtrun.cli.times import iso, local
from gtrun.config import Fleet
from gtrun.errors import GtrunError, UsageError
from gtrun.files import describe
from gtrun.markers import without_machine_lines
from gtrun.model import Comment, Issue, PullRequest, PullState, Standing
from gtrun.names import IssueKey
from gtrun.pulls import in_words
from gtrun.text import plain, plain_lines

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

_UTF8_MAX = 4  # bytes that one character can take


class State(StrEnum):
    """Which issues `list` shows."""

    OPEN = "open"
    CLOSED = "closed"
    ALL = "all"


class Pull(StrEnum):
    """What `pr` notes."""

    OPEN = "open"
    DRAFT = "draft"
    ARMED = "armed"
    MERGED = "merged"
    CLOSED = "closed"


IssueArgument = Annotated[str, typer.Argument(metavar="ISSUE", help="Its number.", show_default=False)]
BodyOption = Annotated[str | None, typer.Option("--body", metavar="TEXT", help="The text.")]
BodyFileOption = Annotated[str | None, typer.Option("--body-file", metavar="FILE", help="The text; - is stdin.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document.")]


def _priority(typed: str | int) -> int:
    text = str(typed)
    if re.fullmatch("[Pp]?[0-4]", text, re.ASCII) is None:
        raise typer.BadParameter(f"{text[:80]!r} is none of P0 to P4")
    return int(text[-1])


@app.command("add")
def add(
    context: typer.Context,
    title: Annotated[
        str,
        typer.Argument(metavar="TITLE", help="One line; -- before it if it begins with a dash.", show_default=False),
    ],
    body: BodyOption = None,
    body_file: BodyFileOption = None,
    label: Annotated[list[str] | None, typer.Option("--label", metavar="L", help="Repeatable.")] = None,
    priority: Annotated[
        int, typer.Option(parser=_priority, metavar="P", help="P0 is the most urgent, P4 the least; 0 to 4 will do.")
    ] = 2,
    blocked_by: Annotated[list[str] | None, typer.Option(metavar="ISSUE", help="Repeatable.")] = None,
    as_json: JsonOption = False,  # noqa: FBT002
) -> None:
    """Put a new issue on the board and print its number. A board is made if there is none."""
    text = _body(body, body_file) or ""
    blockers = [_fleet(context).issue_key(blocker) for blocker in blocked_by or []]
    with _open_local(context, "gh issue create makes one there", create=True) as board:
        key = board.add(title, body=text, labels=label or [], priority=priority, blocked_by=blockers)
        if as_json:
            added = _found(board, key)
            document("board-add", board=board.name, issue=_as_dict(added, _standing(context, board, added)))
        else:
            print(key)
            _tell(f"issue {key} is on the board {board.name}")


@app.command("list")
def list_issues(
    context: typer.Context,
    state: Annotated[State, typer.Option(help="Which ones.")] = State.OPEN,
    label: Annotated[str | None, typer.Option(metavar="L", help="Only those that carry it.")] = None,
    as_json: JsonOption = False,  # noqa: FBT002
) -> None:
    """The issues on the board: the most urgent first, then the oldest."""
    with _open(context) as board:
        issues = board.issues(state=state.value, label=label)
        terminal = _fleet(context).board
        work = board.open_work(terminal.terminal_labels, terminal.terminal_glyphs)
        stand = {issue.key: Standing.NOT_WORK for issue in issues} | {issue.key: where for issue, where in work}
        name = board.name
    if as_json:
        document("board-list", board=name, issues=[_as_dict(issue, stand[issue.key]) for issue in issues])
        return
    table(
        ("ISSUE", "PRIORITY", "STATE", "LABELS", "BLOCKED BY", "TITLE"),
        [
            (i.key, f"P{i.priority}", _said(i, stand[i.key]), ", ".join(i.labels), ", ".join(i.blocked_by), i.title)
            for i in issues
        ],
    )
    if not issues:
        which = "" if state is State.ALL else f"{state.value} "
        carrying = f" with the label {label!r}" if label else ""
        adds = 'gtrun board add "…"' if _fleet(context).board.github is None else "gh issue create"
        say(f"there is no {which}issue{carrying} on the board {name}; {adds} adds one")


@app.command("pr")
def pull_request(
    context: typer.Context,
    issue: IssueArgument,
    url: Annotated[str, typer.Option(metavar="URL", help="Its address.", show_default=False)],
    state: Annotated[Pull, typer.Option(help="What has become of it; armed: it will be merged by itself.")] = Pull.OPEN,
) -> None:
    """Note a pull request for an issue, or what has become of it. Its merge closes the issue."""
    key = _fleet(context).issue_key(issue)
    now = PullState.OPEN if state is Pull.ARMED else PullState(state.value)
    instead = 'GitHub knows its pull requests: one that says "Fixes #142" closes that issue'
    with _open_local(context, instead) as board:
        board.record_pull_request(key, PullRequest(url=url, state=now, auto_merge=state is Pull.ARMED))
    _tell(f"pull request {url} of issue {key} is noted as {state}")


@app.command("show")
def show(context: typer.Context, issue: IssueArgument, as_json: JsonOption = False) -> None:  # noqa: FBT002
    """One issue with its comments."""
    key = _fleet(context).issue_key(issue)
    with _open(context) as board:
        found = _found(board, key)
        comments, pulls = board.all_comments(key), board.pull_requests(key)
        stands = _standing(context, board, found)
    if as_json:
        remarks = [{"author": c.author, "at": iso(c.at), "body": c.body} for c in comments]
        told = [pull_as_dict(pull) for pull in pulls]
        about = _as_dict(found, stands)
        document("board-show", board=board.name, issue=about, comments=remarks, pull_requests=told)
    else:
        _print_issue(found, stands, pulls, comments)


@app.command("comment")
def comment(
    context: typer.Context,
    issue: IssueArgument,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="As --body.", show_default=False)] = None,
    body: BodyOption = None,
    body_file: BodyFileOption = None,
    author: Annotated[str | None, typer.Option(metavar="NAME", help="Instead of this account.")] = None,
) -> None:
    """Comment on an issue. A comment stays as it was written."""
    key = _fleet(context).issue_key(issue)
    if text is not None and (body is not None or body_file is not None):
        raise UsageError("the text of the comment is given twice")
    text = text if text is not None else _body(body, body_file)
    if text is None:
        raise UsageError("a comment needs a text", hint="give TEXT, or --body-file FILE (- is stdin)")
    invocation: Invocation = context.obj
    with _open(context) as board:
        board.post(key, author=author if author is not None else invocation.caller().name, body=text)
    _tell(f"the comment is on issue {key}")


@app.command("label")
def label(
    context: typer.Context,
    issue: IssueArgument,
    add: Annotated[list[str] | None, typer.Option("--add", metavar="L", help="Repeatable.")] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", metavar="L", help="Repeatable.")] = None,
) -> None:
    """Put labels on an issue, take labels off it."""
    key = _fleet(context).issue_key(issue)
    if not add and not remove:
        raise UsageError("there is no label to add or to remove", hint="give --add L or --remove L")
    with _open(context) as board:
        board.label(key, add=add or [], remove=remove or [])
        _tell(f"issue {key} has the labels: {', '.join(_found(board, key).labels) or 'none'}")


@app.command("close")
def close(context: typer.Context, issue: IssueArgument) -> None:
    """Close an issue: no run of it starts any more."""
    key = _fleet(context).issue_key(issue)
    with _open(context) as board:
        changed = board.close_issue(key)
    _tell(f"issue {key} {'is closed' if changed else 'was closed already'}")


@app.command("reopen")
def reopen(context: typer.Context, issue: IssueArgument) -> None:
    """Open a closed issue again."""
    key = _fleet(context).issue_key(issue)
    with _open(context) as board:
        changed = board.reopen_issue(key)
    _tell(f"issue {key} {'is open again' if changed else 'was open already'}")


def _fleet(context: typer.Context) -> Fleet:
    """The configuration, read once for each command line."""
    invocation: Invocation = context.obj
    fleet: Fleet = context.meta.get("fleet") or context.meta.setdefault("fleet", invocation.fleet())
    return fleet


def _open(context: typer.Context) -> Board:
    return open_own(_fleet(context).board)


def _open_local(context: typer.Context, instead: str, *, create: bool = False) -> LocalBoard:
    """The board, where only a local one can do it. Raises UsageError, which says what does it on GitHub."""
    config = _fleet(context).board
    if config.github is not None:
        raise UsageError(f"the board is {config.github.web}, and this is for a local board", hint=instead)
    return LocalBoard.open(config.path, create=create)


def _found(board: Board, key: IssueKey) -> Issue:
    issue = board.issue(key)
    if issue is None:
        raise GtrunError(f"there is no issue {key} on the board {board.name}")
    return issue


def _body(text: str | None, file: str | None) -> str | None:
    """The text that --body or --body-file gives; no more of a file is read than a board can keep."""
    if text is not None and file is not None:
        raise UsageError("--body and --body-file exclude each other")
    if file is None:
        return text
    name = "stdin" if file == "-" else file
    most = BODY_MAX * _UTF8_MAX
    try:
        if file == "-":
            data = sys.stdin.buffer.read(most + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(most + 1)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {describe(error)}") from error
    if len(data) > most:
        raise UsageError(f"{name} holds more than {BODY_MAX:,} characters", hint="shorten it")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not valid UTF-8", hint="convert it, as with iconv -t UTF-8") from None


def _state(issue: Issue) -> str:
    return "open" if issue.is_open else "closed"


def _said(issue: Issue, stands: Standing) -> str:
    """Its state for people: an open one is also `awaiting` or `shipped`."""
    return stands.value if stands in {Standing.AWAITING, Standing.SHIPPED} else _state(issue)


def _standing(context: typer.Context, board: Board, issue: Issue) -> Standing:
    terminal = _fleet(context).board
    comments, pulls = board.comments(issue.key), board.pull_requests(issue.key)
    return standing(issue, comments, pulls, terminal.terminal_labels, terminal.terminal_glyphs)


def _as_dict(issue: Issue, stands: Standing) -> dict[str, object]:
    return {
        "issue": issue.key,
        "title": issue.title,
        "state": _state(issue),
        "standing": stands,
        "labels": issue.labels,
        "priority": issue.priority,
        "blocked_by": issue.blocked_by,
        "created_at": iso(issue.created_at),
        "body": issue.body,
    }


def _print_issue(issue: Issue, stands: Standing, pulls: list[PullRequest], comments: list[Comment]) -> None:
    """An issue for people: what others wrote is indented, so that it cannot pass for a line of ours."""
    print(f"{issue.key}: {plain(issue.title)}")
    lines = [
        ("state", _said(issue, stands)),
        ("labels", ", ".join(issue.labels)),
        ("priority", f"P{issue.priority}"),
        ("blocked by", ", ".join(issue.blocked_by)),
        ("created", local(issue.created_at)),
        *(("pull", f"{pull.url} {in_words(pull)}") for pull in pulls),
    ]
    for name, value in lines:
        if value:
            print(f"{name + ':':<12}{plain(value)}")
    if issue.body:
        print(f"\n{_indented(issue.body)}")
    for remark in comments:
        print(f"\n{plain(remark.author)}, {local(remark.at)}:\n{_indented(without_machine_lines(remark.body))}")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in plain_lines(text).split("\n"))


def _tell(text: str) -> None:
    """What was done, if a person is there to read it."""
    if sys.stderr.isatty():
        say(text)
