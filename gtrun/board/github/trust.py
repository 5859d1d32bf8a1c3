"""Whose comments count: everybody on the internet can write one."""

from collections.abc import Callable, Iterable

ASSOCIATIONS = frozenset(
    {"OWNER", "MEMBER", "COLLABORATOR", "CONTRIBUTOR", "FIRST_TIMER", "FIRST_TIME_CONTRIBUTOR", "MANNEQUIN", "NONE"}
)
"""The words of author_association: https://docs.github.com/graphql/reference/enums#commentauthorassociation."""


class Trust:
    """The authors who are believed: those that the configuration names, and the token's own account.

    `myself` is asked only if the configuration does not name the author: then our own markers are recognised by it.
    """

    def __init__(self, trusted: Iterable[str], myself: Callable[[], str | None]) -> None:
        words = frozenset(trusted)
        self._associations = words & ASSOCIATIONS
        self._logins = {word.casefold() for word in words - ASSOCIATIONS}
        self._myself = myself

    def believes(self, login: str, association: str) -> bool:
        """Whether what this author writes counts; an account that is gone has no login."""
        if association in self._associations:
            return True
        if not login:
            return False
        return login.casefold() in self._logins or login.casefold() == (self._myself() or "").casefold()
