"""Quotas: an agent whose entitlement is used up gets nothing until the reset; no file of its own stops anybody."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from harness import steps
from harness.box import Box
from harness.conftest import MakeBox
from harness.control import Edit, Mutant, kill
from harness.fleet import FleetBox, open_lines, opened, root_of
from harness.scene import Scene

FILE = "/home/alice/.local/state/gtrun/quota.json"
SECRET = "the secret of root"  # noqa: S105


@pytest.fixture
def fleet(make_box: MakeBox) -> Box:
    """A box with agents alice and bob, for root."""
    return make_box(group="gtrun")


def until(seconds: float) -> str:
    """An instant so many seconds from now."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def used_up_until_the_reset(box: Box) -> None:
    """While it is dark every dispatch to that agent is 9, said, counted, not on the issue; after the reset none is."""
    root, alice = root_of(box, "exit 0"), Scene(box, "alice")
    issue = root.issue()
    root.gtrun("quota", "set", "alice", "--until", "8s")
    assert box.run("stat", "-c", "%U %a", FILE).out == "alice 600\n"
    (agent,) = [one for one in root.asks("quota")["agents"] if one["state"] == "dark"]
    assert (agent["agent"], agent["source"]) == ("alice", "gtrun quota set")
    why = f"the quota of alice is used up until {agent['resets_at']} (gtrun quota set)"
    for _ in range(3):
        done = root.gtrun("dispatch", "alice", issue, check=9)
        assert done.err == f"gtrun: refused: {why}\ngtrun: hint: if that is wrong: gtrun quota clear alice\n"
    assert alice.units() == []
    assert root.asks("board", "show", issue)["comments"] == []
    attempts = root.asks("show", issue)["attempts"]
    assert [(one["outcome"], one["code"], one["reason"]) for one in attempts] == [("refused", 9, why)] * 3
    assert [one["verdicts"] for one in attempts] == [[{"guard": "quota", "verdict": "refuse", "reason": why}]] * 3
    root.gtrun("dispatch", "bob", issue)  # nobody else is dark
    Scene(box, "bob").idle()

    box.wait_for("the reset", lambda: datetime.now(UTC) > datetime.fromisoformat(agent["resets_at"]), timeout=20)
    done = root.gtrun("dispatch", "alice", issue, check=None)
    assert done.code == 0, f"exit code {done.code}: {done.err}"
    assert root.gtrun("preflight", "quota", "alice").out == "pass\n"
    assert root.gtrun("quota", "--dark").out == ""
    assert box.path(FILE).exists()
    assert opened(box) == []
    alice.idle()


def test_used_up_until_the_reset(fleet: Box) -> None:
    used_up_until_the_reset(fleet)


def test_reset_that_was_stated_wrongly_is_cleared(fleet: Box) -> None:
    root = root_of(fleet, "exit 0")
    issue = root.issue()
    root.gtrun("quota", "set", "alice", "--until", "30d")
    assert root.gtrun("quota", "--dark").out == "alice\n"
    root.gtrun("dispatch", "alice", issue, check=9)
    root.gtrun("dispatch", "alice", issue, env={"DISPATCH_IGNORE_QUOTA": "1"})
    Scene(fleet, "alice").idle()
    root.gtrun("dispatch", "alice", issue, env={"DISPATCH_IGNORE_QUOTA": "0"}, check=9)
    root.gtrun("quota", "clear", "alice")
    assert not fleet.path(FILE).exists()
    root.gtrun("dispatch", "alice", issue)
    Scene(fleet, "alice").idle()


