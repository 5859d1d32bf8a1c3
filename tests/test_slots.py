"""Slots told to a real command: once each, within one time-out, and never by what an agent could have written."""

import json
import os

import pytest
from msgspec.structs import replace

from gtrun import slots
from gtrun.account import Account
from gtrun.config.schema import Agent, BoardConfig, ClaimConfig, Fleet, Rig
from gtrun.counters import Tally
from gtrun.model import Notice, Notify
from gtrun.planner import Availability
from gtrun.planner.slots import SlotNotice


@pytest.fixture
def caller(tmp_path):
    return Account("root", os.getuid(), os.getgid(), str(tmp_path), str(tmp_path / "state"), "/run/user/0")


def fleet(*command, account=None, timeout=10.0):
    agents = {name: Agent(name=name, rig="here", account=account) for name in "abc"}
    return Fleet(
        source=None, board=BoardConfig(path="/b"), claim=ClaimConfig(lock="/l"), rigs={"here": Rig(name="here")},
        agents=agents, notify=Notify(command=command, timeout=timeout),
    )  # fmt: skip


def found(*names):
    for name in names:
        one = Availability(agent=name, rig="here", running=0, max_runs=1, free=1, tally=Tally())
        yield SlotNotice(agent=one, notice=Notice.SLOT_OPEN, waiting=2)


def tell(fleet, caller, notices):
    said = []
    slots.tell(fleet, caller, notices, said.append)
    return said


def test_each_is_told_once(caller, tmp_path):
    tee = fleet("/usr/bin/tee", "-a", str(tmp_path / "told"))
    assert tell(tee, caller, found("a", "b")) == []
    assert tell(tee, caller, found("a", "b", "c")) == []
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert [(one["notice"], one["agent"], one["waiting"]) for one in told] == [
        ("SLOT_OPEN", "a", 2),
        ("SLOT_OPEN", "b", 2),
        ("SLOT_OPEN", "c", 2),
    ]


def test_one_that_hangs_takes_its_time_once_and_one_that_fails_is_told_the_rest(caller):
    (said,) = tell(fleet("/bin/sleep", "600", timeout=0.3), caller, found("a", "b", "c"))
    assert said == ("SLOT_OPEN of a: the notify command /bin/sleep did not end within 0.3 s; and 2 more")
    (said,) = tell(
        fleet("/bin/false"), caller, [replace(one, waiting=9, notice=Notice.SLOT_BLOCKED) for one in found("a")]
    )
    assert said == "SLOT_BLOCKED of a: the notify command /bin/false exited with 1"


def test_what_an_agent_can_write_is_not_executed_for_the_fleet(caller, tmp_path):
    program = tmp_path / "tell"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o777)
    (said,) = tell(fleet("~/tell", account="nobody"), caller, found("a"))
    assert said.startswith("the notify command is not executed: ")
    assert f"{program} can be written by anybody (mode 0777)" in said
    assert not (tmp_path / "ran").exists()
    assert tell(fleet("~/tell"), caller, found("b")) == []  # alone, it is one's own
    assert (tmp_path / "ran").exists()


def test_a_ledger_that_cannot_be_used_is_one_line(caller, tmp_path):
    (tmp_path / "state").write_text("in the way")
    (said,) = tell(fleet("/bin/false"), caller, found("a"))
    assert said.startswith("warning: no slots are told: ")
