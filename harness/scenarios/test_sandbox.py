"""The sandbox: the agent program is inside, runner and close-out are outside, and what does not hold is said."""

from __future__ import annotations

import re

import pytest

from harness.barrier import Barrier
from harness.box import Box
from harness.conftest import MakeBox
from harness.control import Edit, Mutant, kill, prepare
from harness.scenarios.test_launch import BEFORE_RESOLVE
from harness.scenarios.test_reload import disturb
from harness.scenarios.test_start import answer
from harness.scene import Scene
from harness.trees import root_of

GIVEN = 'credentials = { token = "~/token" }\ncredential_environment = { TOKEN = "token" }\n'
SANDBOX = """[run.sandbox]
protect_system = "strict"
protect_home = "tmpfs"
private_tmp = true
private_devices = true
private_network = true
protect_kernel_tunables = true
protect_control_groups = true
no_new_privileges = true
bind_paths = ["~/src"]
bind_read_only_paths = ["~/bin"]
inaccessible_paths = ["/var/log"]
"""
TRIES = """#!/bin/sh
tell() { echo "$1 $2"; }
try() { if "$@" 2>&-; then echo yes; else echo no; fi; }
{
tell usr "$(try touch /usr/x)"; tell etc "$(try touch /etc/x)"; tell var "$(try touch /var/x)"
tell home "$(try cat ~/secret)"; tell state "$(try ls ~/.local)"; tell bus "$(try ls /run/user/*/bus)"
tell tmp "$(try ls /tmp/seen)"; tell log "$(try ls /var/log)"; tell bin "$(try touch ~/bin/x)"
tell src "$(try touch ~/src/x)"; tell disk "$(try ls /dev/loop-control)"; tell sys "$(try touch /sys/fs/cgroup)"
tell net "$(readlink /proc/self/ns/net)"; tell sudo "$(sed -n 's/NoNewPrivs:.//p' /proc/self/status)"
tell variables "$(env | grep -cE '^(LISTEN|NOTIFY)')"; tell descriptors "$(ls /proc/self/fd | wc -l)"
tell secret "$TOKEN"; tell id "$(id -un)"; tell stdin "$(cat)"
} > ~/src/telling
mv ~/src/telling ~/src/told
until [ -e ~/src/go ]; do sleep 0.05; done
exit 5
"""
INSIDE = {
    "usr": "no", "etc": "no", "var": "no", "home": "no", "state": "no", "bus": "no", "tmp": "no", "log": "no",
    "bin": "no", "src": "yes", "disk": "no", "sys": "no", "sudo": "1", "variables": "0", "descriptors": "4",
    "id": "alice", "secret": "s3", "stdin": "Mend the roof",
}  # fmt: skip
"""What the program finds, whatever its account could do outside. Four descriptors: one is of `ls` itself."""

WRAPPER = """#!/bin/sh
echo "$1 $(readlink /proc/self/ns/net) $(readlink /proc/self/ns/user)" 2>&- >> /home/alice/places
exec /opt/gtrun/bin/gtrun "$@"
"""


