"""Asking GitHub about issues, one at a time: what is there, who wrote it, what refers to it."""

import re
import time
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import msgspec

from gtrun.board.github import wire
from gtrun.board.github.cache import Cache
from gtrun.board.github.client import GONE, Client, Denied, Reply
from gtrun.board.github.place import ORDINARY, is_own, key_of, path_of, site
from gtrun.board.github.references import Reference, blockers, closes
from gtrun.board.github.refusals import NEEDED, said
from gtrun.board.github.trust import Trust
from gtrun.errors import BoardUnavailable
from gtrun.model import Comment, GitHubPlace, Issue, PullRequest, PullState
from gtrun.names import IssueKey

PAGE = 100
TURNS = frozenset({"reopened", "labeled", "unlabeled"})
GHOST = "ghost"
"""As GitHub shows the author of what a deleted account wrote."""

_ME_KEPT = 86_400.0
_REPO_IN_URL = re.compile(r"/repos/([A-Za-z0-9-]+/[A-Za-z0-9._-]+)(?:/|$)", re.ASCII)


class Me(msgspec.Struct, frozen=True):
    """Whose token it is; empty for one of an installed App, which has no user."""

    login: str
    at: float


class Reading:
    """Questions about the issues of a place. Every one raises BoardUnavailable."""

    def __init__(self, place: GitHubPlace, client: Client, cache: Cache, source: str) -> None:
        self.place = place
        self.client = client
        self.trust = Trust(place.trusted, self._myself)
        self._cache = cache
        self._source = source
        self._me: Me | None = None
        self._me_name = f"me {place.api}"

    def absent(self, repo: str, reply: Reply) -> None:
        """Nothing, if the repository can be seen, so that what was not found in it is not there."""
        if reply.status == GONE and "disabled" in said(reply.body):
            raise BoardUnavailable(f"the repository {repo} has its issues disabled", hint="enable them in its settings")
        if not self.client.get(path_of(repo)).is_there:
            raise BoardUnavailable(
                f"there is no repository {repo} that the token from {self._source} can see",
                hint=f"mend repo in [board], or give the token access: {NEEDED}",
            )

    def comments(self, repo: str, number: int, *, since: float | None = None) -> list[wire.Comment] | None:
        """All comments on an issue, the oldest first; `since` leaves out those not touched since. None: no issue."""
        query: dict[str, str | int] = {"per_page": PAGE} | ({} if since is None else {"since": instant(since)})
        found: dict[int, wire.Comment] = {}
        for reply in self.client.pages(path_of(repo, "issues", number, "comments"), query):
            if not reply.is_there:
                self.absent(repo, reply)
                return None
            # a comment that is deleted meanwhile moves others to the page before, none is there twice
            found.update((comment.id, comment) for comment in reply.read(list[wire.Comment]))
        return sorted(found.values(), key=lambda comment: comment.id)

    def believed(self, text: wire.Comment | wire.Issue | wire.Pull) -> bool:
        """Whether its author's word counts. What the guards, the runner and the scheduler read has passed here."""
        return self.trust.believes(login_of(text.user), text.author_association)

    def turned_at(self, repo: str, number: int, *, stranger: str = "") -> float | None:
        """When somebody last reopened an issue or changed its labels.

        All that needs triage rights, but that whoever opened an issue can reopen what he has closed himself: that does
        not count if he is a `stranger`, whose login this is.
        """
        at = None
        for reply in self.client.pages(path_of(repo, "issues", number, "events"), {"per_page": PAGE}):
            for event in reply.read(list[wire.Event]) if reply.is_there else ():
                is_strangers = event.event == "reopened" and stranger and login_of(event.actor) == stranger
                if event.event in TURNS and event.created_at is not None and not is_strangers:
                    at = max(at or 0.0, event.created_at.timestamp())
        return at

    def blocked_by(
        self, repo: str, number: int, summary: wire.Dependencies | None, named: Sequence[Reference]
    ) -> tuple[IssueKey, ...]:
        """What blocks an issue; of other repositories only what is open.

        By the server's own dependencies, or where it has none by what is `named` in the body.
        """
        if summary is None:
            return tuple(key_of(self.place, *one) for one in named if self._is_here(one) or self._is_open(one))
        if not (summary.blocked_by or summary.total_blocked_by):
            return ()
        found = []
        path = path_of(repo, "issues", number, "dependencies", "blocked_by")
        for reply in self.client.pages(path, {"per_page": PAGE}):
            for one in reply.read(list[wire.Issue]) if reply.is_there else ():
                where = repo_of(one) or repo
                if self._is_here((where, one.number)) or one.state == "open":
                    found.append(key_of(self.place, where, one.number))
        return tuple(found)

    def pull_requests(self, repo: str, issue: wire.Issue) -> list[PullRequest]:
        """The pull requests that close an issue.

        Those of its own repository are found in the list of the last ones, and by what refers to the issue; those of
        other repositories by the latter alone, and only if they have the same owner: a stranger can merge what he
        likes in a repository of his own.
        """
        number, since = issue.number, issue.created_at.timestamp()
        target = (repo.lower(), number)
        found = {
            (repo.lower(), pull.number): pull
            for pull in self._last_pulls(repo, since)
            if target in self.closed_by(pull)
        }
        for where, other in self._referring(repo, number):
            if (where.lower(), other) not in found and owner_of(where) == owner_of(repo):
                reply = self.client.get(path_of(where, "pulls", other))
                pull = reply.read(wire.Pull) if reply.is_there else None
                if pull is not None and target in self.closed_by(pull):
                    found[where.lower(), other] = pull
        return [pull_of(pull) for _, pull in sorted(found.items()) if self._may_close(pull, issue)]

    def _may_close(self, pull: wire.Pull, issue: wire.Issue) -> bool:
        """Whether it is true what the text says; `closed_it` has the reason."""
        if pull.merged_at is None or issue.state != "open":
            return True
        at, created_at = pull.merged_at.timestamp(), issue.created_at.timestamp()
        return self.closed_it(at, login_of(pull.user), pull.author_association, created_at=created_at)

    def closed_it(self, merged_at: float, author: str, association: str, *, created_at: float) -> bool:
        """Whether a merged pull request was for an issue that is open.

        Its author can write that into it long afterwards: GitHub closes nothing then. So whose word does not count is
        believed only of what was closed, and nobody of what was not there yet.
        """
        return merged_at >= created_at and self.trust.believes(author, association)

    def closed_by(self, pull: wire.Pull) -> list[Reference]:
        """The issues that are closed when this one is merged: none unless it goes to the default branch."""
        if pull.base.repo.default_branch not in {None, pull.base.ref}:
            return []
        return closes(pull.body or "", repo=pull.base.repo.full_name.lower(), host=site(self.place))

    def _last_pulls(self, repo: str, since: float) -> Iterator[wire.Pull]:
        query: dict[str, str | int] = {"state": "all", "sort": "updated", "direction": "desc", "per_page": PAGE}
        for page, reply in enumerate(self.client.pages(path_of(repo, "pulls"), query), 1):
            pulls = reply.read(list[wire.Pull]) if reply.is_there else []
            yield from pulls
            if page == _LAST_PAGES or not pulls or pulls[-1].updated_at.timestamp() < since:
                return

    def _referring(self, repo: str, number: int) -> Iterator[Reference]:
        """The pull requests whose text names the issue."""
        for reply in self.client.pages(path_of(repo, "issues", number, "timeline"), {"per_page": PAGE}):
            for event in reply.read(list[wire.Event]) if reply.is_there else ():
                one = event.source.issue if event.source else None
                if event.event == "cross-referenced" and one is not None and one.pull_request is not None:
                    where = one.repository.full_name if one.repository else repo_of(one)
                    if where:
                        yield where, one.number

    def _is_here(self, one: Reference) -> bool:
        return is_own(self.place, one[0])

    def _is_open(self, one: Reference) -> bool:
        """An issue of another repository; what cannot be seen blocks nothing, or nobody could ever unblock it."""
        try:
            reply = self.client.get(path_of(one[0], "issues", one[1]))
        except Denied:
            return False
        return reply.is_there and reply.read(wire.Issue).state == "open"

    def _myself(self) -> str | None:
        """Whose token it is."""
        if self._me is None:
            kept = self._cache.get(self._me_name, Me)
            self._me = kept if kept and abs(time.time() - kept.at) < _ME_KEPT else self._ask_who()
        return self._me.login or None

    def _ask_who(self) -> Me:
        try:
            reply = self.client.get("/user")
            login = reply.read(wire.User).login if reply.is_there else ""
        except Denied:  # an App's token speaks for no user
            login = ""
        me = Me(login, time.time())
        self._cache.put(self._me_name, me)
        return me


