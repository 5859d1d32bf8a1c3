"""Questions to GitHub's REST API: one deadline, and only what may be asked again is asked again.

A GET is asked again when the connection failed or a gateway did (502, 503, 504). What writes is asked again only if it
surely was not done: the connection was never made, or GitHub refused it for its rate limits. Redirects are followed
within the same server alone, so the token goes nowhere else. The name server's answer is waited for as long as
resolv.conf(5) says, since getaddrinfo(3) knows no deadline.
"""

import contextlib
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Self, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

import httpx
import msgspec

from gtrun.board.github.cache import Answer, Cache
from gtrun.board.github.refusals import NEEDED, TOLD, clock, lacking, limit, said, single_sign_on
from gtrun.board.github.token import Token
from gtrun.errors import BoardUnavailable
from gtrun.process import pause
from gtrun.text import plain, shorten

T = TypeVar("T")

GONE = 410

PAGES_MOST = 300
"""Pages of one list; what has more is no list that a plan is made from."""

_ANSWER_MOST = 32 << 20
_REDIRECTS = 3
_TRIES = 6  # of one question, within some 6 s: a server that is down does not come back within a deadline
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_GATEWAY = frozenset({502, 503, 504})
_FOLLOWED = frozenset({301, 302, 307, 308})
_FOLLOWED_WRITING = frozenset({307, 308})  # the others turn a POST into a GET
_LINK = re.compile(r'<([^>]*)>[^,<]*?;\s*rel="?([a-z]+)"?')
_PORTS = {"https": 443, "http": 80}


