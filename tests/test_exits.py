"""The exit codes are a public interface: each number stays what it is."""

from gtrun import errors
from gtrun.exits import Exit


def test_the_table():
    assert {code.name: int(code) for code in Exit} == {
        "DONE": 0, "FAILED": 1, "USAGE": 2, "BUG": 3, "QUOTA": 9, "NO_CAPACITY": 10, "DUPLICATE": 11,
        "NOTHING_READY": 12, "NOT_WORK": 13, "CLAIMED": 14, "NO_MANAGER": 69, "NO_BOARD": 75, "CONFIG": 78,
        "INTERRUPTED": 130,
    }  # fmt: skip


def test_every_error_has_its_code():
    codes = {
        kind.__name__: int(kind("x").code)
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.GtrunError)
    }
    assert codes == {
        "GtrunError": 1, "UsageError": 2, "ConfigError": 78, "Refused": 1, "LaunchFailed": 1, "NoManager": 69,
        "ManagerSilent": 69, "BoardUnavailable": 75, "StateError": 1, "NoSuchIssue": 1, "AgentTaken": 1,
    }  # fmt: skip


def test_one_error_can_say_its_own_code():
    error = errors.Refused("no", hint="why", code=Exit.DUPLICATE)
    assert (error.message, error.hint, error.code, str(error)) == ("no", "why", 11, "no")
    assert errors.Refused.code == 1