@pytest.mark.expects_fail_open
def test_whatever_lies_in_its_place_stops_nobody(fleet: Box) -> None:
    """Read as the agent: what it may not read is not read, what is no state is said, and the run is started."""
    root, alice = root_of(fleet, "exit 0"), Scene(fleet, "alice")
    fleet.write("/root/secret", json.dumps({"exhausted": True, "source": SECRET}), mode=0o600)
    state = {"exhausted": True, "source": "a run"}

    def content(data: str) -> Callable[[], None]:
        return lambda: fleet.write(FILE, data, owner="alice", mode=0o600)

    def shell(script: str) -> Callable[[], object]:
        return lambda: alice.sh(script.format(FILE))

    absurd, no_zone = until(40 * 86400), datetime.now(UTC).replace(tzinfo=None).isoformat()
    places: list[tuple[Callable[[], object], str]] = [
        (content("{"), f"{FILE} is not a quota state: "),
        (content(json.dumps({**state, "source": "x" * (1 << 20)})), f"{FILE} is not a quota state: "),
        (content(json.dumps({**state, "resets_at": absurd})), f"resets_at is {absurd}, more than 32 days from now"),
        (content(json.dumps({**state, "resets_at": no_zone})), f"resets_at is '{no_zone}', without its zone"),
        (content(json.dumps({**state, "resets_at": "\x1b[2J\n"})), "resets_at is '\\x1b[2J\\n', which is no instant"),
        (content(json.dumps(state)), "exhausted, and no resets_at"),
        (content(json.dumps({**state, "resets_at": until(-5)})), ""),
        (content(json.dumps({"exhausted": False})), ""),
        (shell("touch {0}; chmod 000 {0}"), f"cannot read {FILE}: Permission denied"),
        (shell("ln -s /root/secret {0}"), f"cannot read {FILE}: Too many levels of symbolic links"),
        (shell("mkfifo {0}"), f"cannot read {FILE}: not a regular file"),
        (shell("mkdir {0}"), f"cannot read {FILE}: "),
    ]
    everything = ""
    for number, (plant, why) in enumerate(places):
        issue = root.issue(f"Issue {number}")
        alice.sh(f"mkdir -p -m 0700 ~/.local/state/gtrun; rm -rf {FILE}")
        plant()
        asked = root.gtrun("preflight", "quota", "alice", check=0)
        told = [one for one in root.asks("quota")["agents"] if one["agent"] == "alice"]
        done = root.gtrun("dispatch", "alice", issue, check=None)
        everything += done.out + done.err + asked.out + asked.err + json.dumps(told)
        expected = f"gtrun: quota guard failed open: {why}"
        assert done.code == 0, f"exit code {done.code}: {done.err}"
        lines = open_lines(done)
        assert lines == open_lines(asked)
        if why:
            assert len(lines) == 1, done.err
            assert lines[0].startswith(expected), lines
            assert (told[0]["state"], told[0]["resets_at"]) == ("unknown", None)
        else:
            assert lines == []
            assert told[0]["state"] == "ready"
        assert root.gtrun("quota", "--dark").out == ""
    assert SECRET not in everything + fleet.journal("-o", "cat")
    alice.idle()


NOTICE = ("-o", "cat", "--output-fields=MESSAGE", "GTRUN_NOTICE=AGENT_DARK")
LIMIT = "You've hit your limit · resets 1am (Etc/GMT-2)"
SPENT = f'echo "{LIMIT}"; exit 1'
CLAUDE = 'backend = "claude"'


def notices(box: Box) -> list[str]:
    """The notices of a used-up quota in the journal."""
    return box.journal(*NOTICE).splitlines()


def dark(scene: Scene) -> dict[str, str]:
    """What the table of agents says of `me`."""
    (agent,) = scene.asks("quota")["agents"]
    return agent  # type: ignore[no-any-return]


def a_run_that_ends_of_it_darkens_its_agent(box: Box) -> None:
    """The first limit error refuses later dispatches until the reset that it stated; it is no failure, noticed once."""
    scene = Scene(box)
    scene.runs_shell(SPENT, CLAUDE)
    issue, other = scene.issue(), scene.issue()
    scene.gtrun("dispatch", "me", issue)
    scene.idle()
    (run,) = scene.runs(issue)
    ending = run["ending"]
    assert (ending["result"], ending["exit_code"], ending.get("reason")) == ("quota", 1, LIMIT), f"ending {ending}"
    body = scene.asks("board", "show", issue)["comments"][-1]["body"]
    assert f"quota, exit code 1 ({LIMIT})" in body
    assert "That is no failure of this work." in body
    agent = dark(scene)
    resets_at = datetime.fromisoformat(agent["resets_at"])
    assert (resets_at.astimezone(UTC).hour, resets_at.minute) == (23, 0), agent
    assert timedelta(0) < resets_at - datetime.now(UTC) <= timedelta(days=1)
    assert (agent["state"], ending["resets_at"]) == ("dark", agent["resets_at"])
    assert agent["source"] == f"run {run['run']} of issue {issue}: {LIMIT}"
    assert box.run("stat", "-c", "%U %a", FILE).out == "alice 600\n"
    refused = scene.gtrun("dispatch", "me", other, check=None)
    assert refused.code == 9, f"exit code {refused.code}: {refused.err}"
    assert f"used up until {agent['resets_at']}" in refused.err
    assert len(notices(box)) == 1, notices(box)
    assert notices(box)[0].startswith(f"the quota of me is used up until {agent['resets_at']}: it gets no work (run ")

    # started all the same, both at once: what they say is not news, and the later reset stays
    scene.runs_shell('echo "hit your limit, try again in 20 days"; exit 1', CLAUDE)
    issues = [scene.issue(), scene.issue()]
    for one in issues:
        scene.gtrun("dispatch", "me", one, env={"DISPATCH_IGNORE_QUOTA": "1"})
    scene.idle()
    assert [scene.results(one) for one in issues] == [["quota"], ["quota"]]
    assert datetime.fromisoformat(dark(scene)["resets_at"]) - datetime.now(UTC) > timedelta(days=19)
    assert len(notices(box)) == 1, notices(box)


