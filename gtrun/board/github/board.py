"""The issues of a GitHub repository as a board.

Reading is fresh each time, except for `open_work` (see `gtrun.board.github.known`). A comment counts only if its author
is believed (`[board] trusted`): `comments` leaves out all others, and a marker that somebody else copied does not keep
ours from being posted. Labels and the state of an issue count always: they are set by people with triage rights.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from gtrun.board import State
from gtrun.board.github import wire
from gtrun.board.github.cache import Cache
from gtrun.board.github.client import GONE, AnswerLost, Client, Denied, Reply
from gtrun.board.github.place import check, is_own, key_of, locate, path_of
from gtrun.board.github.reading import PAGE, Reading, comment_of, issue_of, labels_of, login_of, named_in, repo_of
from gtrun.board.github.token import Token, find
from gtrun.errors import BoardUnavailable, NoSuchIssue, UsageError
from gtrun.markers import parse
from gtrun.model import Comment, GitHubPlace, Issue, PullRequest, Standing
from gtrun.names import IssueKey
from gtrun.process import pause
from gtrun.pulls import best_first

BODY_MAX = 65_536
LABEL_MAX = 50

_LOOKS = (0.0, 0.3, 1.0, 2.0)
"""Seconds before each look for a comment whose answer was lost: it may be seen later than it was made."""
_CLOCKS_DIFFER = 60.0  # those of GitHub's own servers
_BOXES_DIFFER = 86400.0
"""Seconds that another box may be ahead of GitHub: a marker that is not found is posted twice."""


class GitHubBoard:
    """An open board; close it, or use it as a context manager. Nothing is asked before the first question."""

    def __init__(self, place: GitHubPlace, token: Token, cache: Cache, wait: float) -> None:
        """Use `open`."""
        self.place = place
        self._wait = wait
        self._cache = cache
        self._token = token
        self._client = Client(place.api.rstrip("/"), token, cache)
        self._reading = Reading(place, self._client, cache, token.source)
        self._notices: dict[str, None] = {}

    @classmethod
    def open(
        cls, place: GitHubPlace, token: Token | Mapping[str, str], *, wait: float, cache: Path | None = None
    ) -> Self:
        """Open the board with a token, or with the environment of the process to find one in.

        `wait` is how long each operation may take, in seconds, with all its questions. `cache` is a private folder of
        this account for answers that may still be true. Raises BoardUnavailable if there is no token, or
        it must not be sent there.
        """
        check(place)
        found = token if isinstance(token, Token) else find(place, token)
        return cls(place, found, Cache(cache, found.reveal()), wait)

    def close(self) -> None:
        """End the conversation. Closing twice is harmless."""
        self._client.close()

    def __enter__(self) -> Self:
        """The board itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the conversation."""
        self.close()

    @property
    def identity(self) -> str:
        """What tells this board from any other: its address."""
        return self.place.address

    def identify(self) -> str:
        """Its identity, which it always had."""
        return self.identity

    @property
    def name(self) -> str:
        """Its address for people."""
        return self.place.web

    @property
    def notices(self) -> tuple[str, ...]:
        """What was met so far that somebody should mend, a line each: the repository has another name now."""
        return tuple(self._notices)

    @property
    def requests(self) -> tuple[int, int]:
        """How many questions were asked so far, and how many of them cost nothing since nothing had changed (304)."""
        return self._client.asked, self._client.unchanged

    def issue(self, key: IssueKey) -> Issue | None:
        """The issue, or None if there is none of that name. A pull request, and what was transferred, says so."""
        with self._client.within(self._wait):
            found = self._find(key)
            if found is None:
                return None
            issue, repo, number, moved_to = found
            if issue.pull_request is not None or moved_to:
                return issue_of(issue, self.place, _canonical(self.place, key), moved_to=moved_to)
            # what nobody has commented on has no marker that a turn could come after
            stranger = "" if self._reading.believed(issue) else login_of(issue.user)
            may_have_turned = issue.comments and issue.state == "open"
            turned_at = self._reading.turned_at(repo, number, stranger=stranger) if may_have_turned else None
            blocked_by = self._reading.blocked_by(repo, number, issue.issue_dependencies_summary, named_in(issue, repo))
            return issue_of(
                issue,
                self.place,
                _canonical(self.place, key),
                blocked_by=blocked_by,
                turned_at=turned_at,
                is_by_stranger=not self._reading.believed(issue),
            )

    def issues(self, *, state: State = "open", label: str | None = None) -> list[Issue]:
        """The issues in that state (and with that label): the most urgent first, then the oldest.

        What blocks them and when they turned is not asked for. The label is compared here: a list of labels that
        GitHub is given cannot have one with a comma.
        """
        wanted = label.casefold() if label is not None else None
        query: dict[str, str | int] = {"state": state, "sort": "created", "direction": "asc", "per_page": PAGE}
        found: dict[int, Issue] = {}
        with self._client.within(self._wait):
            for reply in self._client.pages(path_of(self.place.repo, "issues"), query):
                if not reply.is_there:
                    self._reading.absent(self.place.repo, reply)
                for issue in reply.read(list[wire.Issue]) if reply.is_there else ():
                    carries = wanted is None or any(one.casefold() == wanted for one in labels_of(issue))
                    if issue.pull_request is None and carries:
                        key = key_of(self.place, self.place.repo, issue.number)
                        found[issue.number] = issue_of(issue, self.place, key)
        return sorted(found.values(), key=lambda issue: (issue.priority, int(issue.key)))

    def comments(self, key: IssueKey) -> list[Comment]:
        """The comments of believed authors on an issue, oldest first; none for an issue that does not exist."""
        with self._client.within(self._wait):
            found = self._comments(key)
            return [comment_of(comment) for comment in found if self._reading.believed(comment)]

    def all_comments(self, key: IssueKey) -> list[Comment]:
        """The comments of everybody, to be shown to people: what strangers write counts for nothing."""
        with self._client.within(self._wait):
            return [comment_of(comment) for comment in self._comments(key)]

    def pull_requests(self, key: IssueKey) -> list[PullRequest]:
        """The pull requests whose merge closes the issue, those that have come farthest first.

        Of its own repository, from forks too, and of repositories of the same owner.
        """
        with self._client.within(self._wait):
            found = self._find(key)
            if found is None or found[0].pull_request is not None:
                return []
            issue, repo, _, _ = found
            return best_first(self._reading.pull_requests(repo, issue))

    def open_work(self, terminal_labels: Sequence[str], terminal_glyphs: Sequence[str]) -> list[tuple[Issue, Standing]]:
        """Every open issue, without its body, and where it stands; how fresh that is, `known` tells."""
        from gtrun.board.github.known import open_work  # noqa: PLC0415 - only a sweep asks

        with self._client.within(self._wait):
            return open_work(self._reading, self._cache, terminal_labels, terminal_glyphs)

    def post(
        self, key: IssueKey, *, author: str, body: str, marker: str | None = None, since: float | None = None
    ) -> bool:
        """Comment on an issue, open or closed. False if it has this very marker already: nothing was posted.

        The author is whoever the token belongs to (`author` is not sent). `marker` is `started:RUN` or `finished:RUN`,
        whose line the body has, and nothing older than `since` is read to find it: an issue may have thousands of
        comments. Where the answer to a comment with a marker is lost, it is looked for a few times.
        Raises NoSuchIssue if there is no such issue, UsageError for text that GitHub does not keep, BoardUnavailable
        if it is not known to be there.
        """
        del author
        _check_body(body)
        with self._client.within(self._wait):
            repo, number = self._located(key)
            path = path_of(repo, "issues", number, "comments")
            asked_at = 0.0
            if marker is not None:
                reply = self._client.get(path_of(repo, "issues", number))
                if reply.has_moved and reply.is_there:  # it is posted where it is now
                    issue = reply.read(wire.Issue)
                    repo, number = repo_of(issue) or repo, issue.number
                    path = path_of(repo, "issues", number, "comments")
                earliest = min(since, reply.at) - _BOXES_DIFFER if since is not None else None
                if self._carries(repo, number, marker, since=earliest):
                    return False
                asked_at = reply.at  # by GitHub's clock: that of this box may be hours ahead
            try:
                reply = self._client.write("POST", path, {"body": body})
            except AnswerLost as lost:
                if marker is None or not self._arrived(repo, number, marker, since=asked_at - _CLOCKS_DIFFER):
                    raise AnswerLost(f"{lost.message}; whether the comment is on issue {key} is not known") from None
                return True
            except Denied as denied:
                raise _told(denied, key) from None
            self._done(reply, key, repo, number)
            return True

    def label(self, key: IssueKey, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
        """Take labels off an issue, then put labels on it. Raises NoSuchIssue if there is no such issue."""
        add, remove = tuple(add), tuple(remove)
        for name in (*add, *remove):
            _check_label(name)
        with self._client.within(self._wait):
            repo, number = self._located(key)
            path = path_of(repo, "issues", number, "labels")
            carried = {name.casefold() for name in labels_of(self._existing(key, repo, number))}
            for name in remove:
                if name.casefold() in carried:
                    # one that somebody else took off meanwhile is off as well
                    self._change("DELETE", path_of(repo, "issues", number, "labels", name), None, key)
            wanted = [name for name in add if name.casefold() not in carried - {one.casefold() for one in remove}]
            if wanted:
                self._done(self._change("POST", path, {"labels": wanted}, key), key, repo, number)

    def close_issue(self, key: IssueKey) -> bool:
        """Close an issue; False if it was closed already. Raises NoSuchIssue if there is no such issue."""
        return self._turn(key, "closed")

    def reopen_issue(self, key: IssueKey) -> bool:
        """Open a closed issue; False if it was open already. Raises NoSuchIssue if there is no such issue."""
        return self._turn(key, "open")

    def _turn(self, key: IssueKey, state: str) -> bool:
        with self._client.within(self._wait):
            repo, number = self._located(key)
            if self._existing(key, repo, number).state == state:
                return False
            changed = self._change("PATCH", path_of(repo, "issues", number), {"state": state}, key)
            self._done(changed, key, repo, number)
            return True

    def _find(self, key: IssueKey) -> tuple[wire.Issue, str, int, str] | None:
        """The issue, where it is, and its name if that is another one: a claim would take it for two issues."""
        located = locate(self.place, key)
        if located is None:
            return None
        repo, number = located
        reply = self._client.get(path_of(repo, "issues", number))
        if reply.status == GONE:
            self._reading.absent(repo, reply)
            return None
        if not reply.is_there:
            return self._pull_alone(repo, number)
        issue = reply.read(wire.Issue)
        where = (repo_of(issue) or repo) if reply.has_moved else repo
        is_own_now = not is_own(self.place, where) and self._is_renamed_to(where)
        name = key_of(self.place, self.place.repo if is_own_now else where, issue.number)
        return issue, where, issue.number, "" if name == _canonical(self.place, key) else name

    def _is_renamed_to(self, repo: str) -> bool:
        """Whether the board's own repository has that name now."""
        seen = self._client.get(path_of(self.place.repo))
        if not seen.is_there or seen.read(wire.Repository).full_name.casefold() != repo.casefold():
            return False
        self._notices[f"the repository {self.place.repo} is {repo} now: set it as repo in [board]"] = None
        return True

    def _pull_alone(self, repo: str, number: int) -> tuple[wire.Issue, str, int, str] | None:
        """What is no issue: nothing, or a pull request on a server that does not list these among issues."""
        reply = self._client.get(path_of(repo, "pulls", number))
        if not reply.is_there:
            self._reading.absent(repo, reply)
            return None
        pull = reply.read(wire.Pull)
        at = pull.updated_at
        issue = wire.Issue(
            number=number,
            title="",
            state=pull.state,
            created_at=at,
            updated_at=at,
            html_url=pull.html_url,
            pull_request={},
        )
        return issue, repo, number, ""

    def _comments(self, key: IssueKey) -> list[wire.Comment]:
        located = locate(self.place, key)
        return (self._reading.comments(*located) or []) if located else []

    def _carries(self, repo: str, number: int, marker: str, *, since: float | None = None) -> bool:
        """Whether a believed comment is this very marker. Raises NoSuchIssue if there is no issue."""
        comments = self._reading.comments(repo, number, since=since)
        if comments is None:
            raise NoSuchIssue(f"there is no issue {key_of(self.place, repo, number)} on {self.name}")
        for comment in comments:
            found = parse(comment_of(comment).body)
            if found and f"{found.kind}:{found.run}" == marker and self._reading.believed(comment):
                return True
        return False

    def _arrived(self, repo: str, number: int, marker: str, *, since: float) -> bool:
        """Whether a comment is there whose answer was lost."""
        for delay in _LOOKS:
            if self._client.left() <= delay:
                return False
            pause(delay)
            try:
                if self._carries(repo, number, marker, since=since):
                    return True
            except BoardUnavailable:
                continue
        return False

    def _change(self, method: str, path: str, content: object, key: IssueKey) -> Reply:
        try:
            return self._client.write(method, path, content)
        except Denied as denied:
            raise _told(denied, key) from None

    def _done(self, reply: Reply, key: IssueKey, repo: str, number: int) -> None:
        """Raises NoSuchIssue if what should be changed is not there; a token that may only read is told that too."""
        if not reply.is_there:
            self._existing(key, repo, number)
            raise BoardUnavailable(
                f"the token from {self._token.source} may not change issue {key} on {self.name}",
                hint="it needs to write issues: `issues: read and write`, or the scope repo",
            )

    def _existing(self, key: IssueKey, repo: str, number: int) -> wire.Issue:
        reply = self._client.get(path_of(repo, "issues", number))
        if not reply.is_there:
            self._reading.absent(repo, reply)
            raise NoSuchIssue(f"there is no issue {key} on {self.name}")
        return reply.read(wire.Issue)

    def _located(self, key: IssueKey) -> tuple[str, int]:
        located = locate(self.place, key)
        if located is None:
            raise NoSuchIssue(f"there is no issue {key} on {self.name}")
        return located


