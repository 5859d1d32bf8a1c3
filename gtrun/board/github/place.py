"""How the issues of a GitHub board are named, and where it is asked. Pure."""

from urllib.parse import quote, urlsplit

from gtrun.errors import BoardUnavailable
from gtrun.model import GitHubPlace
from gtrun.names import IssueKey, split_key

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
ORDINARY = 2
"""The priority of an issue that says nothing of it."""


def check(place: GitHubPlace) -> None:
    """Raises BoardUnavailable for an address to which no token may be sent, wherever the place comes from."""
    try:
        where = urlsplit(place.api)
    except ValueError:
        raise BoardUnavailable(f"{place.api} is no address", hint="mend api in [board]") from None
    if where.scheme == "https" or (where.scheme == "http" and where.hostname in LOOPBACK):
        return
    raise BoardUnavailable(f"{place.api} is not https, and a token would cross the network in the clear")


def site(place: GitHubPlace) -> str:
    """Where people see it: the host, with the port if there is one. It is `github.com` for `api.github.com`."""
    return urlsplit(place.web).netloc


def host(place: GitHubPlace) -> str:
    """The host by which gh(1) knows it."""
    return urlsplit(f"//{site(place)}").hostname or ""


def locate(place: GitHubPlace, key: IssueKey) -> tuple[str, int] | None:
    """The repository and the number of an issue; None for a key that no GitHub issue has."""
    found = split_key(key)
    if found is None:
        return None
    repo, number = found
    return (repo if repo and not is_own(place, repo) else place.repo, number)


def key_of(place: GitHubPlace, repo: str, number: int) -> IssueKey:
    """The one name of an issue: its number in this repository, with the repository in front elsewhere."""
    return IssueKey(str(number) if is_own(place, repo) else f"{repo.lower()}#{number}")


def is_own(place: GitHubPlace, repo: str) -> bool:
    """Whether that is the board's own repository."""
    return repo.casefold() == place.repo.casefold()


def path_of(repo: str, *rest: str | int) -> str:
    """The path of something in a repository, each part escaped."""
    return "/".join(["/repos", repo, *map(_escaped, rest)])


def _escaped(part: str | int) -> str:
    # RFC 3986 takes a path's parts . and .. away: `labels/.` would be all labels
    return "%2E" * len(str(part)) if part in {".", ".."} else quote(str(part), safe="")
