"""The argument lists that reach another account, and the way that a fleet.toml gives to each."""

import shlex
from pathlib import Path

import pytest

from gtrun.account import Account
from gtrun.config import Agent, BoardConfig, ClaimConfig, Fleet, Rig
from gtrun.errors import NoManager
from gtrun.reach.far import pause_after
from gtrun.reach.route import Far, this_installation
from gtrun.survey import route_of

OPS = Account("ops", 1000, 1000, "/home/ops", "/home/ops/.local/state/gtrun", "/run/user/1000")
ROOT = Account("root", 0, 0, "/root", "/root/.local/state/gtrun", "/run/user/0")
HERE = Rig(name="here")


def route(agent: Agent, rig: Rig = HERE, caller: Account = OPS) -> Account | Far:
    fleet = Fleet(
        source=None, board=BoardConfig(path="/b"), claim=ClaimConfig(lock="/l"), rigs={rig.name: rig},
        agents={agent.name: agent},
    )  # fmt: skip
    return route_of(fleet, agent, caller)


def test_ones_own_account_needs_no_way():
    assert route(Agent(name="me", rig="here")) is OPS
    assert route(Agent(name="me", rig="here", account="ops", reach="ssh")) is OPS


def test_root_needs_no_way_to_another_account():
    found = route(Agent(name="a", rig="here", account="nobody", reach="ssh"), caller=ROOT)
    assert isinstance(found, Account)
    assert found.name == "nobody"


def test_another_account_without_a_way_says_what_to_set():
    with pytest.raises(NoManager, match="nothing says how to reach it") as caught:
        route(Agent(name="a", rig="here", account="nobody"))
    assert caught.value.code == 69
    assert caught.value.hint.endswith('set reach = "ssh" or "sudo" of [agents.a]')


@pytest.mark.parametrize(
    ("by", "first", "last"),
    [
        ("ssh", ["ssh", "-T"], ["--", "nobody@localhost", shlex.join([*this_installation(), "worker", "nobody"])]),
        ("sudo", ["sudo", "--non-interactive"], ["--", *this_installation(), "worker", "nobody"]),
    ],
)
def test_another_account_of_this_box(by, first, last):
    found = route(Agent(name="a", rig="here", account="nobody", reach=by))
    assert isinstance(found, Far)
    command = found.worker()
    assert command[:2] == first
    assert command[-len(last) :] == last


@pytest.mark.parametrize(
    ("host", "account", "destination"),
    [
        ("box2", None, "ops@box2"),
        ("carol@box2", None, "carol@box2"),
        ("carol@box2", "dora", "dora@box2"),
        ("::1", "dora", "dora@::1"),
    ],
)
def test_another_box(host, account, destination):
    rig = Rig(name="far", host=host, gtrun="/opt/g")
    found = route(Agent(name="a", rig="far", account=account), rig, ROOT if account else OPS)
    assert isinstance(found, Far)
    assert found.worker()[-3:] == ["--", destination, f"/opt/g worker {destination.partition('@')[0]}"]
    assert Path(found.slots).is_absolute()


def test_ssh_never_asks_and_forwards_nothing():
    found = route(Agent(name="a", rig="far"), Rig(name="far", host="box2", gtrun="/opt/g"))
    assert isinstance(found, Far)
    options = set(found.worker())
    assert {"-T", "-x", "-a", "-oBatchMode=yes", "-oClearAllForwardings=yes", "-oControlMaster=no"} <= options
    assert not any("StrictHostKeyChecking" in option for option in options)


def test_pauses_grow_and_differ():
    assert [pause_after(tried, 0.5) for tried in (1, 2, 3, 9)] == [0.1, 0.2, 0.4, 2.0]
    assert pause_after(1, 0.0) == 0.05
    assert pause_after(9, 1.0) == 3.0
