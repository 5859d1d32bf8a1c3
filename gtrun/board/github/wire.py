"""What GitHub answers, as far as it is read: https://docs.github.com/rest. Whatever else there is, is ignored."""

from datetime import datetime
from typing import Any

import msgspec


class User(msgspec.Struct, frozen=True):
    """An account; a deleted one is null in its place."""

    login: str


class Label(msgspec.Struct, frozen=True):
    """A label of an issue."""

    name: str | None = None


class Dependencies(msgspec.Struct, frozen=True):
    """How many issues block one; `blocked_by` counts those that are open."""

    blocked_by: int = 0
    total_blocked_by: int = 0


class Repository(msgspec.Struct, frozen=True):
    """A repository."""

    full_name: str
    default_branch: str | None = None


class Issue(msgspec.Struct, frozen=True):
    """An issue, or a pull request as an issue: then `pull_request` is there."""

    number: int
    title: str
    state: str
    created_at: datetime
    updated_at: datetime
    html_url: str
    body: str | None = None
    labels: list[Label | str] = []
    comments: int = 0
    user: User | None = None
    author_association: str = "NONE"
    repository_url: str = ""
    repository: Repository | None = None
    pull_request: dict[str, Any] | None = None
    issue_dependencies_summary: Dependencies | None = None


class Comment(msgspec.Struct, frozen=True):
    """A comment on an issue or a pull request."""

    id: int
    created_at: datetime
    updated_at: datetime
    body: str | None = None
    user: User | None = None
    author_association: str = "NONE"
    issue_url: str = ""


class Base(msgspec.Struct, frozen=True):
    """Where a pull request goes."""

    ref: str
    repo: Repository


class Pull(msgspec.Struct, frozen=True):
    """A pull request; `auto_merge` is there while it is armed."""

    number: int
    html_url: str
    state: str
    base: Base
    updated_at: datetime
    body: str | None = None
    draft: bool | None = None
    merged_at: datetime | None = None
    auto_merge: dict[str, Any] | None = None
    user: User | None = None
    author_association: str = "NONE"


class Source(msgspec.Struct, frozen=True):
    """What refers to an issue."""

    issue: Issue | None = None


class Event(msgspec.Struct, frozen=True):
    """Something that happened to an issue. The timeline has kinds without a time."""

    event: str = ""
    created_at: datetime | None = None
    actor: User | None = None
    source: Source | None = None


class Problem(msgspec.Struct, frozen=True):
    """What GitHub says when it refuses."""

    message: str = ""
