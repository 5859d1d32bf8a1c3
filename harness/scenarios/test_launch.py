"""Launching: what occupies a name is said as what it is, and what cannot be executed is a failed launch."""

from __future__ import annotations

import re

import pytest

from harness.barrier import Barrier
from harness.box import Box
from harness.control import Edit, prepare
from harness.scenarios.test_start import answer
from harness.scene import Scene

BEFORE_RESOLVE = Barrier(
    "before-resolve", "runner/run.py", "        secrets = credentials.gather(resolved, os.environ)"
)
BEFORE_EXECVE = Barrier("before-execve", "runner/run.py", "                    become(armed(ready.program,")
UNIT_FILE = "[Service]\nExecStart=/bin/sleep 60\n"


def occupied(box: Box, set_up: str, told: str, hint: str) -> None:
    """What occupies issue 1's name, and is not live, is exit 1 with its states, its file and what frees the name."""
    scene = Scene(box)
    scene.runs_shell("exit 0")
    issue = scene.issue()
    scene.sh(set_up)
    done = scene.gtrun("dispatch", "me", issue, check=1)
    assert f"the name task-{issue}.service is occupied on me by something that is not live: {told}" in done.err
    assert hint in done.err
    assert [attempt[:2] for attempt in scene.attempts(issue)] == [("failed", 1)]
    assert not scene.runs(issue)
    assert not scene.open_records()
    assert not scene.markers(issue)


def test_name_of_a_failed_unit(box: Box) -> None:
    failed = "systemd-run --user -q --unit=task-1 false; until systemctl --user -q is-failed task-1; do sleep .05; done"
    occupied(
        box, failed, "loaded/failed/failed, from /run/user/1000/systemd/transient/task-1.service",
        "systemctl --user reset-failed task-1.service",
    )  # fmt: skip
    scene = Scene(box)
    scene.sh("systemctl --user reset-failed task-1.service")
    scene.gtrun("dispatch", "me", "1", "--wait")


def test_name_that_is_freed_in_time(box: Box) -> None:
    """What goes away within the short wait for it is no obstacle, also not for `--wait`, which waits once more."""
    prepare(box, [Edit("start.py", "_NAME_WAIT = 2.0", "_NAME_WAIT = 15.0")])
    scene = Scene(box)
    scene.runs_shell("exit 4")
    issue = scene.issue()
    unit = f"task-{issue}.service"
    scene.sh(
        f"systemd-run --user -q --unit={unit} false; until systemctl --user -q is-failed {unit}; do sleep .05; done"
    )
    process = box.spawn("gtrun", "dispatch", "me", issue, "--wait", account=scene.account)
    box.wait_for("the run record", lambda: bool(scene.open_records()))
    scene.sh(f"sleep 0.5; systemctl --user reset-failed {unit}")
    done = answer(process)
    assert done.code == 4, f"exit code {done.code}: {done.err}"


def test_name_of_a_masked_unit(box: Box) -> None:
    told = "masked/inactive/dead, from /home/alice/.config/systemd/user/task-1.service"
    occupied(box, "systemctl --user mask -q task-1.service", told, "systemctl --user unmask task-1.service")
    scene = Scene(box)
    scene.sh("systemctl --user unmask -q task-1.service")
    scene.gtrun("dispatch", "me", "1", "--wait")


def test_name_of_a_unit_file(box: Box) -> None:
    folder = "~/.config/systemd/user"
    occupied(
        box, f"mkdir -p {folder}; printf '{UNIT_FILE}' > {folder}/task-1.service; systemctl --user daemon-reload",
        "loaded/inactive/dead, from /home/alice/.config/systemd/user/task-1.service", "move its file away",
    )  # fmt: skip


def test_name_of_a_file_left_in_transient(box: Box) -> None:
    """A manager that crashed leaves such files; one that knows of it gives the name away no more."""
    folder = "$XDG_RUNTIME_DIR/systemd/transient"
    leave = f"mkdir -p {folder}; printf '{UNIT_FILE}' > {folder}/task-1.service; systemctl --user daemon-reload; "
    file = "/run/user/1000/systemd/transient/task-1.service"
    mend = f"rm {file} && systemctl --user daemon-reload"
    occupied(
        box,
        leave,
        f"loaded/inactive/dead, from {file}",
        f"a manager that crashed left that file; free the name with: {mend}",
    )
    scene = Scene(box)
    scene.sh(mend)
    scene.gtrun("dispatch", "me", "1", "--wait")