def test_a_run_that_ends_of_it_darkens_its_agent(box: Box) -> None:
    a_run_that_ends_of_it_darkens_its_agent(box)


def two_that_end_at_once_give_one_notice(box: Box) -> None:
    """Of two runs that end of it at once one has news; a reset that nobody stated is in an hour."""
    scene = Scene(box)
    scene.runs_shell('until [ -e ~/go ]; do sleep 0.02; done; echo "hit your limit"; exit 1', CLAUDE)
    issues = [scene.issue(), scene.issue()]
    for one in issues:
        scene.gtrun("dispatch", "me", one)
    scene.sh("touch ~/go")
    scene.idle()
    assert [scene.results(one) for one in issues] == [["quota"], ["quota"]]
    assert len(notices(box)) == 1, f"{len(notices(box))} notices"
    in_an_hour = datetime.fromisoformat(dark(scene)["resets_at"]) - datetime.now(UTC)
    assert timedelta(minutes=50) < in_an_hour <= timedelta(hours=1)


def test_two_that_end_at_once_give_one_notice(box: Box) -> None:
    two_that_end_at_once_give_one_notice(box)


def only_an_end_of_it_darkens(box: Box) -> None:
    """Printed by a program that succeeds, long before its end, by another backend, at a stop: none is dark."""
    scene = Scene(box)
    many = "seq 100; exit 1"
    for script, more, result in [
        (f'echo "{LIMIT}"', CLAUDE, "success"),
        (f'echo "{LIMIT}"; {many}', CLAUDE, "failed"),
        (SPENT, 'backend = "mine"', "failed"),
        (f'echo "{LIMIT}"; kill -SEGV $$', CLAUDE, "failed"),
        ("exit 75", CLAUDE, "failed"),
    ]:
        scene.runs_shell(script, more)
        issue = scene.issue()
        scene.gtrun("dispatch", "me", issue)
        scene.idle()
        assert scene.results(issue) == [result], f"{script}: results are {scene.results(issue)}"
        assert not box.path(FILE).exists(), script
    scene.runs_shell(f'trap "exit 1" TERM; echo "{LIMIT}"; touch ~/up; sleep 60 & wait', CLAUDE)
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    scene.appears(f"{scene.home}/up")
    scene.gtrun("stop", issue)
    assert scene.results(issue) == ["stopped"]
    assert not box.path(FILE).exists()
    assert notices(box) == []
    for script, more in [
        ("exit 75", "quota_exit_codes = [75]"),
        ('printf "\\033[31mOut of 7 CREDITS\\033[0m\\n"; exit 2', 'quota_patterns = ["out of * credits"]'),
    ]:
        scene.runs_shell(script, more)
        issue = scene.issue()
        scene.gtrun("dispatch", "me", issue)
        scene.idle()
        assert scene.results(issue) == ["quota"], f"{script}: results are {scene.results(issue)}"
        assert dark(scene)["state"] == "dark"
        scene.gtrun("quota", "clear", "me")


def test_only_an_end_of_it_darkens(box: Box) -> None:
    only_an_end_of_it_darkens(box)


