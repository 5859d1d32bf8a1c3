"""The one family of errors that library code raises; the command line turns them into an exit."""

from gtrun.exits import Exit


class GtrunError(Exception):
    """What went wrong, with which thing, and what to do about it.

    `message` is one line without a final stop (a ConfigError has one for each mistake); `hint`, if any, is the
    command or the change that mends it; `code` is the exit code of the command that met it.
    """

    code = Exit.FAILED

    def __init__(self, message: str, *, hint: str = "", code: Exit | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code


class UsageError(GtrunError):
    """What was typed cannot be meant."""

    code = Exit.USAGE


class ConfigError(GtrunError):
    """fleet.toml, or what it points at, is not usable."""

    code = Exit.CONFIG


class Refused(GtrunError):
    """A guard refused; `code` says which one."""


class AgentTaken(Refused):
    """The agent takes nothing by itself now; another one may."""


class LaunchFailed(GtrunError):
    """The manager refused the unit, or what it was given cannot be executed. Nothing is running."""


class NoManager(GtrunError):
    """There is no user manager to talk to."""

    code = Exit.NO_MANAGER


class ManagerSilent(NoManager):
    """A user manager, or the process that talks to it, did not answer within the deadline.

    A request that was under way may still be carried out.
    """


class BoardUnavailable(GtrunError):
    """The board did not answer, and an answer is needed."""

    code = Exit.NO_BOARD


class NoSuchIssue(GtrunError):
    """The board answers, and it has no such issue."""


class StateError(GtrunError):
    """A state file of ours cannot be written or read."""
