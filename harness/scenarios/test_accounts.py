"""Root dispatches for agents that are other accounts: it acts as each of them, and nothing they plant reaches root."""

from __future__ import annotations

import json

import pytest

from harness.box import Box
from harness.conftest import MakeBox
from harness.scene import Scene

BOARD = "/srv/gtrun/board"
FLEET = f"""
[board]
path = "{BOARD}/board.db"
[run]
command = ["sh", "-c", "id -un >~/.ready; mv ~/.ready ~/ready; exec sleep 60"]
[rigs.box]
[agents.alice]
rig = "box"
account = "alice"
[agents.bob]
rig = "box"
account = "bob"
"""


@pytest.fixture
def fleet(make_box: MakeBox) -> Box:
    """A box whose root has two agents, alice and bob, on a board of their common group."""
    box = make_box(group="gtrun")
    box.run("install", "-d", "-m", "2770", "-g", "gtrun", BOARD)
    box.write("/etc/gtrun/fleet.toml", FLEET)
    return box


def modes(box: Box, folder: str) -> dict[str, str]:
    """Owner and mode of everything below a folder, as `alice 0600`."""
    listed = box.run("find", folder, "-printf", "%P %u %m\\n").out
    return {name: f"{owner} {mode}" for name, owner, mode in (line.split(" ") for line in listed.splitlines())}


def test_root_dispatches_for_others(fleet: Box) -> None:
    """Markers of both agents; each one's state is its own and private; the ledger is root's alone."""
    root = Scene(fleet, "root")
    issues = {name: root.issue(f"for {name}") for name in ("alice", "bob")}
    for name, issue in issues.items():
        root.gtrun("dispatch", name, issue)
    for name in issues:
        assert Scene(fleet, name).appears(f"/home/{name}/ready", timeout=15) == f"{name}\n"
    live = {run["agent"]: run for run in root.asks("ps")["runs"]}
    assert {name: (run["account"], run["issue"]) for name, run in live.items()} == {
        name: (name, issue) for name, issue in issues.items()
    }
    assert root.gtrun("dispatch", "alice", issues["alice"], check=11).err.startswith("gtrun: refused: ")
    for name in issues:
        for path, mode in modes(fleet, f"/home/{name}/.local/state/gtrun").items():
            is_folder = fleet.path(f"/home/{name}/.local/state/gtrun/{path}").is_dir()
            assert mode == f"{name} {'700' if is_folder else '600'}", f"{path}: {mode}"
        assert not fleet.path(f"/home/{name}/.local/state/gtrun/ledger.db").exists()
    assert modes(fleet, "/root/.local/state/gtrun")["ledger.db"] == "root 600"
    assert root.asks("stop", "--all")["failed"] is False
    for name, issue in issues.items():
        assert root.kinds(issue) == ["started", "finished"]
        assert root.results(issue) == ["stopped"]
        comments = root.asks("board", "show", issue)["comments"]
        assert [comment["author"] for comment in comments] == [name, name]
        assert root.asks("show", issue)["attempts"][0]["outcome"] == "started"


@pytest.mark.parametrize("place", [".local/state/gtrun", ".local/state/gtrun/runs", ".local/state/gtrun/runs/open"])
def test_a_planted_folder_leads_root_nowhere(fleet: Box, place: str) -> None:
    """Alice makes her state a link to a folder of root's: as alice nothing can be written there, so it is refused."""
    root = Scene(fleet, "root")
    issue = root.issue()
    fleet.run("install", "-d", "-m", "0755", "/etc/victim")
    fleet.run("sh", "-c", f"mkdir -p {place} && rmdir {place} && ln -s /etc/victim {place}", account="alice")
    done = root.gtrun("dispatch", "alice", issue, check=1)
    refused = ("is not a folder of this account", "cannot make the folder")
    assert any(words in done.err.splitlines()[0] for words in refused), done.err
    assert list(fleet.path("/etc/victim").iterdir()) == []
    assert Scene(fleet, "alice").units() == []