def holds(box: Box) -> None:
    """Everything at once: the program finds it so, dispatch, `ps` and doctor agree, and the end is told as ever.

    The board lies in the home, which the sandbox hides, and no network is left: whoever posts a marker is outside.
    """
    scene = Scene(box)
    scene.sh(
        "mkdir -p ~/src ~/bin; echo s > ~/secret; touch /tmp/seen; echo '{title}' > ~/prompt;"
        "(umask 077; echo s3 > ~/token)"
    )
    box.write("/usr/local/bin/outside", WRAPPER, mode=0o755)
    rig = '[rigs.here]\ngtrun = "/usr/local/bin/outside"\n'
    box.write(f"{scene.home}/bin/tries", TRIES, owner=scene.account, mode=0o755)
    scene.configure(f'[run]\ncommand = ["~/bin/tries"]\nworkdir = "~/src"\nprompt = "~/prompt"\n{GIVEN}{SANDBOX}{rig}')
    issue = scene.issue()
    waiting = box.spawn("gtrun", "dispatch", "me", issue, "--wait", account=scene.account)
    told = dict(line.split(" ", 1) for line in scene.appears(f"{scene.home}/src/told").splitlines())
    network = told.pop("net")
    listed = scene.asks("ps")["runs"]
    assert [run["not_in_force"] for run in listed] == [[]], f"not in force: {listed}"
    examined = scene.asks("doctor")["findings"]
    assert "the limits and the sandbox that it has are in force" in [each["what"] for each in examined]
    disturb(scene)
    box.path(f"{scene.home}/src/go").touch()
    done = answer(waiting)
    assert done.code == 5, f"exit code {done.code}: {done.err}"
    assert "not in force" not in done.err
    assert told == INSIDE
    kinds = scene.kinds(issue)
    assert kinds == ["started", "finished"], f"markers {kinds}"
    (run,) = scene.runs(issue)
    assert (run["ending"]["result"], run["ending"]["exit_code"]) == ("failed", 5)
    ours = box.run("readlink", "/proc/self/ns/net", "/proc/self/ns/user").out.split()
    places = [line.split() for line in box.path(f"{scene.home}/places").read_text().splitlines()]
    wanted = [[name, *ours] for name in ("run", "closeout", "closeout")]  # the second close-out is the fallback
    assert places == wanted, f"the runner and the close-out were at {places}"
    assert network != ours[0]
    assert not scene.open_records()


def test_sandbox_holds(box: Box) -> None:
    holds(box)


@pytest.mark.parametrize("suite", ["trixie", "sid"])
def test_sandbox_holds_on_newer_systemd(make_box: MakeBox, suite: str) -> None:
    tree = root_of(suite)  # type: ignore[arg-type]
    holds(make_box(tree=tree.path, venv=tree.venv))


def mounts_hold(box: Box) -> None:
    """The few that most profiles have: no warning, and the markers are there although the home is hidden."""
    scene = Scene(box)
    sandbox = 'protect_system = "strict"\nprotect_home = "tmpfs"\nprivate_tmp = true'
    scene.runs_shell("exec sleep 60", f'workdir = "/"\n[run.sandbox]\n{sandbox}\n')
    issue = scene.issue()
    done = scene.gtrun("dispatch", "me", issue, check=None)
    assert (done.code, done.err) == (0, ""), f"dispatch ended with {done.code} and said: {done.err}"
    scene.gtrun("stop", issue)
    assert scene.kinds(issue) == ["started", "finished"], f"markers {scene.kinds(issue)}"


def ignored_is_said(box: Box) -> None:
    """Without a user namespace systemd 252 takes it all, shows it as set, and does nothing: each key is named."""
    scene = Scene(box)
    sandbox = 'protect_system = "strict"\nprotect_home = "read-only"\nprivate_tmp = true\nread_only_paths = ["~/src"]'
    scene.sh("mkdir -p ~/src")
    scene.runs_shell("exec sleep 60", f"[run.sandbox]\n{sandbox}\n")
    drop_in = f"{scene.home}/.config/systemd/user/task-.service.d/open.conf"
    box.write(drop_in, "[Service]\nPrivateUsers=no\n", owner=scene.account)
    issue = scene.issue()
    done = scene.gtrun("dispatch", "me", issue)
    unit = f"task-{issue}.service"
    keys = [f"sandbox.{key}" for key in ("protect_system", "protect_home", "private_tmp", "read_only_paths")]
    shown = scene.properties(unit, "ProtectSystem", "ProtectHome", "PrivateTmp")
    assert shown == {"ProtectSystem": "strict", "ProtectHome": "read-only", "PrivateTmp": "yes"}
    said = re.findall(r"^gtrun: warning: (\S+) is not in force on me: its processes do not", done.err, re.MULTILINE)
    assert said == keys, f"dispatch said: {done.err!r}"
    assert f"gtrun: warning: a drop-in changes {unit} on me: {drop_in}\n" in done.err
    (run,) = scene.asks("ps")["runs"]
    assert (run["not_in_force"], run["drop_ins"]) == (keys, [drop_in])
    page = scene.gtrun("ps").err
    assert f"not in force for {unit} on me: {', '.join(keys)}" in page
    assert f"changed by a drop-in is {unit} on me: {drop_in}" in page
    scene.gtrun("stop", issue)
    assert scene.results(issue) == ["stopped"]