def hostile_output_delays_no_end(box: Box) -> None:
    """Long lines, bytes that are no text, and the terminal's own language: the sentence is found, and shown plain."""
    scene = Scene(box)
    box.write(
        f"{scene.home}/hostile",
        b"x" * (1 << 20) + b"\n" + b"\x1b]0;" + b"a" * 9000 + b"\n\xff\xfe\x00\n" + b"\x1b[2J\x1b[31mYou've hit your "
        b"limit\x1b[0m \xe2\x80\xae resets in 2 hours\x1b]0;pwned\x07" + b"!" * (1 << 20) + b"\n",
        owner=scene.account,
    )
    scene.runs_shell("cat ~/hostile; exit 1", CLAUDE)
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    scene.idle()
    (ending,) = [run["ending"] for run in scene.runs(issue)]
    assert ending["result"] == "quota", ending
    assert ending["reason"].startswith("You've hit your limit \\u202e resets in 2 hours!!"), ending
    assert ending["reason"].isprintable()
    in_two_hours = datetime.fromisoformat(ending["resets_at"]) - datetime.now(UTC)
    assert timedelta(minutes=110) < in_two_hours <= timedelta(hours=2)


def test_hostile_output_delays_no_end(box: Box) -> None:
    hostile_output_delays_no_end(box)


def killed_before_it_is_noted(box: Box) -> None:
    """Both close-outs are killed once the end is written: reconcile puts it into the quota state, with one notice."""
    scene = Scene(box)
    before, *_ = steps.instrument(box, "runner/closeout.py", ["note_quota"])
    scene.runs_shell(SPENT, CLAUDE)
    issue = scene.issue()
    steps.die_at(scene, issue, f"closeout {before}")
    scene.gtrun("dispatch", "me", issue)
    scene.idle()
    assert not box.path(FILE).exists()
    scene.gtrun("reconcile")
    assert scene.results(issue) == ["quota"]
    assert dark(scene)["state"] == "dark", dark(scene)
    assert len(notices(box)) == 1
    assert scene.gtrun("reconcile").out == "nothing is owed any more\n"
    assert len(notices(box)) == 1


def test_killed_before_it_is_noted(box: Box) -> None:
    killed_before_it_is_noted(box)


def test_no_room_for_it_is_said(box: Box) -> None:
    """The quota state needs room, which the record does not: the truth is told, what could not be noted is said, and
    then it is noted as soon as there is room.
    """
    scene = Scene(box)
    box.run("install", "-d", "-o", "alice", f"{scene.home}/.local", f"{scene.home}/.local/state")
    box.mount_small(scene.state, 1024 * 1024, scene.account)
    scene.runs_shell('touch ~/up; until [ -e ~/go ]; do sleep 0.02; done; echo "hit your limit"; exit 1', CLAUDE)
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue)
    scene.appears(f"{scene.home}/up")
    box.run("sh", "-c", f"! cat /dev/zero 2>/dev/null >{scene.state}/filler", account=scene.account)
    scene.sh("touch ~/go")
    scene.idle()
    assert scene.kinds(issue) == ["started", "finished"]
    why = f"that the quota is used up is not noted: cannot write {scene.state}/quota.json: No space left on device"
    assert why in box.journal("-o", "cat", "_UID=1000")
    scene.sh(f"rm {scene.state}/filler")
    assert scene.results(issue) == ["quota"]
    assert notices(box) == []
    scene.gtrun("reconcile")
    assert dark(scene)["state"] == "dark", dark(scene)
    assert len(notices(box)) == 1
    assert not scene.open_records()


MUTANTS = [
    Mutant(
        "a limit error taken for a failure",
        [Edit("runner/judge.py", "if seen.exhausted else", "if False else")],
        a_run_that_ends_of_it_darkens_its_agent,
        r"ending \{'result': 'failed'",
    ),
    Mutant(
        "whatever was printed darkens",
        [Edit("runner/closeout.py", 'if judgement == Judgement(Result.FAILED) and code == "exited" and', "if"),
         Edit("runner/judge.py", '    if seen.exit_status == "0":\n        return Judgement(Result.SUCCESS)\n', "")],
        only_an_end_of_it_darkens,
        r"results are \['quota'\]",
    ),
    Mutant(
        "the quota state written without a lock",
        [Edit("state/quota_file.py", "    with _alone(state):\n", "    for _ in [0]:\n"),
         Edit("state/quota_file.py", "        if until <= now:\n",
              "        import time\n        time.sleep(1.0)\n        if until <= now:\n")],
        two_that_end_at_once_give_one_notice,
        "2 notices",
    ),
    Mutant(
        "a reset that never comes",
        [Edit("quota.py", "    return DarkUntil(resets_at, file.quota.source) if resets_at > now else None",
              "    return DarkUntil(resets_at, file.quota.source)")],
        used_up_until_the_reset,
        r"exit code 9: gtrun: refused: the quota of alice is used up until ",
        boot=FleetBox,
    ),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
