"""Fleets, backlogs and worlds for the tests of the planner, in few words."""

from gtrun.config import Agent, BoardConfig, ClaimConfig, Fleet, Rig, RunProfile, Schedule
from gtrun.counters import Book
from gtrun.model import Issue, Standing
from gtrun.names import IssueKey
from gtrun.planner import Backlog, Seen, Work, World

NOW = 1_800_000_000.0
PROFILE = RunProfile(command=("true",))


def agent(name, rig="box", **more):
    return Agent(name=name, rig=rig, **{"run": PROFILE, **more})


def fleet(*agents, rigs=(), ready_label=None, **schedule):
    named = {rig.name: rig for rig in rigs} or {name: Rig(name=name) for name in dict.fromkeys(a.rig for a in agents)}
    return Fleet(
        source=None, board=BoardConfig(path="/b", ready_label=ready_label), claim=ClaimConfig(lock="/l"), rigs=named,
        agents={one.name: one for one in agents}, schedule=Schedule(**{"settle": 5.0, **schedule}),
    )  # fmt: skip


def world(of, *, seen=(), book=None, now=NOW, sweep="this"):
    """Every agent answers and runs nothing, but for those in `seen`."""
    everybody = dict.fromkeys(of.agents, Seen()) | dict(seen)
    return World(fleet=of, seen=everybody, book=book or Book(), now=now, sweep=sweep)


def issue(number, *, priority=2, age=0.0, labels=(), blocked_by=(), **more):
    return Issue(
        key=IssueKey(str(number)), title=f"issue {number}", priority=priority, labels=tuple(labels),
        created_at=NOW - 1000.0 - age, blocked_by=tuple(IssueKey(str(one)) for one in blocked_by), **more,
    )  # fmt: skip


def work(number, standing=Standing.READY, **more):
    return Work(issue(number, **more), standing)


def backlog(*works, live=None, silent=()):
    return Backlog(works=works, live=live or {}, silent=frozenset(silent))


def starts(plan):
    return [(one.key, agent) for one, agent in plan.starts]
