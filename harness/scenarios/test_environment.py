"""Where a dispatch is typed: shells without a session, SSH without a terminal, timers, accounts without a manager."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from harness.box import Box, Completed
from harness.conftest import MakeBox
from harness.control import Edit, Mutant, kill
from harness.scene import Scene

WORKS = "echo $$ > ~/ready; exec sleep 60"
GTRUN = "/opt/gtrun/bin/gtrun"


def ready(box: Box) -> tuple[Scene, str]:
    """Alice's agent, which works until it is stopped, and an issue for it."""
    scene = Scene(box)
    scene.runs_shell(WORKS)
    return scene, scene.issue()


def mend(box: Box, done: Completed) -> None:
    """Type what the hint of a refusal says, as root, who needs no sudo."""
    found = re.search(r"^gtrun: hint: start it with: (sudo .+)$", done.err, re.MULTILINE)
    assert found, f"no command that starts the manager:\n{done.err}"
    box.run("sh", "-euc", found[1].replace("sudo ", ""))


def works_without_session(box: Box) -> None:
    """CASE 9: XDG_RUNTIME_DIR is unset, as after su and in cron."""
    scene, issue = ready(box)
    done = box.run("gtrun", "dispatch", "me", issue, account="alice", session=False, check=None)
    assert done.code == 0, f"exit code {done.code}: {done.err}"
    assert scene.units() == [f"task-{issue}.service"]
    box.run("gtrun", "stop", issue, account="alice", session=False)
    assert scene.results(issue) == ["stopped"]


def test_works_without_session(box: Box) -> None:
    works_without_session(box)


def test_works_with_an_empty_environment(box: Box) -> None:
    scene, issue = ready(box)
    box.run("env", "-i", GTRUN, "dispatch", "me", issue, account="alice")
    assert scene.units() == [f"task-{issue}.service"]
    box.run("env", "-i", GTRUN, "stop", issue, account="alice")


@pytest.mark.parametrize("value", ["run", "/run/user/4711", ""])
def test_a_runtime_folder_that_is_none_counts_as_unset(box: Box, value: str) -> None:
    scene, issue = ready(box)
    scene.sh("mkdir run")
    scene.gtrun("dispatch", "me", issue, env={"XDG_RUNTIME_DIR": value})
    assert scene.units() == [f"task-{issue}.service"]
    scene.gtrun("stop", issue)


@pytest.mark.expects_fail_open
@pytest.mark.parametrize("where", ["/dev/full", ">(exec true)", "&-"])
def test_what_nobody_can_read_changes_nothing(where: str, box: Box) -> None:
    """A warning on a standard error that is full, closed or without a reader: the run starts; a refusal keeps its code.

    The second word of `2> >(exec true)` is a pipe whose reader ends at once.
    """
    scene = Scene(box)
    scene.runs_shell("exec sleep 60")
    issue = scene.issue()
    scene.sh("mkdir -p -m 0700 ~/.local/state/gtrun; echo '{\"exhausted\": true}' >~/.local/state/gtrun/quota.json")
    redirect = f"2>{where}" if where == "&-" else f"2> {where}"
    loser = f"sleep 0.2; gtrun dispatch me {issue}"  # the reader is gone by then
    first = scene.sh(f"({loser}) {redirect}", check=None)
    assert scene.units() == [f"task-{issue}.service"], f"exit code {first.code}, units are {scene.units()}"
    assert first.code == 0, f"exit code {first.code}"
    again = scene.sh(f"({loser}) {redirect}", check=None)
    assert again.code == 11, f"exit code {again.code}"
    scene.gtrun("stop", issue)


def test_a_title_that_the_terminal_has_no_letters_for(box: Box) -> None:
    scene = Scene(box)
    scene.runs_shell("exit 0")
    issue = scene.issue("Dach 🏠")
    scene.gtrun("dispatch", "me", issue, "--wait")
    for command in (
        ("board", "list"),
        ("board", "show", issue),
        ("show", issue),
        ("dispatch", "me", issue, "--dry-run"),
    ):
        told = scene.gtrun(*command, env={"PYTHONIOENCODING": "ascii"})
        assert command[0] == "dispatch" or r"Dach \U0001f3e0" in told.out, told.out


