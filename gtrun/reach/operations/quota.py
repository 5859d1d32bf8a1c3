"""The account's quota state."""

import msgspec

from gtrun.quota import Quota, QuotaFile
from gtrun.reach.operations.session import Nothing, Session
from gtrun.state import quota_file


def read_quota(session: Session, arguments: Nothing) -> QuotaFile:  # noqa: ARG001
    """The account's quota state. A file that is not there says nothing."""
    return quota_file.read(session.account.state)


class ToSetQuota(msgspec.Struct, frozen=True):
    """What to write; None removes the file."""

    quota: Quota | None


def set_quota(session: Session, arguments: ToSetQuota) -> None:
    """Write or remove the account's quota state. Raises StateError."""
    quota_file.write(session.account.state, arguments.quota)