_LAST_PAGES = 3


def instant(at: float) -> str:
    """A time as GitHub writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def text_of(text: str | None) -> str:
    """A text with the line ends of this system: what was written in a browser has those of HTTP."""
    return (text or "").replace("\r\n", "\n")


def login_of(user: wire.User | None) -> str:
    """An author's login; empty if the account is gone."""
    return user.login if user else ""


def named_in(issue: wire.Issue, repo: str) -> list[Reference]:
    """The blockers that the body of an issue names."""
    return blockers(text_of(issue.body), repo=repo)


def repo_of(issue: wire.Issue) -> str | None:
    """The repository that an issue says it is in."""
    match = _REPO_IN_URL.search(urlsplit(issue.repository_url).path)
    return match[1] if match else None


def owner_of(repo: str) -> str:
    """Whose repository it is."""
    return repo.partition("/")[0].lower()


def labels_of(issue: wire.Issue) -> tuple[str, ...]:
    """The names of an issue's labels."""
    names = (label if isinstance(label, str) else label.name for label in issue.labels)
    return tuple(name for name in names if name)


def priority_of(labels: tuple[str, ...], place: GitHubPlace) -> int:
    """The most urgent priority that a label gives."""
    ranks = {label.casefold(): rank for rank, label in reversed(list(enumerate(place.priority_labels)))}
    return min((ranks[label.casefold()] for label in labels if label.casefold() in ranks), default=ORDINARY)


