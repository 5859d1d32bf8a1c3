"""Checking a box: what would keep a dispatch from working, and how to mend it."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gtrun
from gtrun.account import Account
from gtrun.board.reference import open_own, reference_of
from gtrun.config import Agent, BoardConfig, Fleet
from gtrun.config.trust import check_executed
from gtrun.errors import BoardUnavailable, ConfigError
from gtrun.model import Issue
from gtrun.names import IssueKey, Token
from gtrun.reach import operations as at_agent
from gtrun.request import check_own_code, is_alone, resolved
from gtrun.survey import survey


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `mend` is the command or change that mends it, empty where nothing has to be."""

    subject: str
    what: str
    is_fine: bool
    mend: str = ""


def examine(fleet: Fleet, caller: Account) -> Iterator[Finding]:
    """Every finding, the fine ones too, in the order in which one would mend them."""
    source = fleet.source or "no fleet.toml: one agent, me"
    yield Finding("config", source, is_fine=True)
    yield _own_code(fleet, caller)
    board, *more = _board(fleet.board)
    yield from (board, *more)
    ref, is_local = reference_of(fleet.board), fleet.board.github is None
    sharing = len({agent.account for agent in fleet.agents.values()}) > 1
    if is_local and sharing and board.is_fine:
        yield from _shared(Path(fleet.board.path).parent)

    def arguments(agent: Agent) -> at_agent.ToExamine:
        issue, run = Issue(key=IssueKey("1"), title="doctor"), None
        if agent.run.command:
            run = resolved(fleet, agent, Token("0" * 32), issue, (), board=ref, by=caller.name)
        is_there = board.is_fine and not (is_local and _is_missing(fleet.board.path))
        return at_agent.ToExamine(ref if is_there else None, run, agent.run.prompt)

    for answer in survey(fleet.agents.values(), fleet, caller, at_agent.examine, arguments):
        yield from _of_agent(fleet, answer.agent)
        if answer.value is None:
            yield Finding(answer.agent.name, answer.problem, is_fine=False, mend=answer.hint)
        else:
            for found in answer.value:
                yield Finding(answer.agent.name, found.what, found.is_fine, found.mend)


def _own_code(fleet: Fleet, caller: Account) -> Finding:
    """Whether an agent could have written what makes the claims; a dispatch looks at the folders, this at each file."""
    package = Path(gtrun.__file__).parent
    try:
        check_own_code(fleet, caller)
        if is_alone(fleet, caller):
            return Finding("gtrun", str(package), is_fine=True)
        check_executed(package.rglob("*"), caller.uid)
    except ConfigError as error:
        return Finding("gtrun", error.message, is_fine=False, mend=error.hint)
    return Finding("gtrun", f"{package} is not for agents to write", is_fine=True)


def _is_missing(path: str | Path) -> bool:
    """Whether there is nothing; False where this account may not look."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _shared(folder: Path) -> Iterator[Finding]:
    """A board that several accounts write lies in a folder of their group's; a sticky one breaks it."""
    if _is_missing(folder):
        return
    info = folder.stat()
    if info.st_mode & (stat.S_ISGID | stat.S_IWGRP | stat.S_ISVTX) != stat.S_ISGID | stat.S_IWGRP:
        what = f"{folder} is {stat.filemode(info.st_mode)}: several accounts cannot share a board there"
        mend = f"sudo install -d -g GROUP -m 2770 {folder}, with a group that every agent's account is in"
        yield Finding("board", what, is_fine=False, mend=mend)


def _board(config: BoardConfig) -> list[Finding]:
    """That there is no local board yet is no fault: the first issue makes it."""
    if config.github is None and _is_missing(config.path):
        what = f"there is none yet at {config.path}: the first `gtrun board add` makes it"
        return [Finding("board", what, is_fine=True)]
    try:
        with open_own(config) as board:
            board.issue(IssueKey("1"))
            found = [Finding("board", f"{board.name} answers", is_fine=True)]
            for notice in board.notices:
                what, _, mend = notice.partition(": ")
                found.append(Finding("board", what, is_fine=False, mend=mend))
            return found
    except BoardUnavailable as error:
        usual = "look at the folder's owner and mode" if config.github is None else "try again later (docs/github.md)"
        mend = error.hint or usual
        return [Finding("board", error.message, is_fine=False, mend=mend)]


def _of_agent(fleet: Fleet, agent: Agent) -> Iterator[Finding]:
    if not agent.run.command:
        where = fleet.source or "fleet.toml"
        yield Finding(agent.name, "it has no command", is_fine=False, mend=f"set [run] command in {where} (gtrun init)")
