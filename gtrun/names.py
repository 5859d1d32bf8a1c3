"""Every name that gtrun derives: issue keys, unit names, identifiers, and what a command line may carry."""

import re
from typing import NewType

from gtrun.errors import UsageError

IssueKey = NewType("IssueKey", str)
"""What a run is of, as people write it: `142` is an issue of the board's own repository, `owner/repo#142` of another.

The work that a plugin is has a key of its own form, `plugin:NAME`, which no issue can have: all that goes by the key
(unit name, claim, ledger, history) serves both.
"""

UnitName = NewType("UnitName", str)
"""A full unit name with its suffix, as `task-142.service`."""

RunId = NewType("RunId", str)
"""systemd's invocation ID of a run: 32 lower-case hexadecimal digits."""

Token = NewType("Token", str)
"""Names one attempt and its run record before systemd has given the run an ID: 32 hexadecimal digits."""

UNIT_GLOBS = ("task-*.service", "plugin-*.service")
"""Glob patterns for the units of all runs."""

_NUMBER = r"[1-9][0-9]{0,17}"  # an SQLite and a GitHub identifier both fit 63 bits
_OWNER = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})"
_REPO = r"(?!\.{1,2}#|\.{1,2}/)[A-Za-z0-9._-]{1,100}"
_ISSUE = re.compile(_NUMBER, re.ASCII)
_QUALIFIED = re.compile(rf"(?P<owner>{_OWNER})/(?P<repo>{_REPO})#(?P<number>{_NUMBER})", re.ASCII)
_URL = re.compile(
    rf"(?P<site>https?://[A-Za-z0-9.-]+(?::[0-9]+)?)/(?P<owner>{_OWNER})/(?P<repo>{_REPO})/issues/(?P<number>{_NUMBER})",
    re.ASCII,
)
_PLUGIN = r"[a-z0-9](?:(?!-dup[0-9])[a-z0-9_-]){0,31}"
_PLUGIN_KEY = re.compile(rf"plugin:({_PLUGIN})", re.ASCII)
_STEM = rf"task-(?:[a-z0-9_]+\.[a-z0-9_]+\.)?[1-9][0-9]*|plugin-{_PLUGIN}"
_UNIT = re.compile(rf"({_STEM})(?:-dup([1-9][0-9]*))?\.service", re.ASCII)
_STEM_MAX = 255 - len("task--dup0000.service")  # UNIT_NAME_MAX of systemd, less what we put around a stem


def parse_issue(text: str, *, own: str = "") -> IssueKey:
    """The issue that `text` names: a number, `owner/repo#number` or its URL. Raises UsageError.

    `own` is the web address of the board's own repository, whose issues have their number alone.
    """
    if _ISSUE.fullmatch(text):
        return IssueKey(text)
    own_site, own_repo = _split_web(own)
    match = _URL.fullmatch(text)
    if match is not None and own and match["site"].lower() != own_site:
        raise UsageError(f"{text[:200]!r} is an issue of another site than the board's, which is {own_site}")
    if match is not None and not own and not match["site"].startswith("https:"):
        match = None
    match = match or _QUALIFIED.fullmatch(text)
    if match is not None:
        repo = f"{match['owner']}/{match['repo']}".lower()
        return IssueKey(match["number"] if repo == own_repo else f"{repo}#{match['number']}")
    raise UsageError(
        f"{text[:80]!r} names no issue",
        hint="an issue is a number like 142 (ASCII digits, no leading zero), owner/repo#142, or its URL;"
        " the runs of a plugin are plugin:NAME",
    )


def split_key(key: IssueKey) -> tuple[str, int] | None:
    """The repository (empty for the board's own) and the number of an issue; None for a key that is no issue's."""
    match = _QUALIFIED.fullmatch(key)
    if match is not None:
        return f"{match['owner']}/{match['repo']}", int(match["number"])
    return ("", int(key)) if _ISSUE.fullmatch(key) else None


def is_repository(text: str) -> bool:
    """Whether it is `owner/name`, as GitHub has them."""
    return _QUALIFIED.fullmatch(f"{text}#1") is not None


def _split_web(address: str) -> tuple[str, str]:
    """The site and `owner/repo` of a repository's web address."""
    site, owner, repo = address.rsplit("/", 2) if address else ("", "", "")
    return site, f"{owner}/{repo}"