def _canonical(place: GitHubPlace, key: IssueKey) -> IssueKey:
    """The same issue by its one name: `owner/repo#7` of this repository is 7, or it would have two units."""
    found = locate(place, key)
    return key_of(place, *found) if found else key


def _told(denied: Denied, key: IssueKey) -> BoardUnavailable:
    """A refusal to write, by what GitHub says of the issue."""
    if "locked" in denied.said.lower():
        return BoardUnavailable(
            f"issue {key} is locked, and the account of the token may not comment on it: {denied.said}",
            hint="unlock it, or give the account write access",
        )
    return denied


def _check_body(body: str) -> None:
    if not body.strip():
        raise UsageError("a comment cannot be empty")
    if len(body) > BODY_MAX:
        raise UsageError(f"a comment has at most {BODY_MAX:,} characters, not {len(body):,}", hint="shorten it")
    if "\0" in body:
        raise UsageError("a comment cannot hold a NUL character", hint="remove it: this looks like binary data")
    try:
        body.encode()
    except UnicodeEncodeError:
        raise UsageError("a comment has to be valid UTF-8", hint="convert it, as with iconv -t UTF-8") from None


def _check_label(name: str) -> None:
    if not name.strip() or name.splitlines() != [name] or len(name) > LABEL_MAX or "\0" in name:
        raise UsageError(f"{name[:80]!r} is no label", hint=f"a label is one line of at most {LABEL_MAX} characters")