def comment_of(comment: wire.Comment) -> Comment:
    """A comment as every board tells it."""
    at = comment.created_at.timestamp()
    return Comment(author=login_of(comment.user) or GHOST, body=text_of(comment.body), at=at)


def pull_of(pull: wire.Pull) -> PullRequest:
    """A pull request as every board tells it."""
    merged_at = pull.merged_at.timestamp() if pull.merged_at else None
    if merged_at is not None:
        state = PullState.MERGED
    elif pull.state != "open":
        state = PullState.CLOSED
    else:
        state = PullState.DRAFT if pull.draft else PullState.OPEN
    armed = pull.auto_merge is not None and pull.state == "open"
    repo = pull.base.repo.full_name
    return PullRequest(url=pull.html_url, state=state, auto_merge=armed, repo=repo, merged_at=merged_at)


def issue_of(
    issue: wire.Issue,
    place: GitHubPlace,
    key: IssueKey,
    *,
    blocked_by: tuple[IssueKey, ...] = (),
    turned_at: float | None = None,
    moved_to: str = "",
    is_by_stranger: bool = False,
) -> Issue:
    """An issue as every board tells it."""
    labels = labels_of(issue)
    return Issue(
        key=key,
        title=issue.title,
        body=text_of(issue.body),
        labels=labels,
        priority=priority_of(labels, place),
        is_open=issue.state == "open",
        blocked_by=blocked_by,
        url=issue.html_url,
        created_at=issue.created_at.timestamp(),
        turned_at=turned_at,
        is_pull=issue.pull_request is not None,
        moved_to=moved_to,
        is_by_stranger=is_by_stranger,
    )
