"""The part of the benchmark that runs in the box, as the account that types the commands.

The figures are those of whole processes as their parent sees them, so the parent has to be in the box: nothing of
the way in is measured. stdin: a JSON document, `Plan`. stdout: one, `Figures`. Progress goes to stderr.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from gtrun.board.local import LocalBoard
from gtrun.cli.invocation import Invocation
from gtrun.names import UnitName
from gtrun.state.record import open_records
from gtrun.systemd import units
from gtrun.systemd.bus import SERVICE, Bus

LEFT = ["task-*.service", "bench-*.service", "proc-*.service", "run-*.service"]
"""The units that the commands leave running."""

_ERRORS = "/tmp/bench.stderr"  # noqa: S108 - of this box alone
_SECONDS = 20.0


class Command(msgspec.Struct):
    """A command to time. `{issue}` and `{round}` stand for an issue and a number of each round's own."""

    name: str
    argv: list[str]


class Plan(msgspec.Struct):
    """What to measure, how often. `agent` is the program that says when it begins (agent.c)."""

    commands: list[Command]
    warm_ups: int
    rounds: int
    agent: str


class Timing(msgspec.Struct):
    """One round of one command: the wall clock, and the CPU of the process and of the children that it awaited."""

    seconds: float
    cpu: float


class Life(msgspec.Struct):
    """One round of a run, in seconds. `beside` are the processes in the unit's cgroup other than the agent program."""

    dispatch_to_agent: float
    unit_to_agent: float
    end_to_gone: float
    beside: list[str]


class Figures(msgspec.Struct):
    """What was measured, round by round."""

    timings: dict[str, list[Timing]]
    lives: list[Life]


class CannotMeasure(Exception):
    """A command did not do what it is timed for."""


def measure(plan: Plan) -> Figures:
    """Every command in turn, and that again for each round; then the lives of runs."""
    timings: dict[str, list[Timing]] = {command.name: [] for command in plan.commands}
    lives = []
    every = range(plan.warm_ups + plan.rounds)
    for number, issue in zip(every, _issues(len(every)), strict=True):
        _progress("commands", number, plan)
        for command in plan.commands:
            argv = [word.replace("{issue}", issue).replace("{round}", str(number)) for word in command.argv]
            timing = _timed(argv, os.environ)
            _wait_until_idle()
            if number >= plan.warm_ups:
                timings[command.name].append(timing)
    for number, issue in zip(every, _issues(len(every)), strict=True):
        _progress("runs", number, plan)
        life = _life(plan.agent, issue)
        if number >= plan.warm_ups:
            lives.append(life)
    return Figures(timings, lives)


def _progress(what: str, number: int, plan: Plan) -> None:
    if not sys.stderr.isatty():
        return
    print(f"bench: {what}, round {number + 1} of {plan.warm_ups + plan.rounds}\r", end="", file=sys.stderr, flush=True)


def _issues(count: int) -> list[str]:
    """Fresh issues on the account's board."""
    path = Invocation.of(os.environ).fleet().board.path
    with LocalBoard.open(path, create=True) as board:
        return [board.add(f"Mend roof {number}", body="It rains in.") for number in range(count)]


def _timed(argv: Sequence[str], environment: Mapping[str, str]) -> Timing:
    """Run a command to its end, by itself. Raises CannotMeasure unless it exits with 0."""
    program = shutil.which(argv[0])
    if program is None:
        raise CannotMeasure(f"there is no {argv[0]} in this box")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, _ERRORS, flags, 0o600),
    ]
    began = time.perf_counter()
    child = os.posix_spawn(program, list(argv), environment, file_actions=files)
    _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - began
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        raise CannotMeasure(f"{list(argv)} exited with {code}: {Path(_ERRORS).read_text(errors='replace')}")
    return Timing(seconds, usage.ru_utime + usage.ru_stime)


def _wait_until_idle() -> None:
    bus = Bus.of(Invocation.of(os.environ).caller())
    deadline = time.monotonic() + _SECONDS
    for unit in units.list_units(bus, LEFT):
        if not units.wait_until_gone(bus, UnitName(unit.name), deadline=deadline):
            raise CannotMeasure(f"{unit.name} is still {unit.said} after {_SECONDS:g} s")
    bus.close()  # also ends the subscription, so that the manager has nobody to tell while a command is timed


def _life(agent: str, issue: str) -> Life:
    """Dispatch an issue to the agent program and follow its unit until it is gone."""
    told, let_go = (Path.home() / name for name in ("told", "let-go"))
    for fifo in (told, let_go):
        fifo.unlink(missing_ok=True)
        os.mkfifo(fifo)
    config = Path.home() / "agent.toml"
    config.write_text(f'[run]\ncommand = ["{agent}", "{told}", "{let_go}"]\n')
    config.chmod(0o600)
    typed = time.monotonic()
    _timed(["gtrun", "dispatch", "me", issue], os.environ | {"GTRUN_CONFIG": str(config)})
    first = int(told.read_text()) / 1e9

    caller = Invocation.of(os.environ).caller()
    bus = Bus.of(caller)
    name = f"task-{issue}.service"
    path = str(bus.call("GetUnit", "s", name))
    started = int(bus.get(path, SERVICE, "ExecMainStartTimestampMonotonic", "t")) / 1e6
    main = int(bus.get(path, SERVICE, "MainPID", "u"))
    beside = _beside(str(bus.get(path, SERVICE, "ControlGroup", "s")), main)
    bus.call("Subscribe")
    bus.listen("UnitRemoved")
    process = os.pidfd_open(main)
    let_go.write_text("")
    if not select.select([process], [], [], _SECONDS)[0]:
        raise CannotMeasure(f"the agent program of {name} did not end")
    os.close(process)
    ended, deadline = 0, time.monotonic() + _SECONDS
    while not ended and time.monotonic() < deadline:  # the manager learns of it by SIGCHLD, some microseconds later
        ended = int(bus.get(path, SERVICE, "ExecMainExitTimestampMonotonic", "t"))
    next(body for body in bus.signals("UnitRemoved", deadline=deadline) if body[0] == name)
    gone = time.monotonic()
    bus.close()
    if not ended:
        raise CannotMeasure(f"the manager did not say when {name} ended")
    if open_records(caller.state):
        raise CannotMeasure(f"{name} is gone and its record is not closed")
    return Life(first - typed, first - started, gone - ended / 1e6, beside)


def _beside(cgroup: str, main: int) -> list[str]:
    """The command lines of the processes in a cgroup and below it, but for the main one."""
    roots = [root for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified") if Path(root + cgroup).is_dir()]
    lists = [file for root in roots for file in Path(root + cgroup).rglob("cgroup.procs")]
    pids = [int(line) for file in lists for line in file.read_text().split()]
    if main not in pids:
        raise CannotMeasure(f"process {main} is not in its unit's cgroup {cgroup}: {pids}")
    return [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in pids if pid != main]


def main() -> int:
    """Measure what stdin asks for; returns the exit code."""
    try:
        figures = measure(msgspec.json.decode(sys.stdin.buffer.read(), type=Plan))
    except CannotMeasure as error:
        print(f"\nbench: {error}", file=sys.stderr)
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