def test_name_of_an_exited_unit_that_remains(box: Box) -> None:
    """active/exited is live."""
    scene = Scene(box)
    scene.runs_shell("exit 0")
    issue = scene.issue()
    scene.sh(f"systemd-run --user -q --unit=task-{issue} -p RemainAfterExit=yes true")
    box.wait_for(
        "an exited unit", lambda: scene.properties(f"task-{issue}.service", "SubState") == {"SubState": "exited"}
    )
    done = scene.gtrun("dispatch", "me", issue, check=11)
    assert f"task-{issue}.service is already live on me (active/exited)" in done.err
    scene.sh(f"systemctl --user stop task-{issue}.service")
    scene.gtrun("dispatch", "me", issue, "--wait")


def nothing_was_started(scene: Scene, issue: str, reason: str) -> None:
    """The half that every failed launch owes: no unit, no open record, no marker, and the ledger knows why."""
    scene.idle()
    ((outcome, code, said),) = scene.attempts(issue)
    assert (outcome, code) == ("failed", 1)
    assert re.search(reason, said), said
    assert not scene.open_records()
    assert not scene.markers(issue)


def test_manager_cannot_execute_the_runner(box: Box) -> None:
    scene = Scene(box)
    box.write(f"{scene.home}/gtrun", "#!/no/such/interpreter\n", owner=scene.account, mode=0o755)
    scene.configure(f'[run]\ncommand = ["true"]\n[rigs.here]\ngtrun = "{scene.home}/gtrun"\n')
    issue = scene.issue()
    done = scene.gtrun("dispatch", "me", issue, check=1)
    assert f"could not execute task-{issue}.service: job failed, exit-code, status 203/EXEC" in done.err
    nothing_was_started(scene, issue, "203/EXEC")
    (run,) = scene.runs(issue)
    assert run["ending"]["result"] == "failed"
    assert run["ending"]["reason"] == "not executed: exit-code, status 203/EXEC"
    scene.configure('[run]\ncommand = ["true"]\n')
    scene.gtrun("dispatch", "me", issue, "--wait")


def test_runner_is_not_there(box: Box) -> None:
    scene = Scene(box)
    scene.configure('[run]\ncommand = ["true"]\n[rigs.here]\ngtrun = "/no/such/gtrun"\n')
    issue = scene.issue()
    done = scene.gtrun("dispatch", "me", issue, check=1)
    assert "alice cannot execute /no/such/gtrun, by which its unit would run gtrun" in done.err
    nothing_was_started(scene, issue, "cannot execute /no/such/gtrun")
    assert not scene.runs(issue)


def test_manager_refuses_the_unit(box: Box) -> None:
    """What the manager does not accept is its answer, with nothing left behind."""
    prepare(box, [Edit("systemd/transient.py", '("KillMode", "s", "control-group")', '("KillMode", "s", "gently")')])
    scene = Scene(box)
    scene.runs_shell("exit 0")
    issue = scene.issue()
    done = scene.gtrun("dispatch", "me", issue, check=1)
    assert f"the manager of alice refused task-{issue}.service: " in done.err
    nothing_was_started(scene, issue, r"refused task-1\.service: .*gently")
    assert not scene.runs(issue)


def test_program_that_fails_at_once_is_a_run(box: Box) -> None:
    scene = Scene(box)
    scene.configure('[run]\ncommand = ["false"]\n')
    for _ in range(3):
        issue = scene.issue()
        scene.gtrun("dispatch", "me", issue)
        scene.ends(issue)
        assert scene.results(issue) == ["failed"]
        assert scene.kinds(issue) == ["started", "finished"]
    scene.gtrun("dispatch", "me", issue, "--wait", check=1)
    assert scene.asks("dispatch", "me", issue, "--wait", check=1)["result"] == "failed"


