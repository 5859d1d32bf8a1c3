"""A proxy between a client and GitHub that does to the conversation what networks and servers do.

    with Between(upstream) as between:
        between.fail(Fault("GET", r"/issues/1$", status=502), times=2)
        …                                          # the client asks between.url
        between.asked                              # what was asked, in order

It gives each answer an ETag and says 304 to whoever has it, as GitHub does, and holds every question against GitHub's
own description (`breaches`).
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from harness.github import breaches

Edit = Callable[[str, Any], Any]
"""Makes of a path and the value of its answer another value."""

Answer = tuple[int, dict[str, str], bytes]
"""A status, headers with small letters, and a body."""

Instead = Callable[[str, str], Answer | None]
"""Answers a method and a path (with its query) instead of the server; None leaves it to the server."""

_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host"})


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to the questions whose method and path (with its query) match.

    With `status` the server is not asked, unless `also_done`. Otherwise it is: then its answer is `lost` (the
    connection is closed without one), `cut` in the middle, or `delay`ed for so many seconds.
    """

    method: str
    path: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    also_done: bool = False
    lost: bool = False
    cut: bool = False
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, and with which status it was answered (0: with none)."""

    method: str
    path: str
    query: str
    status: int
    headers: dict[str, str]
    content: bytes


class Between:
    """See the module."""

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream)
        self.asked: list[Asked] = []
        self.breaches: list[str] = []
        self.edits: list[Edit] = []
        self.answers: list[Instead] = []
        self._faults: list[tuple[Fault, int]] = []
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.between = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        """Where to ask."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        """Begin to listen."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, with all that still waits."""
        self._woken.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def fail(self, fault: Fault, *, times: int = 1) -> None:
        """Let the next `times` questions that match meet this fault."""
        with self._lock:
            self._faults.append((fault, times))

    def clear(self) -> None:
        """Forget what was asked, faults, edits and answers."""
        with self._lock:
            self.asked.clear()
            self.edits.clear()
            self.answers.clear()
            self._faults.clear()

    def statuses(self) -> list[int]:
        """With what the questions were answered."""
        return [one.status for one in self.asked]

    def fault_for(self, method: str, path: str) -> Fault | None:
        """The fault that this question meets."""
        with self._lock:
            for place, (fault, times) in enumerate(self._faults):
                if fault.method == method and re.search(fault.path, path):
                    self._faults[place : place + 1] = [(fault, times - 1)] if times > 1 else []
                    return fault
        return None

    def instead(self, method: str, path: str) -> Answer | None:
        """What is answered instead of the server."""
        return next(filter(None, (answer(method, path) for answer in self.answers)), None)

    def note(self, asked: Asked) -> None:
        """Write down a question, and what of it GitHub does not know."""
        found = breaches(asked.method, asked.path, asked.query, asked.content)
        with self._lock:
            self.asked.append(asked)
            self.breaches.extend(found)

    def heed(self, violations: str) -> None:
        """Take up what prism found in a question; what it finds in GitHub's own examples is not ours."""
        found = [one["message"] for one in json.loads(violations) if one["location"][0] == "request"]
        with self._lock:
            self.breaches.extend(found)

    def sit(self, seconds: float) -> None:
        """Wait, but not beyond our end."""
        self._woken.wait(seconds)


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    between: Between

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as it is declared there
        """A client that has gone is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    timeout = 5.0

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called there
        """Say nothing."""

    def do_GET(self) -> None:
        self._handle()

    do_POST = do_PATCH = do_PUT = do_DELETE = do_GET  # noqa: N815 - as http.server looks for them

    def _handle(self) -> None:
        between = self.server.between
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = between.fault_for(self.command, self.path)
        if fault is not None and fault.also_done:
            self._forward(content)
        if fault is not None and fault.status:
            status, headers, body = fault.status, dict(fault.headers), fault.body
        else:
            status, headers, body = self._with_etag(
                *(between.instead(self.command, self.path) or self._forward(content))
            )
        if fault is not None and fault.delay:
            between.sit(fault.delay)
        where = urlsplit(self.path)
        answered = 0 if fault is not None and (fault.lost or fault.cut) else status
        sent = {name.lower(): value for name, value in self.headers.items()}
        between.note(Asked(self.command, where.path, where.query, answered, sent, content))
        if answered:
            self._answer(status, headers, body)
            return
        self.close_connection = True
        if fault is not None and fault.cut:
            head = f"HTTP/1.1 {status} OK\r\nContent-Type: application/json\r\nContent-Length: {len(body) + 1}\r\n\r\n"
            self.wfile.write(head.encode() + body[: len(body) // 2])
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _forward(self, content: bytes) -> Answer:
        between = self.server.between
        connection = http.client.HTTPConnection(between.upstream.netloc, timeout=30.0)
        try:
            kept = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
            kept.pop("If-None-Match", None)
            kept["Accept-Encoding"] = "identity"
            connection.request(self.command, self.path, body=content or None, headers=kept)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        headers = {name.lower(): value for name, value in answer.getheaders() if name.lower() not in _HOP}
        between.heed(headers.pop("sl-violations", "[]"))
        for name in ("link", "location"):
            if name in headers:
                headers[name] = re.sub(rf"http://[\w.]+:{between.upstream.port}", between.url, headers[name])
        status = answer.status
        if between.edits and status == 200:
            value = json.loads(body)
            for edit in between.edits:
                value = edit(urlsplit(self.path).path, value)
            body = json.dumps(value).encode()
        return status, headers, body

    def _with_etag(self, status: int, headers: dict[str, str], body: bytes) -> Answer:
        if self.command == "GET" and status == 200:
            headers["etag"] = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
            if self.headers.get("If-None-Match") == headers["etag"]:
                return 304, {"etag": headers["etag"]}, b""
        return status, headers, body

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name not in {"date", "server"}:
                self.send_header(name, value)
        if status not in {204, 304}:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if status not in {204, 304}:
            self.wfile.write(body)