def plugin_key(name: str) -> IssueKey:
    """The key of the plugin with this name. Raises UsageError for what is none."""
    if not re.fullmatch(_PLUGIN, name, re.ASCII):
        raise UsageError(
            f"{name[:80]!r} is no name of a plugin",
            hint="at most 32 characters of a-z, 0-9, - and _, not beginning with - or _, and without -dup1",
        )
    return IssueKey(f"plugin:{name}")


def plugin_name(key: IssueKey) -> str | None:
    """The name of the plugin that a key is of; None for an issue's."""
    match = _PLUGIN_KEY.fullmatch(key)
    return match[1] if match else None


def in_words(key: IssueKey) -> str:
    """What a run is of, as messages name it: `issue 142`, `plugin disk`."""
    name = plugin_name(key)
    return f"issue {key}" if name is None else f"plugin {name}"


def _escaped(text: str) -> str:
    return re.sub(r"[^a-z0-9]", lambda match: f"_{ord(match[0]):02x}", text)


def unit_name(issue: IssueKey, *, duplicate: int = 0) -> UnitName:
    """The one name of the unit of an issue or plugin on every agent: the mutex, so without random part and time.

    `duplicate` numbers the second, third … unit that `DISPATCH_ALLOW_DUPLICATE` permits.
    """
    match, plugin = _QUALIFIED.fullmatch(issue), plugin_name(issue)
    if plugin is not None:
        return UnitName(f"plugin-{plugin}{f'-dup{duplicate}' if duplicate else ''}.service")
    if match:
        stem = f"{_escaped(match[1])}.{_escaped(match[2])}.{match[3]}"
        if len(stem) > _STEM_MAX:
            from hashlib import sha256  # noqa: PLC0415 - 2 ms that hardly any issue needs

            stem = f"_.{sha256(f'{match[1]}/{match[2]}'.encode()).hexdigest()}.{match[3]}"
    else:
        stem = issue
    suffix = f"-dup{duplicate}" if duplicate else ""
    return UnitName(f"task-{stem}{suffix}.service")


def unit_names(issue: IssueKey) -> list[str]:
    """Glob patterns for every unit that an issue can have on one agent; `-dup` alone may begin a plugin's own name."""
    return [unit_name(issue), unit_name(issue).replace(".service", "-dup[1-9]*.service")]


def is_run_unit(name: str) -> bool:
    """Whether `unit_name` could have derived this name."""
    return _UNIT.fullmatch(name) is not None


def duplicate_number(name: str) -> int:
    """N of a `-dupN` unit; 0 for the plain name."""
    match = _UNIT.fullmatch(name)
    return int(match[2]) if match and match[2] else 0


def plain_unit_name(name: str) -> str:
    """The name that the same issue's first unit has; a name that is none of ours stays as it is."""
    match = _UNIT.fullmatch(name)
    return f"{match[1]}.service" if match else name


def probe_unit_name(token: Token) -> UnitName:
    """The unit by which `gtrun doctor` tries out a profile: no task, so no guard and no drop-in takes it for one."""
    return UnitName(f"gtrun-probe-{token}.service")


def identifier(unit: UnitName, token: Token) -> str:
    """The syslog identifier of one run.

    It travels with the output stream, so it is never lost, whereas journald attributes a line to its unit
    only while the process still exists (systemd-journald.service(8), _SYSTEMD_USER_UNIT). With the token in
    it, two runs of one issue are told apart without the clock.
    """
    return f"{unit.removesuffix('.service')}.{token[:8]}"


def is_plain_argument(text: str) -> bool:
    """Whether a daemon-reload, which parses the unit's file anew, leaves this argument as it is."""
    return re.fullmatch(r"[A-Za-z0-9_./=-]+", text, re.ASCII) is not None


def encode_path(path: str) -> str:
    """A path as a plain argument: each other byte becomes `=XX`. `decode_path` reverses it."""
    return "".join(
        chr(byte) if is_plain_argument(chr(byte)) and byte != ord("=") else f"={byte:02X}"
        for byte in path.encode("utf-8", "surrogateescape")
    )


def decode_path(text: str) -> str:
    """The path that `encode_path` wrote."""
    raw = re.sub(rb"=([0-9A-F]{2})", lambda match: bytes.fromhex(match[1].decode()), text.encode())
    return raw.decode("utf-8", "surrogateescape")
