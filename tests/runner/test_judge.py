"""The truth about a run, from what systemd says about its main process on 252, 257 and 262."""

import itertools

import pytest
from msgspec.structs import replace

from gtrun.model import Result
from gtrun.runner.judge import Evidence, Judgement, judge
from gtrun.state.facts import EndedFor

STOP, NO_STOP, UNKNOWN = True, False, None


def evidence(service: str, code: str, status: str, stop: bool | None, **more: object) -> Evidence:  # noqa: FBT001
    return Evidence(service_result=service, exit_code=code, exit_status=status, stop_came_first=stop, **more)


# $SERVICE_RESULT, $EXIT_CODE, $EXIT_STATUS, whether a stop came first; then the result and its reason
TABLE = [
    # it ended by itself
    ("success", "exited", "0", NO_STOP, Result.SUCCESS, ""),
    ("success", "exited", "0", UNKNOWN, Result.SUCCESS, ""),
    ("exit-code", "exited", "3", NO_STOP, Result.FAILED, ""),
    ("exit-code", "exited", "3", UNKNOWN, Result.FAILED, ""),
    ("exit-code", "exited", "203", NO_STOP, Result.FAILED, ""),
    ("signal", "killed", "SEGV", NO_STOP, Result.FAILED, ""),
    ("core-dump", "dumped", "SEGV", NO_STOP, Result.FAILED, ""),
    ("core-dump", "dumped", "ABRT", UNKNOWN, Result.FAILED, ""),
    ("success", "killed", "PIPE", NO_STOP, Result.FAILED, ""),
    # it ended before it had a main process: while the runner was at work outside of the sandbox
    ("success", "", "", STOP, Result.STOPPED, "by systemd"),
    ("signal", "", "", STOP, Result.STOPPED, "by systemd"),
    ("signal", "", "", NO_STOP, Result.KILLED, "from outside"),
    ("signal", "", "", UNKNOWN, Result.KILLED, "from outside"),
    ("timeout", "", "", NO_STOP, Result.TIMEOUT, "time limit reached"),
    ("oom-kill", "", "", NO_STOP, Result.OOM_KILL, ""),
    # only a left-over child ignored the stop that follows an end
    ("timeout", "exited", "0", NO_STOP, Result.SUCCESS, ""),
    ("timeout", "exited", "3", NO_STOP, Result.FAILED, ""),
    ("timeout", "exited", "0", UNKNOWN, Result.SUCCESS, ""),
    # from outside; SIGTERM and SIGHUP from anyone are a success to systemd
    ("signal", "killed", "KILL", NO_STOP, Result.KILLED, "from outside"),
    ("signal", "killed", "KILL", UNKNOWN, Result.KILLED, "from outside"),
    ("success", "killed", "TERM", NO_STOP, Result.KILLED, "from outside"),
    ("success", "killed", "HUP", NO_STOP, Result.KILLED, "from outside"),
    ("success", "killed", "INT", NO_STOP, Result.KILLED, "from outside"),
    # stopped, whatever the program made of it
    ("success", "killed", "TERM", STOP, Result.STOPPED, "by systemd"),
    ("success", "exited", "0", STOP, Result.STOPPED, "by systemd"),
    ("exit-code", "exited", "3", STOP, Result.STOPPED, "by systemd"),
    ("exit-code", "exited", "143", STOP, Result.STOPPED, "by systemd"),
    ("timeout", "killed", "KILL", STOP, Result.STOPPED, "by systemd"),
    ("core-dump", "dumped", "SEGV", STOP, Result.STOPPED, "by systemd"),
    # nobody can be asked: a SIGTERM is then the manager's own
    ("success", "killed", "TERM", UNKNOWN, Result.STOPPED, "by systemd"),
    ("oom-kill", "killed", "KILL", NO_STOP, Result.OOM_KILL, ""),
    ("oom-kill", "exited", "0", NO_STOP, Result.OOM_KILL, ""),
]


@pytest.mark.parametrize(("service", "code", "status", "stop", "result", "reason"), TABLE)
def test_table(service, code, status, stop, result, reason):
    assert judge(evidence(service, code, status, stop)) == Judgement(result, reason)


@pytest.mark.parametrize("stop", [STOP, UNKNOWN])
@pytest.mark.parametrize(("code", "status"), [("killed", "TERM"), ("exited", "0"), ("exited", "3"), ("killed", "KILL")])
def test_time_limit(code, status, stop):
    seen = evidence("timeout", code, status, stop, limit_reached=True)
    assert judge(seen) == Judgement(Result.TIMEOUT, "time limit reached")


@pytest.mark.parametrize("status", ["TERM", "KILL"])
def test_a_stop_that_lasts_is_no_time_limit(status):
    seen = evidence("timeout", "killed", status, STOP, stop_asked_by="gtrun stop (alice)", limit_reached=False)
    assert judge(seen) == Judgement(Result.STOPPED, "by gtrun stop (alice)")