def test_ignored_sandbox_is_said(box: Box) -> None:
    ignored_is_said(box)


def test_refused_before_anything_starts(box: Box) -> None:
    """A path that is not there, and what would hide the program, its folder or gtrun itself."""
    scene = Scene(box)
    issue = scene.issue()
    box.write(f"{scene.home}/bin/agent", "#!/bin/sh\n", owner=scene.account, mode=0o755)
    refused = {
        'read_write_paths = ["~/none"]': "sandbox.read_write_paths: /home/alice/none is not there",
        'inaccessible_paths = ["~/bin"]': "sandbox.inaccessible_paths hides the program: /home/alice/bin/agent",
        "protect_home = true": "sandbox.protect_home hides the program: /home/alice/bin/agent",
        'protect_home = "tmpfs"\nbind_paths = ["~/bin"]': "sandbox.protect_home hides the workdir: /home/alice",
        'inaccessible_paths = ["/opt"]': "sandbox.inaccessible_paths hides gtrun itself: /opt/gtrun/bin/",
    }
    for sandbox, reason in refused.items():
        scene.configure(f'[run]\ncommand = ["~/bin/agent"]\n[run.sandbox]\n{sandbox}\n')
        done = scene.gtrun("dispatch", "me", issue, check=1)
        assert reason in done.err, done.err
        assert "hint: " in done.err
    assert not scene.runs(issue)
    assert not scene.markers(issue)


def test_program_that_only_the_sandbox_keeps_from_running(box: Box) -> None:
    """What nobody can tell from outside ends as `failed`, with the code of a shell and the reason."""
    scene = Scene(box)
    box.write(f"{scene.home}/hidden/sh", "", owner=scene.account, mode=0o755)
    box.write(f"{scene.home}/agent", f"#!{scene.home}/hidden/sh\n", owner=scene.account, mode=0o755)
    inaccessible = '[run.sandbox]\ninaccessible_paths = ["~/hidden"]\n'
    scene.configure(f'[run]\ncommand = ["~/agent"]\n{inaccessible}')
    issue = scene.issue()
    scene.gtrun("dispatch", "me", issue, "--wait", check=126)
    (run,) = scene.runs(issue)
    assert run["ending"]["reason"] == f"inside its sandbox: cannot execute {scene.home}/agent: Permission denied"
    scene.configure(f'[run]\ncommand = ["cat", "{{prompt_file}}"]\n{inaccessible}')
    scene.gtrun("dispatch", "me", issue, "--wait")
    assert "Work on issue 1: Mend the roof" in scene.gtrun("logs", issue).out
    scene.configure(f'[run]\ncommand = ["~/agent"]\n{inaccessible}')
    scene.gtrun("board", "close", issue)
    scene.gtrun("dispatch", "me", issue, "--wait", env={"GTRUN_BACKEND": "x"})
    assert scene.results(issue)[1:] == ["success", "disposed"]
    assert scene.kinds(issue) == ["started", "finished"] * 2
    box.write(
        f"{scene.home}/.config/systemd/user/task-.service.d/hide.conf", "[Service]\nInaccessiblePaths=/opt\n",
        owner=scene.account,
    )  # fmt: skip
    scene.gtrun("board", "reopen", issue)
    scene.sh("systemctl --user daemon-reload")
    scene.gtrun("dispatch", "me", issue, check=None)
    scene.idle()
    ending = scene.runs(issue)[-1]["ending"]
    assert (ending["result"], ending["reason"]) == ("failed", "not executed: exit-code, status 203/EXEC")


