"""The exit codes: a public interface (the table in the README)."""

from enum import IntEnum


class Exit(IntEnum):
    """What a command's exit code says; 69, 75 and 78 are those of sysexits(3)."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    BUG = 3
    QUOTA = 9
    NO_CAPACITY = 10
    DUPLICATE = 11
    NOTHING_READY = 12
    NOT_WORK = 13
    CLAIMED = 14
    NO_MANAGER = 69
    NO_BOARD = 75
    CONFIG = 78
    INTERRUPTED = 130
