"""What GitHub says when it refuses: a limit, something that a token lacks, a sentence. Pure."""

import contextlib
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import msgspec

from gtrun.board.github.wire import Problem
from gtrun.text import plain, shorten

TOLD = 200
"""Characters of somebody else's text that are told."""

NEEDED = "issues (read and write), pull requests (read)"
"""What a token is to have, as hints name it."""

_SECONDARY = 60.0  # "wait for at least one minute": docs.github.com/rest/using-the-rest-api/rate-limits


def limit(status: int, headers: Mapping[str, str], body: bytes) -> float | None:
    """Seconds to wait if this is a rate limit: https://docs.github.com/rest/using-the-rest-api/rate-limits."""
    if status not in {403, 429}:
        return None
    after, reset = headers.get("retry-after", ""), headers.get("x-ratelimit-reset", "")
    if after.isascii() and after.isdigit():
        return float(after[:6])
    if headers.get("x-ratelimit-remaining") == "0" and reset.isascii() and reset.isdigit():
        return max(0.0, float(reset[:12]) - clock(headers)) + 1.0
    if status == 429 or "rate limit" in said(body).lower():
        return _SECONDARY
    return None


def clock(headers: Mapping[str, str]) -> float:
    """When GitHub answered, by its own clock."""
    with contextlib.suppress(ValueError, TypeError):
        return parsedate_to_datetime(headers["date"]).timestamp() if "date" in headers else time.time()
    return time.time()


def said(body: bytes) -> str:
    """GitHub's own sentence about a refusal."""
    try:
        message = msgspec.json.decode(body, type=Problem).message
    except (msgspec.DecodeError, UnicodeDecodeError):
        message = ""
    return shorten(plain(message), TOLD) or "it does not say why"


def lacking(headers: Mapping[str, str]) -> str:
    """What a token lacks, as the headers tell: a permission of a fine-grained one, a scope of a classic one."""
    scopes = {scope.strip() for scope in headers.get("x-oauth-scopes", "").split(",")} - {""}
    accepted = [scope.strip() for scope in headers.get("x-accepted-oauth-scopes", "").split(",") if scope.strip()]
    if "x-oauth-scopes" in headers and accepted and not scopes & set(accepted):
        has = ", ".join(sorted(scopes)) or "none"
        return plain(shorten(f"the scope {' or '.join(accepted)} (it has {has})", TOLD))
    permissions = headers.get("x-accepted-github-permissions", "")
    return plain(shorten(f"the permission {' or '.join(permissions.split('; '))}", TOLD)) if permissions else ""


def single_sign_on(headers: Mapping[str, str]) -> str:
    """Where a token is let into an organisation that wants that; empty if this is not what is missing."""
    match = re.search(r"url=(https://[!-~]+)", headers.get("x-github-sso", ""))
    return f"the organisation wants single sign-on for this token: {match[1]}" if match else ""