def test_somebody_elses_runtime_folder_is_refused(box: Box) -> None:
    scene, issue = ready(box)
    done = scene.gtrun("dispatch", "me", issue, env={"XDG_RUNTIME_DIR": "/run/user/1001"}, check=69)
    assert done.err.splitlines() == [
        "gtrun: XDG_RUNTIME_DIR is /run/user/1001, which belongs to user ID 1001, and this is alice (user ID 1000)",
        "gtrun: hint: unset XDG_RUNTIME_DIR, or log in as alice with a session of its own",
    ]
    assert Scene(box, "bob").units() == []
    assert scene.units() == []


def test_a_dispatch_without_linger_warns(make_box: MakeBox) -> None:
    """CASE 10: the only manager is that of a login, so dispatch and doctor say what the last logout does."""
    box = make_box(linger=False)
    _, issue = ready(box)
    box.allow_ssh("bob", "alice")

    def over_ssh(command: str, code: int) -> Completed:
        return box.run("ssh", "-o", "BatchMode=yes", "alice@127.0.0.1", command, account="bob", check=code)

    done = over_ssh(f"gtrun dispatch me {issue}; code=$?; gtrun doctor; echo $?; gtrun stop {issue} >&2; exit $code", 0)
    warning = "gtrun: warning: alice does not linger, so its last logout ends the run"
    assert done.err.splitlines()[:2] == [warning, "gtrun: hint: loginctl enable-linger alice"], done.err
    assert "BAD  me: alice does not linger: its last logout ends its runs\n" in done.out
    assert "       sudo loginctl enable-linger alice\n" in done.out
    assert done.out.endswith("\n1\n"), done.out
    box.run("loginctl", "enable-linger", "alice")
    done = over_ssh(f"gtrun dispatch me {issue}; code=$?; gtrun doctor; echo $?; gtrun stop {issue} >&2; exit $code", 0)
    assert "linger" not in done.err
    assert done.out.endswith("\n0\n"), done.out


def test_no_manager_at_all(make_box: MakeBox) -> None:
    """69, with a command that does bring the manager up."""
    box = make_box(linger=False)
    scene, issue = ready(box)
    done = scene.gtrun("dispatch", "me", issue, check=69)
    assert done.err.startswith(
        "gtrun: no user manager of alice to talk to: there is no user bus at /run/user/1000/bus\n"
    )
    assert len(done.err.splitlines()) == 2
    assert scene.gtrun("doctor", check=1).out.count("BAD ") == 2  # no linger, no manager
    mend(box, done)
    scene.gtrun("dispatch", "me", issue)
    assert scene.units() == [f"task-{issue}.service"]
    scene.gtrun("stop", issue)


def test_a_killed_manager(box: Box) -> None:
    """CASE 12: the manager is killed under a run, and stays down. 69, and the hint brings it back."""
    scene, issue = ready(box)
    scene.gtrun("dispatch", "me", issue)
    scene.appears(f"{scene.home}/ready")
    box.run("systemctl", "kill", "--kill-whom=main", "-s", "KILL", "user@1000.service")

    def is_down() -> bool:
        shown = box.run("systemctl", "show", "-P", "ActiveState", "user@1000.service")
        return shown.out.strip() == "failed"

    box.wait_for("a failed manager", is_down)
    done = scene.gtrun("dispatch", "me", issue, check=69)
    mend(box, done)
    scene.gtrun("reconcile")
    assert scene.results(issue) == ["lost"]
    scene.gtrun("dispatch", "me", issue)
    scene.gtrun("stop", issue)
    assert scene.results(issue) == ["lost", "stopped"]


def test_over_ssh(box: Box) -> None:
    """Without a terminal and with stdin closed: code and stderr come through, and it returns while the run lives."""
    scene, issue = ready(box)
    box.allow_ssh("bob", "alice")
    ssh = ["ssh", "-n", "-o", "BatchMode=yes", "alice@127.0.0.1"]
    done = box.run(*ssh, f"gtrun dispatch me {issue} <&-", account="bob")
    assert re.fullmatch(rf"started task-{issue}\.service on me, run [0-9a-f]{{32}}\n", done.out)
    assert done.err == ""
    again = box.run(*ssh, f"gtrun dispatch me {issue}", account="bob", check=11)
    assert again.err.startswith(f"gtrun: refused: task-{issue}.service is already live on me (active/running)\n")
    assert again.out == ""
    scene.gtrun("stop", issue)


