"""What texts refer to: the issues that a pull request closes, the issues that block one. Pure."""

import re

_REPO = r"[A-Za-z0-9-]{1,39}/[A-Za-z0-9._-]{1,100}"
_NUMBER = r"[1-9][0-9]{0,17}"
_CLOSES = re.compile(
    rf"(?<![\w-])(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):?[ \t]+"
    rf"(?:({_REPO})?#({_NUMBER})|https?://([A-Za-z0-9.:-]+)/({_REPO})/issues/({_NUMBER}))(?![\w/])",
    re.ASCII | re.IGNORECASE,
)
_BLOCKED = re.compile(rf"^[ \t]*(?:[-*+] )?blocked by:?[ \t]+((?:{_REPO})?#{_NUMBER}.*)$", re.IGNORECASE | re.MULTILINE)
_ONE = re.compile(rf"({_REPO})?#({_NUMBER})", re.ASCII)
# what GitHub does not read keywords in: comments, which templates are full of, and code
# (what is never closed goes on to the end: a search that came back for it would take a hostile text's square of time)
_UNREAD = re.compile(r"<!--.*?(?:-->|\Z)|^ {0,3}(```+|~~~+).*?(?:^ {0,3}\1|\Z)|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_ELSEWHERE_MOST = 20

Reference = tuple[str, int]
"""A repository in lower case, and a number."""


def closes(body: str, *, repo: str, host: str) -> list[Reference]:
    """The issues that a pull request in `repo` with this text closes when it is merged into the default branch.

    https://docs.github.com/issues/tracking-your-work-with-issues/using-issues/linking-a-pull-request-to-an-issue
    """
    found: dict[Reference, None] = {}
    for match in _CLOSES.finditer(_UNREAD.sub(" ", body)):
        if match[3] and match[3].casefold() != host.casefold():
            continue
        found[((match[1] or match[4] or repo).lower(), int(match[2] or match[5]))] = None
    return list(found)


def blockers(body: str, *, repo: str) -> list[Reference]:
    """The issues that lines like `Blocked by #12, owner/repo#3` name; of other repositories the first few.

    Each of those is asked about, and whoever can open an issue could have thousands asked about.
    """
    found: dict[Reference, None] = {}
    elsewhere = 0
    for line in _BLOCKED.finditer(body):
        for part in line[1].rstrip(" \t\r.").split(","):
            match = _ONE.fullmatch(part.strip())
            if match:
                one = ((match[1] or repo).lower(), int(match[2]))
                elsewhere += one[0] != repo.lower() and one not in found
                if one[0] == repo.lower() or elsewhere <= _ELSEWHERE_MOST:
                    found[one] = None
    return list(found)
