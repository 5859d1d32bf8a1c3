"""Asking every agent at once: one silent manager costs its own deadline and nobody else's answer."""

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Generic, TypeVar

import msgspec

from gtrun.account import Account
from gtrun.config import Agent, Fleet
from gtrun.dispatch import account_of
from gtrun.errors import GtrunError
from gtrun.reach import Worker
from gtrun.reach.operations import Session

A = TypeVar("A", bound=msgspec.Struct)
R = TypeVar("R")

_WAIT = 10.0


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
    with ExitStack() as workers:
        asked: list[tuple[Agent, Account, Worker]] = []
        for agent in agents:
            try:
                if fleet.rigs[agent.rig].host is not None:
                    raise GtrunError("it is on another box, and this version reaches only this box")
                account = account_of(agent, caller)
                worker = workers.enter_context(Worker())
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
