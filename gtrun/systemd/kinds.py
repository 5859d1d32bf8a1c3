"""Every kind of entry that gtrun writes to the journal: its MESSAGE_ID, and how urgent it is.

An ID is a promise (systemd.journal-fields(7)): programs look for it, and gtrun.catalog explains it in `journalctl -x`.
So a kind keeps its ID for good, and a new one gets a new one (`journalctl --new-id128`).
"""

from enum import Enum

_WARNING, _NOTICE, _INFO = 4, 5, 6  # syslog(3)


class Kind(Enum):
    """A kind of entry."""

    DISPATCH_ATTEMPT = ("28ec31bdcb19445aa0df791fa61a653a", _INFO)
    DISPATCH_OK = ("67d2ccbf30af45f0956af767b6691ef2", _INFO)
    DISPATCH_FAIL = ("fadc663d3cf94eeeb5f89c356dc5e52f", _WARNING)
    GUARD_OPEN = ("63fd4f71a9884634bb2f917b762b27c4", _WARNING)
    GUARD_REFUSED = ("865fe57a6a154247aa1ab7f2eb71687b", _NOTICE)
    NOT_UPDATED = ("ac43f0f8553845ae98a9fb9b6049ef3c", _WARNING)
    IDLE_NOT_IN_FORCE = ("8cd6c39838054eebb11b26ccb6395c03", _WARNING)
    IDLE_NOT_REMEMBERED = ("9fae49869b894acba3b1c373055bb503", _WARNING)
    IDLE_NOT_ENDED = ("97a7403b342c42c7a5f3577c30b72778", _WARNING)
    RUN_ENDED = ("8ad3719086e94cf28f9b592b1d6980ca", _NOTICE)
    RUN_LOST = ("787ba310f7b544d0a6f41490cb73bb4e", _WARNING)
    AGENT_DARK = ("ca8cfe86ade44fccb664fc16f7d76c89", _WARNING)
    SCHEDULER_OPEN = ("7775b65853ac4dac934a17443533f5c7", _NOTICE)
    SLOT_OPEN = ("74b3e3ed603e4a55ad596f00429b4f01", _NOTICE)
    SLOT_BLOCKED = ("1e663179eac94aabbb33b74ff51e4505", _WARNING)
    NOTIFY_FAILED = ("37d8d00bd3cf491bab538699d46a56ca", _WARNING)

    @property
    def message_id(self) -> str:
        """Its MESSAGE_ID, 32 hexadecimal digits."""
        return self.value[0]

    @property
    def priority(self) -> int:
        """Its PRIORITY, as syslog(3) counts."""
        return self.value[1]