def test_planted_files_lead_root_nowhere(fleet: Box) -> None:
    """Records that are links to root's files, or FIFOs; a prompt that is one: read as alice, or not at all."""
    root = Scene(fleet, "root")
    issue = root.issue()
    fleet.write("/root/secret", "the secret", mode=0o600)
    folder = "/home/alice/.local/state/gtrun/runs/open"
    plant = (
        f"mkdir -p -m 0700 {folder}; cd {folder}; ln -s /root/secret a.jsonl; mkfifo b.jsonl; ln -s /root/secret ~/p.md"
    )
    fleet.run("sh", "-euc", plant, account="alice")
    root.gtrun("dispatch", "alice", issue)
    Scene(fleet, "alice").appears("/home/alice/ready", timeout=15)
    seen = root.asks("ps")
    assert [run["agent"] for run in seen["runs"]] == ["alice"], seen
    told = root.gtrun("show", issue)
    assert told.err.count("is damaged") == 2, told.err
    root.gtrun("reconcile", check=1)
    root.gtrun("stop", issue)
    assert root.results(issue) == ["stopped"]
    fleet.write("/etc/gtrun/fleet.toml", FLEET.replace("[run]", '[run]\nprompt = "~/p.md"'))
    done = root.gtrun("dispatch", "alice", issue, check=1)
    assert done.err.startswith("gtrun: cannot read the prompt /home/alice/p.md: Permission denied\ngtrun: hint: let ")
    assert fleet.path("/root/secret").read_text() == "the secret"
    everything = told.out + told.err + done.err + fleet.journal("-o", "cat")
    assert "the secret" not in everything


@pytest.mark.expects_fail_open
def test_what_an_account_writes_about_itself(fleet: Box) -> None:
    """Escapes, absurd instants and a bottomless nesting in alice's own state: root's commands work, and show none."""
    root = Scene(fleet, "root")
    issue = root.issue()
    root.gtrun("dispatch", "alice", issue)
    Scene(fleet, "alice").appears("/home/alice/ready", timeout=15)
    root.gtrun("stop", issue)
    state = "/home/alice/.local/state/gtrun"
    (record,) = fleet.path(f"{state}/runs/closed").glob("*.jsonl")
    first = json.loads(record.read_text().split("\n")[0])
    first["run"] |= {"unit": "task-77.service", "agent": "al\x1b]0;x\x07", "issue": {"key": "7\x1b[2J", "title": "x"}}

    def plant(name: str, *facts: dict[str, object]) -> None:
        text = "".join(json.dumps(fact) + "\n" for fact in facts)
        fleet.write(f"{state}/runs/open/{name}.jsonl", text, owner="alice", mode=0o600)

    bottomless = "[" * 100_000 + "]" * 100_000
    plant("a", first, {"type": "begun", "run": "e" * 32, "at": None})
    first["run"]["issue"]["key"] = issue
    ending = {"result": "failed", "signal": "\x1b[2J", "duration": 1e300}
    plant("b", first, {"type": "begun", "run": "f" * 32, "at": 1e300}, {"type": "ended", "ending": ending, "at": 1e300})
    fleet.write(f"{state}/runs/open/c.jsonl", f'{{"type":"resolved","x":{bottomless}}}\n', owner="alice", mode=0o600)
    fleet.write(f"{state}/quota.json", f'{{"exhausted":false,"x":{bottomless}}}', owner="alice", mode=0o600)
    told = [root.gtrun(*command) for command in (("show", issue), ("show", issue, "--json"), ("logs", issue), ("ps",))]
    told.append(root.gtrun("reconcile", check=1))
    assert "lost: issue 7\\x1b[2J on al\\x1b]0;x\\x07, run eeee" in told[-1].out, told[-1].out
    told.append(root.gtrun("dispatch", "alice", issue))
    assert "gtrun: quota guard failed open: " in told[-1].err
    told.append(root.gtrun("stop", issue))
    for each in told:
        assert "\x1b" not in each.out + each.err, each.out + each.err
        assert "Traceback" not in each.err, each.err


def test_another_account_is_told_what_to_type(fleet: Box) -> None:
    root = Scene(fleet, "root")
    issue = root.issue()
    done = fleet.run("gtrun", "dispatch", "bob", issue, account="alice", check=69)
    assert done.err.splitlines() == [
        "gtrun: agent bob is another account, bob, and nothing says how to reach it",
        'gtrun: hint: run this as bob or as root, or set reach = "ssh" or "sudo" of [agents.bob]',
    ]
    seen = json.loads(fleet.run("gtrun", "ps", "--json", account="alice").out)
    assert [one["agent"] for one in seen["unreachable"]] == ["bob"]
    assert Scene(fleet, "bob").units() == []