def test_end_at_the_time_limit_with_a_left_over_child_is_an_end():
    assert judge(evidence("timeout", "exited", "0", NO_STOP, limit_reached=True)).result is Result.SUCCESS


@pytest.mark.parametrize(("code", "status"), [("killed", "TERM"), ("exited", "0"), ("exited", "3")])
@pytest.mark.parametrize("stop", [STOP, UNKNOWN])
def test_who_asked_is_named(code, status, stop):
    seen = evidence("success", code, status, stop, stop_asked_by="gtrun stop (bob)")
    assert judge(seen) == Judgement(Result.STOPPED, "by gtrun stop (bob)")


@pytest.mark.parametrize(("code", "status"), [("killed", "TERM"), ("killed", "KILL"), ("exited", "0"), ("exited", "7")])
def test_idle_is_what_was_stopped_for_that_and_by_nobody_else(code, status):
    seen = Evidence("success", code, status, stop_came_first=True, idle_for=1260.0)
    assert judge(seen) == Judgement(Result.IDLE, "no output and no CPU for 21m 0s")
    assert judge(replace(seen, stop_asked_by="ops")) == Judgement(Result.STOPPED, "by ops")
    assert judge(replace(seen, stop_came_first=None)).result is Result.IDLE
    ended_first = judge(replace(seen, stop_came_first=False)).result
    assert ended_first not in {Result.IDLE, Result.STOPPED}


def test_asked_too_late_is_an_end():
    assert judge(evidence("success", "exited", "0", NO_STOP, stop_asked_by="gtrun stop (bob)")).result is Result.SUCCESS


@pytest.mark.parametrize("status", ["0", "134"])
def test_why_the_host_of_a_plugin_ended_it_goes_before_its_exit_code(status):
    why = EndedFor("trap: unreachable", Result.FAILED)
    seen = evidence("exit-code", "exited", status, NO_STOP, ended_for=why)
    assert judge(seen) == Judgement(Result.FAILED, "trap: unreachable")
    assert judge(replace(seen, stop_came_first=True)).result is Result.STOPPED
    assert judge(replace(seen, exit_code="killed", exit_status="KILL")).result is Result.KILLED


def test_disposed():
    assert judge(evidence("success", "exited", "0", NO_STOP, disposed="closed")) == Judgement(Result.DISPOSED, "closed")
    # killed before it could exit: whatever it meant to do, this is what happened
    assert judge(evidence("signal", "killed", "KILL", NO_STOP, disposed="closed")).result is Result.KILLED


def test_gave_up():
    seen = evidence("exit-code", "exited", "127", NO_STOP, gave_up="the program 'x' is not there")
    assert judge(seen) == Judgement(Result.FAILED, "the program 'x' is not there")


@pytest.mark.parametrize(("status", "said"), [("203", "203/EXEC"), ("200", "200/CHDIR"), ("1", "1")])
def test_not_executed(status, said):
    seen = evidence("exit-code", "exited", status, NO_STOP, was_executed=False)
    assert judge(seen) == Judgement(Result.FAILED, f"not executed: exit-code, status {said}")


def test_manager_could_not_even_fork():
    seen = evidence("resources", "", "", NO_STOP, was_executed=False)
    assert judge(seen) == Judgement(Result.FAILED, "not executed: resources, status none")


@pytest.mark.parametrize(("status", "stop", "result"), [("KILL", NO_STOP, "killed"), ("TERM", STOP, "stopped")])
def test_ended_before_its_first_fact(status, stop, result):
    assert judge(evidence("signal", "killed", status, stop, was_executed=False)).result == result


SERVICE_RESULTS = [
    "success", "protocol", "timeout", "exit-code", "signal", "core-dump", "watchdog", "exec-condition", "oom-kill",
    "start-limit-hit", "resources", "",
]  # fmt: skip
ENDINGS = [("exited", "0"), ("exited", "1"), ("exited", "255"), ("killed", "TERM"), ("killed", "KILL"),
           ("dumped", "SEGV"), ("", "")]  # fmt: skip


@pytest.mark.parametrize("service", SERVICE_RESULTS)
def test_success_needs_exit_0_and_nobody_who_stopped_it(service):
    flags = itertools.product([True, False], repeat=2)
    for (code, status), stop, (limit, executed) in itertools.product(ENDINGS, [STOP, NO_STOP, UNKNOWN], list(flags)):
        for asked in (None, "gtrun stop (alice)"):
            seen = evidence(
                service, code, status, stop, stop_asked_by=asked, limit_reached=limit, was_executed=executed
            )
            if judge(seen).result is Result.SUCCESS:
                assert (code, status) == ("exited", "0"), seen
                assert stop is not STOP, seen
                assert executed, seen
                assert service != "oom-kill", seen