PREPARING = Edit("reach/operations/starting.py", "_PREPARING = 10.0", "_PREPARING = 1.0")


@pytest.mark.parametrize(
    ("ends_it", "result", "reason"),
    [
        ("gtrun stop 1", "stopped", "by gtrun stop (alice)"),
        ("systemctl --user stop task-1.service", "stopped", "by systemd"),
        ("systemctl --user kill -s KILL task-1.service", "killed", "from outside"),
    ],
    ids=["gtrun stop", "systemctl stop", "kill"],
)
def test_ended_while_it_was_prepared(box: Box, ends_it: str, result: str, reason: str) -> None:
    """A dispatch does not wait for a slow runner, and says what it has not seen; an end then is told as what it is."""
    prepare(box, [BEFORE_RESOLVE.edit, PREPARING])
    scene = Scene(box)
    scene.runs_shell("exit 0", "[run.sandbox]\nprivate_tmp = true\n")
    issue = scene.issue()
    BEFORE_RESOLVE.close(scene)
    done = scene.gtrun("dispatch", "me", issue)
    assert f"warning: task-{issue}.service is still preparing, so nobody has seen its sandbox yet" in done.err
    (run,) = scene.asks("ps")["runs"]
    assert (run["active"], run["sub"], run["not_in_force"]) == ("activating", "start-pre", [])
    scene.gtrun("dispatch", "me", issue, check=11)
    scene.gtrun("reconcile")  # the command of a credential may take long, and keeps nobody from the record
    scene.sh(ends_it)
    scene.idle()
    (ended,) = scene.runs(issue)
    assert (ended["ending"]["result"], ended["ending"]["reason"]) == (result, reason)
    assert not scene.markers(issue)
    assert not scene.open_records()


IN_APPEND = Barrier("in-append", "state/record.py", "            _append(own, _read(own), facts)")


def test_killed_while_it_writes_inside(box: Box) -> None:
    """The manager keeps the record open for the unit; a lock on it must not outlive whoever took it."""
    prepare(box, [IN_APPEND.edit])
    scene = Scene(box)
    scene.runs_shell("exit 0", "[run.sandbox]\nprivate_tmp = true\n")
    issue = scene.issue()
    IN_APPEND.close(scene)
    dispatching = box.spawn("gtrun", "dispatch", "me", issue, account=scene.account)
    IN_APPEND.wait_for(scene)
    scene.sh(f"systemctl --user kill -s KILL task-{issue}.service")
    assert answer(dispatching).code == 0
    scene.idle(timeout=20)
    assert scene.results(issue) == ["killed"]
    assert scene.kinds(issue) == ["started", "finished"]
    assert not scene.open_records()


RETURNS = "    found = []\n    if cgroup:\n"
MUTANTS = [
    Mutant(
        "accepted is in force",
        [Edit("systemd/effects.py", RETURNS, "    return []\n" + RETURNS)],
        ignored_is_said,
        r"dispatch said: ",
    ),
    # of systemd 252: newer ones make the namespace by themselves
    Mutant(
        "no PrivateUsers",
        [Edit("systemd/sandbox.py", "    if sandbox != Sandbox(no_new_privileges=True):", "    if False:")],
        mounts_hold,
        r"ended with 0 and said: gtrun: warning: sandbox\.protect_system is not in force on me",
    ),
    Mutant(
        "close-out inside",
        [Edit("systemd/sandbox.py", '[("PermissionsStartOnly", "b", True)]', "[]")],
        mounts_hold,
        r"ended with 1 and said: gtrun: the manager of alice could not execute task-1\.service",
    ),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
