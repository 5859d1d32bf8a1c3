"""The part of the fleet's benchmark that runs in the box, as root. stdin: a `Plan`; stdout: `Figures`, both JSON."""

from __future__ import annotations

import os
import pwd
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from gtrun.account import own
from gtrun.board.local import LocalBoard
from gtrun.config import Fleet, load
from gtrun.names import IssueKey, unit_names
from gtrun.reach import Worker
from gtrun.reach import operations as at_agent
from gtrun.state.ledger import Attempt, Ledger
from gtrun.survey import enlisted
from gtrun.systemd.bus import Bus

_SECONDS = 60.0


class Plan(msgspec.Struct):
    """What to measure. `floor` is the source of the shortest start there is; `at_once` people type `each`."""

    config: dict[int, str]
    floor: str
    rounds: int
    at_once: int
    each: int
    units: list[int]
    probes: int


class Figures(msgspec.Struct):
    """What was measured, in seconds. `probe_units` and `probe_agents` are medians by that number."""

    floor: list[float]
    dispatch: list[float]
    held: list[float]
    burst_seconds: float
    burst_held: list[float]
    burst_waited: list[float]
    lost: int
    doubled: int
    opened: int
    probe_agents: dict[int, float]
    probe_units: dict[int, float]


class CannotMeasure(Exception):
    """A command did not do what it is timed for."""


def measure(plan: Plan) -> Figures:
    """Cold starts in turn, the burst, then the probe against more agents and more units."""
    usual = Path(plan.config[4])
    fleet = load({}, usual)
    agents = list(fleet.agents)
    floor, dispatch = [], []
    issues = _issues(fleet, plan.rounds)
    for number, issue in enumerate(issues):
        floor.append(_timed(["/opt/gtrun/bin/python", "-c", plan.floor.replace("{round}", str(number))], agents[0]))
        dispatch.append(_timed(_dispatch(usual, agents[number % 4], issue)))
        _wait_until_idle()
    held = [one.lock_held or 0.0 for one in _attempts(issues)]

    burst = _issues(fleet, plan.at_once * plan.each)
    seconds = _burst(plan, usual, agents, burst)
    _wait_until_idle()
    attempts = _attempts(burst)
    runs = _runs(fleet)
    probe_agents = {count: _probe(load({}, Path(path)), plan.probes) for count, path in sorted(plan.config.items())}
    probe_units = {}
    for count in plan.units:
        for agent in agents:
            _load(agent, count)
        probe_units[count] = _probe(fleet, plan.probes)
    return Figures(
        floor=floor,
        dispatch=dispatch,
        held=held,
        burst_seconds=seconds,
        burst_held=[one.lock_held or 0.0 for one in attempts],
        burst_waited=[one.lock_waited or 0.0 for one in attempts],
        lost=sum(runs[issue] == 0 for issue in burst),
        doubled=sum(runs[issue] > 1 for issue in burst),
        opened=sum(verdict == "open" for one in attempts for _, verdict, _ in one.verdicts),
        probe_agents=probe_agents,
        probe_units=probe_units,
    )


def _dispatch(config: Path, agent: str, issue: IssueKey) -> list[str]:
    # the plain form of the command, which pays for no option parser
    return ["env", f"GTRUN_CONFIG={config}", "gtrun", "dispatch", agent, issue]


def _issues(fleet: Fleet, count: int) -> list[IssueKey]:
    with LocalBoard.open(fleet.board.path, create=True) as board:
        return [IssueKey(board.add(f"Mend roof {number}", body="It rains in.")) for number in range(count)]


def _attempts(issues: list[IssueKey]) -> list[Attempt]:
    with Ledger(own(os.environ).state) as ledger:
        return [attempt for issue in issues for attempt in ledger.attempts(issue)]


def _timed(argv: list[str], account: str = "root") -> float:
    user = pwd.getpwnam(account)
    environment = os.environ | {"XDG_RUNTIME_DIR": f"/run/user/{user.pw_uid}", "HOME": user.pw_dir}
    began = time.perf_counter()
    done = subprocess.run(
        argv, user=user.pw_uid, group=user.pw_gid, extra_groups=[], cwd="/", env=environment,
        stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_SECONDS,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise CannotMeasure(f"{argv[-3:]} exited with {done.returncode}: {done.stderr.decode(errors='replace')}")
    return seconds


def _burst(plan: Plan, config: Path, agents: list[str], issues: list[IssueKey]) -> float:
    """So many people, each of whom types one dispatch after the other."""

    def types(person: int) -> None:
        for number in range(plan.each):
            issue = issues[person * plan.each + number]
            _timed(_dispatch(config, agents[(person + number) % 4], issue))

    began = time.perf_counter()
    with ThreadPoolExecutor(plan.at_once) as people:
        list(people.map(types, range(plan.at_once)))
    return time.perf_counter() - began


def _wait_until_idle() -> None:
    deadline, pause = time.monotonic() + _SECONDS, threading.Event()
    while left := list(Path("/run/user").glob("*/systemd/transient/[tb]*-*.service")):
        if time.monotonic() > deadline:
            raise CannotMeasure(f"{left[0]} is still there after {_SECONDS:g} s")
        pause.wait(0.01)


def _runs(fleet: Fleet) -> Counter[str]:
    """How many run records there are of each issue, with all agents."""
    found: Counter[str] = Counter()
    for agent in fleet.agents.values():
        for path in Path(f"/home/{agent.account}/.local/state/gtrun/runs").rglob("*.jsonl"):
            found[msgspec.json.decode(path.read_bytes().split(b"\n")[0])["run"]["issue"]["key"]] += 1
    return found


def _probe(fleet: Fleet, probes: int) -> float:
    """The median of what the lock is held for before the start: every agent asked over its warm connection."""
    agent = next(iter(fleet.agents.values()))
    patterns = at_agent.Patterns(unit_names(IssueKey("1")))
    seconds = []
    with Worker.start() as worker, enlisted(fleet, own(os.environ), agent, worker) as team:
        team.ask_all(at_agent.list_units, patterns, seconds=_SECONDS)
        for _ in range(probes):
            began = time.perf_counter()
            answers = team.ask_all(at_agent.list_units, patterns, seconds=_SECONDS)
            seconds.append(time.perf_counter() - began)
            if len(answers) != len(fleet.agents):
                raise CannotMeasure(f"not every agent answered: {team.silent}")
    return statistics.median(seconds)


def _load(account: str, count: int) -> None:
    """Have the account's manager load units, up to so many."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            user = pwd.getpwnam(account)
            os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
            os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
            bus = Bus.of(own({"XDG_RUNTIME_DIR": f"/run/user/{user.pw_uid}"}))
            for number in range(len(bus.call("ListUnitsByPatterns", "asas", [], ["load*"])), count):
                bus.call_with_properties("StartTransientUnit", f"load{number}.slice", "fail", [])
            code = 0
        finally:
            os._exit(code)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        raise CannotMeasure(f"{account} could not load {count} units")


def main() -> int:
    """Measure what stdin asks for; returns the exit code."""
    try:
        figures = measure(msgspec.json.decode(sys.stdin.buffer.read(), type=Plan))
    except CannotMeasure as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