class Denied(BoardUnavailable):
    """GitHub understood, and refuses: 403 and 422. `said` is its own sentence."""

    def __init__(self, message: str, *, status: int, said: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.said = said


class AnswerLost(BoardUnavailable):
    """What should be written may have been written, or may still be: the answer did not come."""


class Reply(msgspec.Struct, frozen=True):
    """An answer with a status that its asker has to judge: 2xx, 404 or 410.

    `url` is where it finally came from, `has_moved` whether that is not where it was asked for. `at` is GitHub's clock
    in seconds since the epoch.
    """

    status: int
    body: bytes
    url: str
    links: Mapping[str, str]
    at: float
    has_moved: bool = False

    @property
    def is_there(self) -> bool:
        """Whether there is what was asked for."""
        return 200 <= self.status < 300

    def read(self, kind: type[T]) -> T:
        """The answer's value. Raises BoardUnavailable for what is no JSON, was cut, or has another shape."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            why = shorten(plain(str(error)), TOLD)
            raise BoardUnavailable(
                f"GitHub's answer about {urlsplit(self.url).path} is not understood: {why}",
                hint="is there a proxy that answers in its place? otherwise [board] api may be no GitHub API",
            ) from None


class Client:
    """A conversation with one server on behalf of one token; close it. Raises BoardUnavailable for all that fails."""

    def __init__(self, api: str, token: Token, cache: Cache) -> None:
        self._api = api
        self._token = token
        self._cache = cache
        self._deadline = 0.0
        self.asked = 0
        self.unchanged = 0
        headers = {
            "Accept": "application/vnd.github+json, application/json",
            "Authorization": f"Bearer {token.reveal()}",
            "User-Agent": "gtrun",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        # no redirect is followed behind our back. Proxies are those of the environment, but for what is not encrypted:
        # that is on this very machine, and a proxy would be shown the token
        is_tls = api.startswith("https:")
        trusted = _certificates() if is_tls else False
        try:
            self._http = httpx.Client(headers=headers, follow_redirects=False, verify=trusted, trust_env=is_tls)
        except (
            httpx.InvalidURL,
            ValueError,
            ImportError,
        ):  # not the error itself: a proxy's address may hold a password
            raise BoardUnavailable(
                "the proxy of the environment cannot be used",
                hint="HTTPS_PROXY or ALL_PROXY is an address like http://proxy.example:3128, and no SOCKS;"
                " NO_PROXY a list of hosts, without [::1]",
            ) from None

    def close(self) -> None:
        """End the conversation."""
        self._http.close()

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the conversation."""
        self.close()

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """All that is asked in here has to be answered within so many seconds; an inner one does not add to them."""
        before = self._deadline
        self._deadline = before or time.monotonic() + seconds
        try:
            yield
        finally:
            self._deadline = before

    def left(self) -> float:
        """Seconds that are left."""
        return self._deadline - time.monotonic()

    def get(self, path: str, query: Mapping[str, str | int] | None = None) -> Reply:
        """Ask for something, by its path or its whole address on the same server."""
        url = path if path.startswith(("https://", "http://")) else f"{self._api}{path}"
        if query:
            url = f"{url}?{urlencode(query)}"
        if not self._is_ours(url):
            raise BoardUnavailable(f"GitHub points to another server: {plain(shorten(url, TOLD))}")
        return self._ask("GET", url, None)

    def pages(self, path: str, query: Mapping[str, str | int] | None) -> Iterator[Reply]:
        """A list, page by page, as GitHub links them; a first page that is not there ends it too.

        `path` may be the whole address of a page to go on from.
        """
        reply = self.get(path, query)
        for _ in range(PAGES_MOST):
            yield reply
            following = reply.links.get("next")
            if not reply.is_there or following is None:
                return
            reply = self.get(following)
        raise BoardUnavailable(f"{urlsplit(reply.url).path} has more than {PAGES_MOST} pages")

    def write(self, method: str, path: str, content: object = None) -> Reply:
        """Change something. Raises AnswerLost if that may have happened."""
        url = path if path.startswith(("https://", "http://")) else f"{self._api}{path}"
        if not self._is_ours(url):
            raise BoardUnavailable(f"GitHub points to another server: {plain(shorten(url, TOLD))}")
        return self._ask(method, url, content)

    def _ask(self, method: str, url: str, content: object) -> Reply:
        wanted, redirects, delay, tries = url, 0, _FIRST_PAUSE, 0
        while True:
            status, headers, body = self._once(method, url, content)
            problem = self._gateway(method, url, status) if status in _GATEWAY else None
            if status == 0:  # the connection failed; nothing was done
                problem = BoardUnavailable(f"{self._server()} does not answer: {body.decode()}")
            if problem is not None:
                tries += 1
                if isinstance(problem, AnswerLost) or tries == _TRIES or self.left() <= delay:
                    raise problem
                pause(delay)
                delay = min(delay * 2, _LONGEST_PAUSE)
                continue
            if 300 <= status < 400:
                redirects += 1
                url = self._redirected(method, url, status, headers, redirects)
                continue
            refused = limit(status, headers, body)
            if refused is not None:
                self._sit_out(max(refused, delay), headers)  # one that is over at once comes back at once, for ever
                delay = min(delay * 2, _LONGEST_PAUSE)
                continue
            self._check(method, url, status, headers, body)
            return Reply(status, body, url, self._links(headers.get("link", "")), clock(headers), wanted != url)

    def _once(self, method: str, url: str, content: object) -> tuple[int, Mapping[str, str], bytes]:
        """One question and its whole answer; status 0, and why, if the question cannot have had an effect."""
        left = self.left()
        if left <= 0:
            raise self._late()
        kept = self._kept(url) if method == "GET" else None
        more = {"If-None-Match": kept.etag} if kept else {}
        data = None
        if content is not None:
            data, more = msgspec.json.encode(content), {"Content-Type": "application/json"}
        try:
            self.asked += 1
            with self._http.stream(method, url, content=data, headers=more, timeout=left) as response:
                body = self._body(response)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as error:
            return 0, {}, _why(error).encode()
        except (httpx.InvalidURL, ValueError):  # the names of a host have rules of their own, which IDNA checks
            raise BoardUnavailable(f"nobody can be asked at {plain(shorten(url, TOLD))}: it is no address") from None
        except (httpx.HTTPError, httpx.StreamError) as error:
            if method != "GET":
                raise AnswerLost(f"{self._server()} did not answer to the end: {_why(error)}") from None
            if self.left() <= 0:
                raise self._late() from None
            return 0, {}, _why(error).encode()
        if response.status_code == 304 and kept:
            self.unchanged += 1
            return 200, {**response.headers, "link": kept.links}, kept.body
        if response.status_code == 200 and method == "GET" and "etag" in response.headers:
            self._cache.put(url, Answer(response.headers["etag"], body, response.headers.get("link", "")))
        return response.status_code, response.headers, body

    def _kept(self, url: str) -> Answer | None:
        """The answer of before, if it was all of it: or the next 304 would confirm what was cut, each time."""
        kept = self._cache.answer(url)
        return kept if kept is not None and _is_json(kept.body) else None

    def _body(self, response: httpx.Response) -> bytes:
        parts, size = [], 0
        for part in response.iter_bytes():
            parts.append(part)
            size += len(part)
            if size > _ANSWER_MOST:
                raise BoardUnavailable(f"{self._server()} answers with more than {_ANSWER_MOST >> 20} MiB")
            if self.left() <= 0:  # one that sends a little now and then
                raise httpx.ReadTimeout("")
        return b"".join(parts)

    def _gateway(self, method: str, url: str, status: int) -> BoardUnavailable:
        if method == "GET":
            return BoardUnavailable(f"{self._server()} is out of order: it answers {status} about {urlsplit(url).path}")
        return AnswerLost(f"{self._server()} did not say what came of it: it answers {status}")

    def _redirected(self, method: str, url: str, status: int, headers: Mapping[str, str], count: int) -> str:
        where = urljoin(url, headers.get("location", ""))
        shown = plain(shorten(where, TOLD))
        followed = _FOLLOWED if method == "GET" else _FOLLOWED_WRITING
        if status not in followed or "location" not in headers:
            raise BoardUnavailable(f"{self._server()} says that {urlsplit(url).path} is elsewhere ({status}): {shown}")
        if not self._is_ours(where):
            raise BoardUnavailable(
                f"{self._server()} points to another server, to which the token is not sent: {shown}",
                hint="if that is right, set api in [board]",
            )
        if count > _REDIRECTS:
            raise BoardUnavailable(f"{self._server()} redirects in circles: {shown}")
        return where

    def _sit_out(self, seconds: float, headers: Mapping[str, str]) -> None:
        """Wait for a rate limit to end, if there is time for it."""
        if seconds < self.left():
            pause(seconds)
            return
        try:
            until = f"until {datetime.fromtimestamp(clock(headers) + seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
        except (ValueError, OverflowError, OSError):
            until = "until some day"
        raise BoardUnavailable(f"GitHub's rate limit for the token from {self._token.source} is used up {until}")

    def _check(self, method: str, url: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Raises BoardUnavailable for a status that says the same whatever was asked."""
        if 200 <= status < 300 or status in {404, GONE}:
            return
        told = said(body)
        source = self._token.source
        if status == 401:
            raise BoardUnavailable(
                f"GitHub does not accept the token from {source}: it is wrong, has expired or was revoked",
                hint="make a new one, or `gh auth login`",
            )
        if status == 403:
            lack = lacking(headers)
            why = f" lacks {lack}" if lack else " may not do that"
            is_for_more = lack or "not accessible" in told.lower()
            hint = single_sign_on(headers) or (f"give the token access: {NEEDED}" if is_for_more else "")
            raise Denied(f"the token from {source}{why}: {told}", status=status, said=told, hint=hint)
        if status == 422:
            raise Denied(f"GitHub refuses that as invalid: {told}", status=status, said=told)
        message = f"{self._server()} answers {status} about {urlsplit(url).path}: {told}"
        raise (AnswerLost if status >= 500 and method != "GET" else BoardUnavailable)(message)

    def _links(self, header: str) -> dict[str, str]:
        """The addresses of other pages; none of them leads to another server."""
        return {name: where for where, name in _LINK.findall(header) if self._is_ours(where)}

    def _is_ours(self, url: str) -> bool:
        return _origin(url) == _origin(self._api)

    def _server(self) -> str:
        return urlsplit(self._api).netloc

    def _late(self) -> BoardUnavailable:
        return BoardUnavailable(f"{self._server()} did not answer in time")


def _origin(url: str) -> tuple[str, str, int | None] | None:
    try:
        where = urlsplit(url)
        return where.scheme, (where.hostname or "").lower(), where.port or _PORTS.get(where.scheme)
    except ValueError:
        return None


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True


def _certificates() -> ssl.SSLContext | bool:
    """The authorities that this machine believes, which may be the company's own; those of httpx where it has none."""
    places = ssl.get_default_verify_paths()
    if any(place and Path(place).exists() for place in (places.cafile, places.capath)):
        return ssl.create_default_context()
    return True


def _why(error: Exception) -> str:
    """A failure of the network in a few words; the library's own may quote what was sent."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({plain(cause.verify_message)})"
        if isinstance(cause, OSError) and cause.strerror:
            return plain(cause.strerror)
        cause = cause.__cause__ or cause.__context__
    match error:
        case httpx.TimeoutException():
            return "timed out"
        case httpx.RemoteProtocolError():
            return "the connection was cut"
        case _:
            return type(error).__name__
