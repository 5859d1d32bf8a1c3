"""Asking every agent at once: one silent manager costs its own deadline and nobody else's answer."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Generic, Self, TypeVar

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


class Lookouts:
    """Workers that only look at units, one an agent, kept from one dispatch of a pass to the next.

    To make them anew takes each dispatch 6 ms for each agent of the fleet. A context manager: leaving it ends them all.
    """

    def __init__(self, fleet: Fleet, caller: Account, worker: Worker) -> None:
        """None is there yet; they are forked from a worker that is nobody yet, and stays that."""
        self._fleet = fleet
        self._caller = caller
        self._worker = worker
        self._kept: dict[str, Worker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._kept.values():
            each.hang_up()
        for each in self._kept.values():
            each.close()

    def __contains__(self, agent: str) -> bool:
        return agent in self._kept

    def of(self, agent: str) -> Worker:
        """The one that looks at an agent. Raises NoManager, ConfigError."""
        if agent not in self._kept:
            route = route_of(self._fleet, self._fleet.agents[agent], self._caller)
            self._kept[agent] = self._worker.twin()
            self._kept[agent].act_as(route, units_only=True)
        return self._kept[agent]

    def end(self, agent: str) -> None:
        """End the one that looks at an agent, if there is one; the next is another."""
        if agent in self._kept:
            self._kept.pop(agent).close()


class Team(msgspec.Struct):
    """A worker for the agent that is to run, one for each other agent that answers, and why the rest do not.

    `kept` are those of the others that have been asked by another dispatch, long ago perhaps.
    """

    caller: Account
    agent: str
    route: Route
    target: Worker
    others: dict[str, Worker]
    silent: dict[str, str]
    lookouts: Lookouts
    kept: set[str]

    def ask_all(self, operation: Callable[[Session, A], R], arguments: A, *, seconds: float) -> dict[str, R]:
        """Every answer by agent, the target's first; who does not answer in time is silent from now on.

        Raises what the target raises.
        """
        try:
            return self._ask_all(operation, arguments, seconds)
        except BaseException:
            for name in self.others:
                self.lookouts.end(name)  # what it was asked may not be answered yet, and the next one asks it something
            raise

    def _ask_all(self, operation: Callable[[Session, A], R], arguments: A, seconds: float) -> dict[str, R]:
        self.target.ask(operation, arguments, seconds=seconds)
        for name, worker in list(self.others.items()):
            try:
                worker.ask(operation, arguments, seconds=seconds)
            except GtrunError as error:
                self._lose(name, error)
        began = time.monotonic()
        answers = {self.agent: self.target.answer(operation, seconds=seconds + self.target.patience)}
        for name, worker in list(self.others.items()):
            try:
                answers[name] = worker.answer(operation, seconds=_left(began, seconds + worker.patience))
            except GtrunError as error:
                self._lose(name, error)
        for name in self.kept & self.silent.keys():
            # what it was connected to is gone, as when that manager was started anew since: that is no silence
            try:
                self.others[name] = self.lookouts.of(name)
                answers[name] = self.others[name].call(operation, arguments, seconds=_left(began, seconds))
                del self.silent[name]
            except GtrunError as error:
                self._lose(name, error)
        self.kept.clear()
        return answers

    def _lose(self, name: str, error: GtrunError) -> None:
        self.silent[name] = error.message
        self.others.pop(name, None)
        self.lookouts.end(name)


@contextmanager
def enlisted(
    fleet: Fleet, caller: Account, agent: Agent, worker: Worker, lookouts: Lookouts | None = None
) -> Iterator[Team]:
    """The team for one dispatch; `worker` is nobody yet and becomes the target's. Raises NoManager, ConfigError.

    `lookouts` are those of the pass that this dispatch belongs to.
    """
    route = route_of(fleet, agent, caller)
    others: dict[str, Worker] = {}
    silent: dict[str, str] = {}
    kept: set[str] = set()
    with ExitStack() as stack:
        ours = lookouts or stack.enter_context(Lookouts(fleet, caller, worker))
        for other in fleet.agents:
            if other == agent.name:
                continue
            if other in ours:
                kept.add(other)
            try:
                others[other] = ours.of(other)
            except GtrunError as error:
                silent[other] = error.message
                ours.end(other)
        worker.act_as(route)
        yield Team(caller, agent.name, route, worker, others, silent, ours, kept)
