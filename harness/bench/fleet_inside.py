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
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
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

PYTHON = "/opt/gtrun/bin/python"
_SECONDS = 60.0


class Plan(msgspec.Struct):
    """What to measure. `floor` is the source of the shortest start there is; `at_once` people type `each`.

    `config` are fleets of so many agents in accounts here; `far` is the one of four with two more behind ssh; `units`
    are fleets of four whose managers are to have so many units loaded.
    """

    config: dict[int, str]
    far: str
    floor: str
    rounds: int
    at_once: int
    each: int
    units: dict[int, str]
    probes: int


class Figures(msgspec.Struct):
    """What was measured, in seconds. `probe_units` and `probe_agents` are medians by that number."""

    floor: list[float]
    dispatch: list[float]
    held: list[float]
    far_dispatch: list[float]
    far_held: list[float]
    burst: Burst
    far_burst: Burst
    probe_agents: dict[int, float]
    probe_units: dict[int, float]


class Burst(msgspec.Struct):
    """So many dispatches at once: how long all took, the lock of each, and how many went wrong."""

    seconds: float
    held: list[float]
    waited: list[float]
    lost: int
    doubled: int
    opened: int


class CannotMeasure(Exception):
    """A command did not do what it is timed for."""


def measure(plan: Plan) -> Figures:
    """Cold starts in turn, here and with agents behind ssh, then each at once; the probe against agents and units."""
    usual, far = Path(plan.config[4]), Path(plan.far)
    fleet, far_fleet = load({}, usual), load({}, far)
    agents, far_agents = list(fleet.agents), list(far_fleet.agents)
    floor, dispatch, far_dispatch = [], [], []
    issues, far_issues = _issues(fleet, plan.rounds), _issues(fleet, plan.rounds)
    for number in range(plan.rounds):
        floor.append(_timed([PYTHON, "-c", plan.floor.replace("{round}", str(number))], agents[0]))
        dispatch.append(_timed(_dispatch(usual, agents[number % 4], issues[number])))
        _wait_until_idle()
        far_dispatch.append(_timed(_dispatch(far, far_agents[number % 6], far_issues[number])))
        _wait_until_idle()
    burst = _burst(plan, usual, fleet)
    far_burst = _burst(plan, far, far_fleet)
    probe_agents = _probes(plan.config, plan.probes)
    for count, path in plan.units.items():
        for agent in load({}, Path(path)).agents:
            _load(agent, count)
    probe_units = _probes(plan.units, plan.probes)
    return Figures(
        floor=floor,
        dispatch=dispatch,
        held=[one.lock_held or 0.0 for one in _attempts(issues)],
        far_dispatch=far_dispatch,
        far_held=[one.lock_held or 0.0 for one in _attempts(far_issues)],
        burst=burst,
        far_burst=far_burst,
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
        start_new_session=True,  # everybody at a terminal of their own: among sessions the kernel shares each CPU out
    )  # fmt: skip
    seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise CannotMeasure(f"{argv[-3:]} exited with {done.returncode}: {done.stderr.decode(errors='replace')}")
    return seconds


def _burst(plan: Plan, config: Path, fleet: Fleet) -> Burst:
    """So many people, each of whom types one dispatch after the other."""
    agents, issues = list(fleet.agents), _issues(fleet, plan.at_once * plan.each)

    def types(person: int) -> None:
        for number in range(plan.each):
            issue = issues[person * plan.each + number]
            _timed(_dispatch(config, agents[(person + number) % len(agents)], issue))

    began = time.perf_counter()
    with ThreadPoolExecutor(plan.at_once) as people:
        list(people.map(types, range(plan.at_once)))
    seconds = time.perf_counter() - began
    _wait_until_idle()
    attempts, runs = _attempts(issues), _runs(fleet)
    return Burst(
        seconds=seconds,
        held=[one.lock_held or 0.0 for one in attempts],
        waited=[one.lock_waited or 0.0 for one in attempts],
        lost=sum(runs[issue] == 0 for issue in issues),
        doubled=sum(runs[issue] > 1 for issue in issues),
        opened=sum(verdict == "open" for one in attempts for _, verdict, _ in one.verdicts),
    )


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


def _probes(fleets: Mapping[int, str], probes: int) -> dict[int, float]:
    """Each fleet's median of what the lock is held for before the start: all agents asked over warm connections.

    The fleets are asked in turn, so that what else the box does is the same for all.
    """
    patterns = at_agent.Patterns(unit_names(IssueKey("1")))
    seconds: dict[int, list[float]] = {count: [] for count in fleets}
    with ExitStack() as stack:
        teams = {}
        for count, path in fleets.items():
            fleet = load({}, Path(path))
            worker = stack.enter_context(Worker.start())
            agent = next(iter(fleet.agents.values()))
            teams[count] = stack.enter_context(enlisted(fleet, own(os.environ), agent, worker)), len(fleet.agents)
        for number in range(1 + probes):
            for count, (team, agents) in teams.items():
                began = time.perf_counter()
                answers = team.ask_all(at_agent.list_units, patterns, seconds=_SECONDS)
                if number > 0:  # the first one connects
                    seconds[count].append(time.perf_counter() - began)
                if len(answers) != agents:
                    raise CannotMeasure(f"not every agent answered: {team.silent}")
    return {count: statistics.median(each) for count, each in seconds.items()}


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
