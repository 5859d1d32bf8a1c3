"""Delivering: what the account owes to a board that it cannot open is handed to whoever has that board."""

import msgspec

from gtrun.errors import StateError
from gtrun.markers import Kind
from gtrun.model import Issue, Limits, Notify, Run, Sandbox
from gtrun.names import Token
from gtrun.reach.operations.session import Session
from gtrun.state import outbox
from gtrun.state import record as records
from gtrun.state.facts import Dropped, Fact, Posted, PullsSeen
from gtrun.state.record import Record

PAGE = 50
"""So many runs are handed over at once."""

_PAGE_SIZE = 1 << 20  # bytes, but at least one run


class ToDeliver(msgspec.Struct, frozen=True):
    """Where to go on: behind this token; empty at the beginning."""

    after: str


class Undelivered(msgspec.Struct, frozen=True):
    """Runs that owe markers, without what no marker tells; `more` if there are others behind them."""

    runs: list[Run]
    more: bool


def undelivered(session: Session, arguments: ToDeliver) -> Undelivered:
    """The runs which owe markers, by their tokens, as many as fit into a page."""
    runs: list[Run] = []
    size = 0
    for path in sorted(records.open_records(session.account.state)):
        if path.stem <= arguments.after:
            continue
        try:
            run = records.read(path)
        except (StateError, FileNotFoundError):
            continue  # `flush` tells of what is damaged; what is closed owes nothing
        if not outbox.missing(run):
            continue
        run = _for_markers(run)
        size += len(msgspec.json.encode(run))
        if runs and (len(runs) == PAGE or size > _PAGE_SIZE):
            return Undelivered(runs, more=True)
        runs.append(run)
    return Undelivered(runs, more=False)


def _for_markers(run: Run) -> Run:
    """The run without the profile and the texts, which may be as long as a command line may."""
    resolved = msgspec.structs.replace(
        run.resolved, issue=Issue(key=run.resolved.issue.key, title=""), prompt="", previous="", command=(),
        environment={}, path=(), limits=Limits(), sandbox=Sandbox(), credentials={}, credential_environment={},
        quota_patterns=(), clones=(), terminal_labels=(), terminal_glyphs=(), notify=Notify(),
    )  # fmt: skip
    return msgspec.structs.replace(run, resolved=resolved, works_in=())


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """What became true of one run: the pull requests as its finished marker tells them, the markers that are posted.

    And those that nobody would ever read, with the reason.
    """

    token: Token
    pulls: PullsSeen | None = None
    posted: tuple[Kind, ...] = ()
    dropped: tuple[tuple[Kind, str], ...] = ()


class ToNote(msgspec.Struct, frozen=True):
    """What became true of several runs."""

    runs: list[Delivered]


class NotedDelivery(msgspec.Struct, frozen=True):
    """The runs in whose records it stands now, how many markers these do not owe any more, and what went wrong.

    `settled` counts those that are posted and those that are dropped.
    """

    noted: list[Token]
    posted: int
    settled: int
    problems: list[str]


def note_delivered(session: Session, arguments: ToNote) -> NotedDelivery:
    """Write it into the records, and close those of runs that owe nothing any more.

    A record that is in use, or closed meanwhile, is left alone: whoever has it posts, and the board has it already.
    """
    noted, problems, posted, settled = [], [], 0, 0
    for one in arguments.runs:
        path = records.open_folder(session.account.state) / f"{one.token}.jsonl"
        try:
            with Record(path, wait=False) as record:
                missing = outbox.missing(record.run)
                facts: list[Fact] = [Posted(kind) for kind in missing if kind in one.posted]
                posted += len(facts)
                facts += [Dropped(kind, reason) for kind, reason in one.dropped if kind in missing]
                settled += len(facts)
                if one.pulls is not None and outbox.wants_pulls(record.run):
                    facts.insert(0, one.pulls)
                record.append(*facts)
                record.close_if_settled()
        except (FileNotFoundError, records.RecordInUse, records.CorruptRecord):
            continue
        except StateError as error:
            problems.append(error.message)
            continue
        noted.append(one.token)
    return NotedDelivery(noted, posted, settled, problems)