@pytest.mark.parametrize(
    ("where", "code", "reason"),
    [
        (BEFORE_RESOLVE, 127, "the program '/home/alice/agent-program' is not there: looked in"),
        (BEFORE_EXECVE, 126, "cannot execute /home/alice/agent-program: No such file or directory"),
    ],
    ids=["before it is resolved", "before execve"],
)
def test_program_that_goes_away(box: Box, where: Barrier, code: int, reason: str) -> None:
    prepare(box, [where.edit])
    scene = Scene(box)
    program = f"{scene.home}/agent-program"
    box.write(program, "#!/bin/sh\n", owner=scene.account, mode=0o755)
    scene.configure(f'[run]\ncommand = ["{program}"]\n')
    issue = scene.issue()
    where.close(scene)
    scene.gtrun("dispatch", "me", issue)
    where.wait_for(scene)
    box.path(program).unlink()
    where.open(scene)
    scene.idle()
    (run,) = scene.runs(issue)
    assert (run["ending"]["result"], run["ending"]["exit_code"]) == ("failed", code)
    assert reason in run["ending"]["reason"]
    assert scene.kinds(issue) == (["started", "finished"] if where is BEFORE_EXECVE else [])
    assert not scene.open_records()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("echo no shebang\n", "Exec format error"),
        ("#!/no/such/interpreter\n", "the interpreter that its first line names is not there"),
    ],
    ids=["no shebang", "no interpreter"],
)
def test_script_that_the_kernel_does_not_take(box: Box, content: str, reason: str) -> None:
    """Only execve(2) can tell; it is a run that failed, with the code that a shell gives."""
    scene = Scene(box)
    box.write(f"{scene.home}/script", content, owner=scene.account, mode=0o755)
    scene.configure(f'[run]\ncommand = ["{scene.home}/script"]\n')
    issue = scene.issue()
    done = scene.gtrun("dispatch", "me", issue, "--wait", check=126)
    assert f"failed, exit code 126 (cannot execute {scene.home}/script: {reason})" in done.err
    assert scene.results(issue) == ["failed"]
    assert scene.kinds(issue) == ["started", "finished"]


def test_unit_as_a_person_expects_it(box: Box) -> None:
    scene = Scene(box)
    scene.runs_shell("exec sleep 60", 'time_limit = "90s"\nstop_timeout = "20s"')
    title = "--x \x1b[31mred\x1b[0m \u202eflip %h $HOME ;"
    issue = scene.issue(title)
    scene.gtrun("dispatch", "me", issue)
    listed = box.run("systemctl", "--user", "list-units", "--no-legend", "task-*", account="alice").out
    description = f"me: issue {issue}: --x \\x1b[31mred\\x1b[0m \\u202eflip %h $HOME ;"
    assert description in listed, listed
    unit = f"task-{issue}.service"
    names = ["Description", "Type", "CollectMode", "Delegate", "KillMode", "RuntimeMaxUSec", "TimeoutStopUSec"]
    shown = scene.properties(unit, *names, "SyslogIdentifier", "Documentation")
    assert shown.pop("SyslogIdentifier").startswith(f"task-{issue}.")
    assert shown.pop("Documentation") == f"file://{scene.home}/.local/share/gtrun/board/board.db#{issue}"
    assert shown == {
        "Description": description, "Type": "exec", "CollectMode": "inactive-or-failed", "Delegate": "yes",
        "KillMode": "control-group", "RuntimeMaxUSec": "1min 30s", "TimeoutStopUSec": "20s",
    }  # fmt: skip
    text = scene.sh(f"cat $XDG_RUNTIME_DIR/systemd/transient/{unit}").out
    commands = re.findall(r"^Exec(?:Start|StopPost)=-?(.+)$", text, re.MULTILINE)
    assert len(commands) == 3, text
    words = [word.strip('"') for command in commands for word in command.split()]
    assert all(re.fullmatch(r"[A-Za-z0-9_./=-]+", word) for word in words), words
    assert title[:3] not in words
    scene.gtrun("stop", issue)
