"""Asking every agent at once: one silent manager costs its own deadline and nobody else's answer."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Generic, TypeVar

import msgspec

from gtrun.account import Account, named
from gtrun.config import Agent, Fleet
from gtrun.errors import GtrunError, NoManager
from gtrun.reach import Worker
from gtrun.reach.operations import Session
from gtrun.reach.route import Far, Route, this_installation

A = TypeVar("A", bound=msgspec.Struct)
R = TypeVar("R")

_WAIT = 10.0


def route_of(fleet: Fleet, agent: Agent, caller: Account) -> Route:
    """The way to an agent's account. Raises NoManager if the configuration names none, ConfigError."""
    rig = fleet.rigs[agent.rig]
    slots = f"{caller.state}/connecting"
    if rig.host is not None:
        user, _, host = rig.host.rpartition("@")
        return Far(name=agent.account or user or caller.name, host=host, gtrun=(str(rig.gtrun),), slots=slots)
    if agent.account in {None, caller.name}:
        return caller
    account = named(str(agent.account))
    if caller.uid == 0:
        return account
    if agent.reach is None:
        raise NoManager(
            f"agent {agent.name} is another account, {account.name}, and nothing says how to reach it",
            hint=f'run this as {account.name} or as root, or set reach = "ssh" or "sudo" of [agents.{agent.name}]',
        )
    gtrun = (rig.gtrun,) if rig.gtrun else tuple(this_installation())
    return Far(name=account.name, by=agent.reach, gtrun=gtrun, uid=account.uid, slots=slots)


class Answer(msgspec.Struct, Generic[R], kw_only=True, frozen=True):
    """One agent's answer, or why there is none."""

    agent: Agent
    route: Route | None = None
    value: R | None = None
    problem: str = ""
    hint: str = ""


def agents_of(fleet: Fleet, name: str | None) -> list[Agent]:
    """Every agent, or the one that was named. Raises UsageError for an unknown one."""
    return list(fleet.agents.values()) if name is None else [fleet.agent(name)]


def survey(
    agents: Iterable[Agent],
    fleet: Fleet,
    caller: Account,
    operation: Callable[[Session, A], R],
    arguments: A | Callable[[Agent], A],
    *,
    seconds: float = _WAIT,
) -> list[Answer[R]]:
    """Have one operation carried out as each agent's account, at the same time, all within `seconds`.

    `arguments` are the same for all, or made for each.
    """
    answers: list[Answer[R]] = []
    with ExitStack() as stack:
        first = stack.enter_context(Worker.start())
        asked: list[tuple[Agent, Route, Worker]] = []
        for agent in agents:
            try:
                route = route_of(fleet, agent, caller)
                worker = stack.enter_context(first.twin())
                worker.act_as(route)
                theirs = arguments(agent) if callable(arguments) else arguments
                worker.ask(operation, theirs, seconds=seconds)
            except GtrunError as error:
                answers.append(Answer(agent=agent, problem=error.message, hint=error.hint))
                continue
            asked.append((agent, route, worker))
        began = time.monotonic()
        for agent, route, worker in asked:
            try:
                value = worker.answer(operation, seconds=_left(began, seconds + worker.patience))
            except GtrunError as error:
                answers.append(Answer(agent=agent, route=route, problem=error.message, hint=error.hint))
            else:
                answers.append(Answer(agent=agent, route=route, value=value))
        for _, _, worker in asked:
            worker.hang_up()  # those that are stuck then take their moment to part at the same time
    return answers


def _left(began: float, seconds: float) -> float:
    return max(0.01, began + seconds - time.monotonic())


class Team(msgspec.Struct):
    """A worker for the agent that is to run, one for each other agent that answers, and why the rest do not."""

    caller: Account
    agent: str
    route: Route
    target: Worker
    others: dict[str, Worker]
    silent: dict[str, str]

    def ask_all(self, operation: Callable[[Session, A], R], arguments: A, *, seconds: float) -> dict[str, R]:
        """Every answer by agent, the target's first; who does not answer in time is silent from now on.

        Raises what the target raises.
        """
        self.target.ask(operation, arguments, seconds=seconds)
        for name, worker in list(self.others.items()):
            try:
                worker.ask(operation, arguments, seconds=seconds)
            except GtrunError as error:
                self.silent[name] = error.message
                self.others.pop(name).close()
        began = time.monotonic()
        answers = {self.agent: self.target.answer(operation, seconds=seconds + self.target.patience)}
        for name, worker in list(self.others.items()):
            try:
                answers[name] = worker.answer(operation, seconds=_left(began, seconds + worker.patience))
            except GtrunError as error:
                self.silent[name] = error.message
                self.others.pop(name).close()
        return answers


@contextmanager
def enlisted(fleet: Fleet, caller: Account, agent: Agent, worker: Worker) -> Iterator[Team]:
    """The team for one dispatch; `worker` is nobody yet and becomes the target's. Raises NoManager, ConfigError."""
    route = route_of(fleet, agent, caller)
    others: dict[str, Worker] = {}
    silent: dict[str, str] = {}
    with ExitStack() as stack:
        for other in fleet.agents.values():
            if other.name == agent.name:
                continue
            try:
                their = route_of(fleet, other, caller)
                others[other.name] = stack.enter_context(worker.twin())
                others[other.name].act_as(their, units_only=True)
            except GtrunError as error:
                silent[other.name] = error.message
                others.pop(other.name, None)
        worker.act_as(route)
        try:
            yield Team(caller, agent.name, route, worker, others, silent)
        finally:
            for each in others.values():
                each.hang_up()