def test_from_a_timer(box: Box) -> None:
    """CASE 13: the unit that dispatched has ended, and its cgroup with it; the run lives on in a unit of its own."""
    scene, issue = ready(box)
    folder = f"{scene.home}/.config/systemd/user"
    service = f"[Service]\nType=oneshot\nExecStart={GTRUN} dispatch me {issue}\n"
    box.run("mkdir", "-p", folder, account="alice")
    box.write(f"{folder}/sweep.service", service, owner="alice")
    box.write(f"{folder}/sweep.timer", "[Timer]\nOnActiveSec=50ms\nAccuracySec=1ms\n", owner="alice")
    scene.sh("systemctl --user daemon-reload; systemctl --user start sweep.timer")
    scene.appears(f"{scene.home}/ready")

    def has_ended() -> bool:
        told = scene.properties("sweep.service", "ActiveState", "ExecMainPID")
        return told["ActiveState"] == "inactive" and told["ExecMainPID"] != "0"

    box.wait_for("the end of the timer's unit", has_ended)
    told = scene.properties("sweep.service", "Result", "ControlGroup", "ExecMainStatus")
    assert told == {"Result": "success", "ControlGroup": "", "ExecMainStatus": "0"}, told
    assert scene.properties(f"task-{issue}.service", "ActiveState") == {"ActiveState": "active"}
    scene.gtrun("stop", issue)
    scene.sh("systemctl --user stop sweep.timer")
    assert scene.results(issue) == ["stopped"]


def links(folder: Path) -> dict[str, str] | None:
    """What the links of a folder point at; None if one went away meanwhile."""
    try:
        return {path.name: str(path.readlink()) for path in folder.iterdir()}
    except FileNotFoundError:
        return None


def test_nothing_of_gtruns_is_open_in_the_agent_program(box: Box) -> None:
    """CASE 18: no descriptor but the three, no lock, and no process of gtrun while the agent works."""
    scene, issue = ready(box)
    scene.gtrun("dispatch", "me", issue)
    pid = scene.appears(f"{scene.home}/ready").strip()
    box.wait_for("sleep", lambda: box.path(f"/proc/{pid}/comm").read_text() == "sleep\n")
    # what the shell closes just before it executes sleep may still be listed
    opened = box.wait_for("its descriptors", lambda: links(box.path(f"/proc/{pid}/fd")))
    assert sorted(opened) == ["0", "1", "2"], opened
    assert "memfd:prompt" in opened["0"]
    assert opened["1"].startswith("socket:")
    (record,) = box.path(f"{scene.state}/runs/open").glob("*.jsonl")
    box.run("flock", "-n", f"{scene.state}/runs/open/{record.name}", "true", account="alice")
    inside = box.run("pgrep", "-u", "alice", "-f", "gtrun", check=1)
    assert inside.out == ""
    scene.gtrun("stop", issue)


def test_an_interrupted_wait_leaves_the_run(box: Box) -> None:
    scene, issue = ready(box)
    process = box.spawn("gtrun", "dispatch", "me", issue, "--wait", account="alice")
    scene.appears(f"{scene.home}/ready")
    box.signal(process, signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert re.fullmatch(rf"started task-{issue}\.service on me, run [0-9a-f]{{32}}\n", out.decode())
    assert err.decode().splitlines() == [
        f"gtrun: interrupted: task-{issue}.service on me goes on",
        f"gtrun: hint: gtrun logs -f {issue}, or gtrun stop {issue}",
    ]
    assert scene.properties(f"task-{issue}.service", "ActiveState") == {"ActiveState": "active"}
    box.run("pgrep", "-u", "alice", "-f", "gtrun", check=1)
    scene.gtrun("stop", issue)
    assert scene.kinds(issue) == ["started", "finished"]


MUTANTS = [
    Mutant(
        "XDG_RUNTIME_DIR not derived",
        [
            Edit(
                "account.py",
                'derived = f"/run/user/{uid}"\n    runtime',
                'derived = "/run"\n    runtime',
            )
        ],
        works_without_session,
        r"exit code 69: gtrun: no user manager of alice to talk to",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
