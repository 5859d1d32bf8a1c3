"""All open issues and where they stand, without asking for all of them each time.

What was read is kept in the cache, and three questions tell what has changed since: which issues, which comments and
which pull requests were touched. If nothing was, GitHub answers each of them with 304. A turn (`Issue.turned_at`) and
blockers are asked for again when their issue was touched. Once an hour the list of open issues is read wholly.

What is noticed only then, since it touches nothing: a label that was renamed, an issue that was deleted or transferred,
a comment that was deleted (which its issue's number of comments tells), a blocker in another repository that was closed
or reopened. Merges in other repositories are not looked for here: they close the issue. None of this starts a wrong
run: the dispatch and the run itself read the issue and its comments afresh.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec

from gtrun.board import EMOJI_STYLE
from gtrun.board.github import wire
from gtrun.board.github.cache import Cache
from gtrun.board.github.client import Reply
from gtrun.board.github.memory import Kept, Known, Merged, Place, Told
from gtrun.board.github.place import key_of, path_of
from gtrun.board.github.reading import (
    GHOST,
    PAGE,
    Reading,
    instant,
    labels_of,
    login_of,
    named_in,
    priority_of,
    pull_of,
    text_of,
)
from gtrun.board.standing import standing
from gtrun.errors import BoardUnavailable
from gtrun.markers import MACHINE_LINE
from gtrun.model import Comment, Issue, Standing

T = TypeVar("T")

REFRESH = 3600.0
"""Seconds after which the list of open issues is read wholly."""

_OVERLAP = 120.0  # seconds in which GitHub may show what was touched in another order than it was
_ONE_BY_ONE = 5  # issues whose comments are read one by one rather than all together
_LAST_TOUCHED_FIRST: Mapping[str, str | int] = {"sort": "updated", "direction": "desc", "per_page": PAGE}
_HEAD = 256  # characters of a comment that a glyph is looked for in


def open_work(
    reading: Reading, cache: Cache, terminal_labels: Sequence[str], terminal_glyphs: Sequence[str]
) -> list[tuple[Issue, Standing]]:
    """Every open issue, without its body, and where it stands. Raises BoardUnavailable; what was read is kept."""
    glyphs = tuple(filter(None, (glyph.removesuffix(EMOJI_STYLE) for glyph in terminal_glyphs)))
    name = f"known-2 {reading.place.address}"
    known = cache.get(name, Known)
    before = msgspec.msgpack.encode(known)
    if known is None or known.glyphs != glyphs:
        known = Known(glyphs)
    sweep = _Sweep(reading, known)
    try:
        sweep.catch_up()
    except BoardUnavailable as error:
        if reading.client.left() <= 0:
            read = f"{len(known.issues)} issues are read so far, and the next time goes on from there"
            raise BoardUnavailable(f"{error.message}; {read}", hint=error.hint) from None
        raise
    finally:
        if msgspec.msgpack.encode(known) != before:
            cache.put(name, known)
    return sweep.works(terminal_labels, terminal_glyphs)


class _Sweep:
    def __init__(self, reading: Reading, known: Known) -> None:
        self._reading = reading
        self._client = reading.client
        self._place = reading.place
        self._repo = reading.place.repo
        self._known = known

    def catch_up(self) -> None:
        known, now = self._known, time.time()
        if known.read_at is None or not 0 <= now - known.read_at < REFRESH:
            self._read_open_issues()
            for kept in known.issues.values() if not known.lists_comments else ():
                kept.counted = None  # then an edit touches nothing that is followed
            known.lists_comments = True
            known.read_at = now
        self._follow_issues()
        self._follow_comments()
        self._follow_pulls()
        self._complete_comments()
        for kept in list(known.issues.values()):
            self._ask_more(kept)

    def works(self, terminal_labels: Sequence[str], terminal_glyphs: Sequence[str]) -> list[tuple[Issue, Standing]]:
        merged: dict[int, list[Merged]] = {}
        for one in self._known.merged.values():
            for number in one.closes:
                merged.setdefault(number, []).append(one)
        found = []
        for kept in self._known.issues.values():
            issue = Issue(
                key=key_of(self._place, self._repo, kept.number),
                title=kept.title,
                labels=kept.labels,
                priority=priority_of(kept.labels, self._place),
                blocked_by=kept.blocked_by,
                url=kept.url,
                created_at=kept.created_at,
                turned_at=kept.turned_at,
                is_by_stranger=not self._reading.trust.believes(kept.author, kept.association),
            )
            pulls = [one.pull for one in merged.get(kept.number, ()) if self._closed(one, kept)]
            found.append((issue, standing(issue, self._believed(kept), pulls, terminal_labels, terminal_glyphs)))
        return found

    def _closed(self, one: Merged, kept: Kept) -> bool:
        at = one.pull.merged_at or 0.0
        return self._reading.closed_it(at, one.author, one.association, created_at=kept.created_at)

    def _read_open_issues(self) -> None:
        """The list of open issues, wholly."""
        known = self._known
        query: dict[str, str | int] = {"state": "open", "sort": "created", "direction": "asc", "per_page": PAGE}
        place = Place("", 0.0)
        for place, reply in self._long("issues", path_of(self._repo, "issues"), query):
            for issue in self._there(reply, list[wire.Issue]):
                if issue.pull_request is None:
                    place.listed.add(issue.number)
                    self._take(issue)
        if not known.issues_since:
            known.issues_since = known.comments_since = place.at - _OVERLAP
        for number in set(known.issues) - place.listed:
            del known.issues[number]
        for kept in known.issues.values():
            if any("#" in key for key in kept.blocked_by) or any(one[0] != self._repo.lower() for one in kept.named):
                kept.asked = None  # other repositories' issues touch nothing here

    def _long(self, name: str, path: str, query: Mapping[str, str | int]) -> Iterator[tuple[Place, Reply]]:
        """The pages of a list that may be too long for one pass: from where the last one came to its end.

        The page there is taken again, since what was at the end of it may have moved to the one before the next.
        """
        places = self._known.places
        place = places.get(name)
        if place is not None and not 0 <= time.time() - place.at < REFRESH:
            place = None
        for reply in self._client.pages(place.url, None) if place else self._client.pages(path, query):
            place = place or Place(reply.url, reply.at)
            place.url = reply.url
            yield place, reply
            places[name] = place
        places.pop(name, None)

    def _follow_issues(self) -> None:
        """The issues that were touched, also those that are closed now."""

        def take(reply: Reply) -> float | None:
            issues = self._there(reply, list[wire.Issue])
            for issue in issues:
                if issue.pull_request is None:
                    if issue.state == "open":
                        self._take(issue)
                    else:
                        self._known.issues.pop(issue.number, None)
            return issues[0].updated_at.timestamp() if issues else None

        path, query = path_of(self._repo, "issues"), {"state": "all"}
        self._known.issues_since = self._follow("issues", path, query, self._known.issues_since, take)

    def _follow_comments(self) -> None:
        """The comments that were written or edited."""

        def take(reply: Reply) -> float | None:
            if not reply.is_there:
                self._reading.absent(self._repo, reply)
                self._known.lists_comments = False
                return None
            comments = reply.read(list[wire.Comment])
            for comment in comments:
                kept = self._known.issues.get(_number_in(comment.issue_url))
                if kept is not None:
                    kept.comments[comment.id] = self._told(comment)
            return comments[0].updated_at.timestamp() if comments else None

        if not self._known.lists_comments:
            return
        path = path_of(self._repo, "issues", "comments")
        self._known.comments_since = self._follow("comments", path, {}, self._known.comments_since, take)

    def _follow(
        self, name: str, path: str, query: Mapping[str, str], since: float, take: Callable[[Reply], float | None]
    ) -> float:
        """Take what was touched since an instant; returns the one to ask from the next time.

        That stays the same as long as the answer is one page, so that the next question is the same as well. Where it
        moves, the next question is asked at once, so that its answer can be 304 then. `take` says when the first, which
        is the last one touched, was.
        """
        while True:
            newest: list[float | None] = []

            def add(reply: Reply, newest: list[float | None] = newest) -> bool:
                newest.append(take(reply))
                return False

            self._settle(name, path, {**query, "since": instant(since)}, add)
            last = newest[0] if len(newest) > 1 else None
            if last is None or int(last - _OVERLAP) <= int(since):
                return since
            since = last - _OVERLAP

    def _follow_pulls(self) -> None:
        """The pull requests that were touched: of those that are merged, what they close."""
        known, path = self._known, path_of(self._repo, "pulls")
        newest = known.pulls_since or 0.0

        def take_until(reply: Reply, until: float) -> bool:
            nonlocal newest
            at = 0.0
            for pull in self._there(reply, list[wire.Pull]):
                at = pull.updated_at.timestamp()
                newest = max(newest, at)
                ours = {self._repo.lower(), pull.base.repo.full_name.lower()}  # it may have another name by now
                closes = tuple(number for repo, number in self._reading.closed_by(pull) if repo in ours)
                if pull.merged_at is not None and closes:
                    author, association = login_of(pull.user), pull.author_association
                    known.merged[pull.number] = Merged(pull_of(pull), closes, author, association)
                else:
                    known.merged.pop(pull.number, None)
            return at < until

        if known.pulls_since is None:
            # one that was merged before there was any of the issues closes none
            oldest = min((kept.created_at for kept in known.issues.values()), default=time.time())
            began = 0.0
            for place, reply in self._long("pulls", path, {"state": "all", **_LAST_TOUCHED_FIRST}):
                began = place.at
                if take_until(reply, oldest):
                    break
            known.places.pop("pulls", None)
            known.pulls_since = newest = began
        known_since = known.pulls_since - _OVERLAP
        self._settle("pulls", path, {"state": "all"}, lambda reply: take_until(reply, known_since))
        known.pulls_since = newest

    def _settle(self, name: str, path: str, query: Mapping[str, str], take: Callable[[Reply], bool]) -> None:
        """Take the pages of what was touched, the last one touched first, until `take` has enough.

        None, if the first page is as it was when all were last taken.
        """
        whole: dict[str, str | int] = {**query, **_LAST_TOUCHED_FIRST}
        digest = ""
        for reply in self._client.pages(path, whole):
            if not digest:
                digest = hashlib.sha256(f"{sorted(whole.items())}\0".encode() + reply.body).hexdigest()
                if self._known.settled.get(name) == digest:
                    return
                self._known.settled.pop(name, None)
            if take(reply):
                break
        self._known.settled[name] = digest

    def _take(self, issue: wire.Issue) -> None:
        at = issue.updated_at.timestamp()
        kept = self._known.issues.get(issue.number)
        if kept is None:
            kept = Kept(issue.number, "", "", (), issue.created_at.timestamp(), at, 0, at, "", "", comments={})
            self._known.issues[issue.number] = kept
        elif kept.updated_at > at:
            return
        kept.title, kept.url, kept.labels = issue.title, issue.html_url, labels_of(issue)
        kept.updated_at, kept.count = at, issue.comments
        kept.author, kept.association = login_of(issue.user), issue.author_association
        if kept.summary != issue.issue_dependencies_summary:
            kept.asked = None
        kept.summary, kept.named = issue.issue_dependencies_summary, tuple(named_in(issue, self._repo))

    def _complete_comments(self) -> None:
        """Read the comments of issues that have others than are known: at first all, later where some were deleted."""
        pending = self._incomplete()
        if len(pending) > _ONE_BY_ONE and self._known.lists_comments:
            self._read_all_comments(pending)
            pending = self._incomplete()
        self._known.places.pop("comments", None)
        for kept in pending:
            comments = self._reading.comments(self._repo, kept.number)
            if comments is None:
                del self._known.issues[kept.number]
                continue
            kept.comments = {comment.id: self._told(comment) for comment in comments}
            kept.counted = (kept.updated_at, kept.count)

    def _incomplete(self) -> list[Kept]:
        return [
            kept
            for kept in self._known.issues.values()
            if kept.counted != (kept.updated_at, kept.count)
            and (len(kept.comments) != kept.count or (kept.count and not self._known.lists_comments))
        ]

    def _read_all_comments(self, pending: Sequence[Kept]) -> None:
        """Read the comments of the whole repository, if these are fewer pages than those of each issue."""
        query: dict[str, str | int] = {"sort": "created", "direction": "asc", "per_page": PAGE}
        query["since"] = instant(min(kept.created_at for kept in pending))
        alone = sum(-(-kept.count // PAGE) or 1 for kept in pending)
        for _, reply in self._long("comments", path_of(self._repo, "issues", "comments"), query):
            if "next" in reply.links and _last_page(reply) > alone:
                return
            for comment in self._there(reply, list[wire.Comment]):
                kept = self._known.issues.get(_number_in(comment.issue_url))
                if kept is not None:
                    kept.comments[comment.id] = self._told(comment)

    def _ask_more(self, kept: Kept) -> None:
        """When an issue turned, and what blocks it: by further questions, for those that need it."""
        summary = kept.summary
        elsewhere = any(one[0] != self._repo.lower() for one in kept.named)
        is_blocked = (summary.blocked_by or summary.total_blocked_by) if summary else elsewhere
        if not is_blocked:
            kept.blocked_by = () if summary else tuple(key_of(self._place, *one) for one in kept.named)
        if kept.asked == kept.updated_at:
            return
        was_touched = kept.updated_at != kept.first
        is_marked = any(MACHINE_LINE in told.text for told in self._marks(kept))
        is_merged = any(kept.number in one.closes for one in self._known.merged.values())
        if is_blocked:
            kept.blocked_by = self._reading.blocked_by(self._repo, kept.number, summary, kept.named)
        if was_touched or is_marked or is_merged:
            stranger = "" if self._reading.trust.believes(kept.author, kept.association) else kept.author
            kept.turned_at = self._reading.turned_at(self._repo, kept.number, stranger=stranger)
        if is_blocked or was_touched or is_marked or is_merged:
            kept.asked = kept.updated_at

    def _told(self, comment: wire.Comment) -> Told | None:
        body = text_of(comment.body).strip()
        if not body.startswith(self._known.glyphs) and MACHINE_LINE not in body:
            return None
        head, last = body[:_HEAD], body.rsplit("\n", 1)[-1][:_HEAD]
        text = body if len(body) <= _HEAD else f"{head}\n{last}"
        at = comment.created_at.timestamp()
        return Told(login_of(comment.user), comment.author_association, text, at)

    def _marks(self, kept: Kept) -> Iterator[Told]:
        """What believed authors wrote; others are asked about only where they wrote what would count."""
        for told in kept.comments.values():
            if told is not None and self._reading.trust.believes(told.author, told.association):
                yield told

    def _believed(self, kept: Kept) -> list[Comment]:
        return [Comment(author=told.author or GHOST, body=told.text, at=told.at) for told in self._marks(kept)]

    def _there(self, reply: Reply, kind: type[T]) -> T:
        if not reply.is_there:
            self._reading.absent(self._repo, reply)
            raise BoardUnavailable(f"the issues of {self._repo} are not there")
        return reply.read(kind)


def _number_in(issue_url: str) -> int:
    """The number at the end of an issue's address; 0, which no issue has, where there is none."""
    last = urlsplit(issue_url).path.rsplit("/", 1)[-1]
    return int(last) if last.isascii() and last.isdigit() and len(last) < 19 else 0


def _last_page(reply: Reply) -> int:
    """How many pages a list has, as far as it says."""
    page = parse_qs(urlsplit(reply.links.get("last", "")).query).get("page", ["1000000"])[0]
    return int(page) if page.isascii() and page.isdigit() and len(page) < 8 else 1_000_000
