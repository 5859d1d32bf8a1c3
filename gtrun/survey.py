"""Asking every agent at once: one silent manager costs its own deadline and nobody else's answer."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Generic, TypeVar

import msgspec

from gtrun.account import Account, named
from gtrun.config import Agent, Fleet
from gtrun.errors import GtrunError
from gtrun.reach import Worker
from gtrun.reach.operations import Session

A = TypeVar("A", bound=msgspec.Struct)
R = TypeVar("R")

_WAIT = 10.0


def account_of(fleet: Fleet, agent: Agent, caller: Account) -> Account:
    """The account that an agent is. Raises GtrunError if it is on another box, ConfigError if there is none."""
    if fleet.rigs[agent.rig].host is not None:
        raise GtrunError("it is on another box, and this version reaches only this box")
    return caller if agent.account in {None, caller.name} else named(str(agent.account))


class Answer(msgspec.Struct, Generic[R], kw_only=True, frozen=True):
    """One agent's answer, or why there is none."""

    agent: Agent
    account: Account | None = None
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
    arguments: A,
    *,
    seconds: float = _WAIT,
) -> list[Answer[R]]:
    """Have one operation carried out as each agent's account, at the same time, all within `seconds`."""
    answers: list[Answer[R]] = []
    with ExitStack() as stack:
        first = stack.enter_context(Worker.start())
        asked: list[tuple[Agent, Account, Worker]] = []
        for agent in agents:
            try:
                account = account_of(fleet, agent, caller)
                worker = stack.enter_context(first.twin())
                worker.act_as(account)
                worker.ask(operation, arguments, seconds=seconds)
            except GtrunError as error:
                answers.append(Answer(agent=agent, problem=error.message, hint=error.hint))
                continue
            asked.append((agent, account, worker))
        deadline = time.monotonic() + seconds
        for agent, account, worker in asked:
            try:
                value = worker.answer(operation, seconds=max(0.01, deadline - time.monotonic()))
            except GtrunError as error:
                answers.append(Answer(agent=agent, account=account, problem=error.message, hint=error.hint))
            else:
                answers.append(Answer(agent=agent, account=account, value=value))
    return answers


class Team(msgspec.Struct):
    """A worker for the agent that is to run, one for each other agent that answers, and why the rest do not."""

    caller: Account
    agent: str
    account: Account
    target: Worker
    others: dict[str, Worker]
    silent: dict[str, str]

    def ask_all(self, operation: Callable[[Session, A], R], arguments: A, *, seconds: float) -> dict[str, R]:
        """Every answer by agent, the target's first; who does not answer in time is silent from now on.

        Raises what the target raises.
        """
        self.target.ask(operation, arguments, seconds=seconds)
        for worker in self.others.values():
            worker.ask(operation, arguments, seconds=seconds)
        deadline = time.monotonic() + seconds
        answers = {self.agent: self.target.answer(operation, seconds=seconds)}
        for name, worker in list(self.others.items()):
            try:
                answers[name] = worker.answer(operation, seconds=max(0.01, deadline - time.monotonic()))
            except GtrunError as error:
                self.silent[name] = error.message
                self.others.pop(name).close()
        return answers


@contextmanager
def enlisted(fleet: Fleet, caller: Account, agent: Agent, worker: Worker) -> Iterator[Team]:
    """The team for one dispatch; `worker` is nobody yet and becomes the target's. Raises NoManager, ConfigError."""
    account = account_of(fleet, agent, caller)
    others: dict[str, Worker] = {}
    silent: dict[str, str] = {}
    with ExitStack() as stack:
        for other in fleet.agents.values():
            if other.name == agent.name:
                continue
            try:
                their = account_of(fleet, other, caller)
                others[other.name] = stack.enter_context(worker.twin())
                others[other.name].act_as(their)
            except GtrunError as error:
                silent[other.name] = error.message
                others.pop(other.name, None)
        worker.act_as(account)
        yield Team(caller, agent.name, account, worker, others, silent)
