"""Secrets of a run: the agent program has them, and nobody and nothing else does, on every systemd at hand."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.barrier import Barrier
from harness.box import Box
from harness.conftest import MakeBox
from harness.control import Edit, Mutant, kill, prepare
from harness.scene import Scene
from harness.trees import Suite, root_of

TOKEN, VAULT = "hush-token-4711", "hush-vault-0451"
UNIT = "task-1.service"
CONFIG = """\
[run]
command = ["sh", "-c", "{script}"]
credentials = {{ token = "/etc/gtrun/alice.token", vault = {{ command = ["~/bin/vault", "show"] }} }}
credential_environment = {{ GH_TOKEN = "token" }}
"""
PROGRAM = (
    "cd $CREDENTIALS_DIRECTORY; cat token vault > ~/first; echo $GH_TOKEN >> ~/first; echo $$ > ~/ready; "
    "until [ -e ~/go ]; do sleep 0.05; done; cat token vault > ~/last"
)
IN_RUNNER = Barrier("in-runner", "runner/run.py", "        record.append(Owed(Kind.STARTED))")
IN_CLOSEOUT = Barrier("in-closeout", "runner/closeout.py", "        signal.setitimer(signal.ITIMER_REAL, allowed)")
SETUP = [IN_RUNNER.edit, IN_CLOSEOUT.edit]


def equip(scene: Scene) -> None:
    """A secret that root gave the account, and one that a command of its own prints."""
    box = scene.box
    box.write("/etc/gtrun/alice.token", f"{TOKEN}\n", mode=0o640)
    box.run("chgrp", "alice", "/etc/gtrun/alice.token")
    scene.sh(f"mkdir -p bin; umask 077; echo {VAULT} > vault")
    script = "#!/bin/sh\ncat ~/vault ~/vault >&2\nexec cat ~/vault\n"
    box.write(f"{scene.home}/bin/vault", script, owner=scene.account, mode=0o755)
    scene.configure(CONFIG.format(script=PROGRAM))


def tellers(scene: Scene) -> Iterator[str]:
    """Wherever a secret can be read at this moment that is not one of its own files."""
    box = scene.box
    uid = box.account(scene.account).uid
    for procs in box.cgroup.rglob("cgroup.procs"):
        for pid in procs.read_text().split():
            for name in ("cmdline", "environ"):
                with contextlib.suppress(OSError):
                    if told(Path("/proc", pid, name).read_bytes()):
                        yield f"the {name} of {Path('/proc', pid, 'comm').read_text().strip()}"
    path = f"/org/freedesktop/systemd1/unit/{UNIT.replace('-', '_2d').replace('.', '_2e')}"
    everything = ["org.freedesktop.DBus.Properties", "GetAll", "s", ""]
    for what, command in {
        "show": ["systemctl", "--user", "show", "--all", UNIT],
        "cat": ["systemctl", "--user", "cat", UNIT],
        "property": ["busctl", "--user", "call", "org.freedesktop.systemd1", path, *everything],
    }.items():
        shown = box.run(*command, account=scene.account).stdout
        assert UNIT.encode() in shown, f"{what} shows nothing of the unit"
        if told(shown):
            yield f"the unit's {what}"
    if told(box.run("journalctl", "--quiet", "--all", "-o", "export").stdout):
        yield "the journal"
    own = (f"/run/user/{uid}/credentials/", f"/run/user/{uid}/gtrun.task-1.")
    files = ["grep", "-rls", "hush-", f"{scene.home}/.local", "/run/user", "/run/systemd", "/tmp", "/var/tmp"]  # noqa: S108
    for file in box.run(*files, check=None).out.splitlines():
        if not file.startswith(own):
            yield f"the file {file}"


def told(data: bytes) -> bool:
    """Whether a secret is in it, as text or as the numbers in which D-Bus tools print bytes."""
    return any(
        secret in data or b" ".join(b"%d" % byte for byte in secret) in data
        for secret in (TOKEN.encode(), VAULT.encode())
    )


def only_the_program_has_them(box: Box) -> None:
    """CASE 29, with SETUP in place: looked for in the runner, in the program, after a reload, in the close-out."""
    scene = Scene(box)
    equip(scene)
    issue = scene.issue()
    assert issue == "1"
    for barrier in (IN_RUNNER, IN_CLOSEOUT):
        barrier.close(scene)
    scene.gtrun("dispatch", "me", issue)
    IN_RUNNER.wait_for(scene)
    seen = sorted(tellers(scene))
    assert not seen, f"while the runner works: {seen}"
    IN_RUNNER.open(scene)
    scene.appears(f"{scene.home}/ready", timeout=20)
    assert box.path(f"{scene.home}/first").read_text() == f"{TOKEN}\n{VAULT}\n{TOKEN}\n"
    box.run("systemctl", "--user", "daemon-reload", account="alice")
    seen = sorted(set(tellers(scene)))
    # the program and what it starts itself
    assert set(seen) <= {"the environ of sh", "the environ of sleep"}, f"while the program works: {seen}"
    assert "the environ of sh" in seen
    for file in box.run("find", "/run/user/1000/credentials", "/run/user/1000", "-name", "token").out.split():
        assert box.run("cat", file, account="bob", check=1).out == ""
    scene.sh("touch ~/go")
    IN_CLOSEOUT.wait_for(scene)
    seen = sorted(tellers(scene))
    assert not seen, f"while the close-out works: {seen}"
    IN_CLOSEOUT.open(scene)
    scene.idle()
    assert box.path(f"{scene.home}/last").read_text() == f"{TOKEN}\n{VAULT}\n"
    assert scene.results(issue) == ["success"]
    left = box.run("grep", "-rls", "hush-", "/run", f"{scene.home}/.local", check=1).out
    assert left == "", f"left behind: {left}"
    assert "hush-" not in box.journal("--all", "-o", "export")


def test_only_the_program_has_them(box: Box) -> None:
    prepare(box, SETUP)
    only_the_program_has_them(box)
    refusals(box)


def refusals(box: Box) -> None:
    """What cannot be loaded is refused before anything starts, with what to do."""
    scene = Scene(box)
    for script, code, told_of in (
        ("chmod 600 /etc/gtrun/alice.token", 1, "cannot be loaded: Permission denied: /etc/gtrun/alice.token"),
        ("chmod 644 /etc/gtrun/alice.token", 1, "every account can read /etc/gtrun/alice.token"),
        ("rm /etc/gtrun/alice.token", 1, "cannot be loaded: No such file or directory: /etc/gtrun/alice.token"),
    ):
        box.run("sh", "-c", script)
        done = scene.gtrun("dispatch", "me", "1", check=code)
        assert told_of in done.err, done.err
        assert "gtrun: hint: " in done.err
    assert len(scene.runs("1")) == 1
    equip(scene)
    drop_in = f"{scene.home}/.config/systemd/user/task-.service.d/more.conf"
    box.write(drop_in, "[Service]\nLoadCredential=more:/nowhere\n", owner="alice")
    box.run("systemctl", "--user", "daemon-reload", account="alice")
    done = scene.gtrun("dispatch", "me", "1", check=1)
    assert "could not execute task-1.service: job failed, exit-code, status 243/CREDENTIALS" in done.err, done.err
    assert "hint: its manager could not load or decrypt a credential" in done.err
    assert scene.runs("1")[-1]["begun_at"] is None
    box.path(drop_in).unlink()
    box.run("systemctl", "--user", "daemon-reload", account="alice")
    box.write(f"{scene.home}/bin/vault", f"#!/bin/sh\necho {VAULT}; exit 2\n", owner="alice", mode=0o755)
    scene.gtrun("dispatch", "me", "1", "--wait", check=127)
    ending = scene.runs("1")[-1]["ending"]
    assert (ending["result"], ending["reason"]) == ("failed", f"credential vault: {scene.home}/bin/vault ended with 2")
    assert "hush-" not in box.journal("--all", "-o", "export")


def encrypted(box: Box, systemd: int) -> None:
    """Decrypted by the manager where it can, refused with the reason where it cannot."""
    scene = Scene(box)
    box.write("/root/plain", f"{TOKEN}\n", mode=0o600)
    config = (
        '[run]\ncommand = ["sh", "-c", "cat $CREDENTIALS_DIRECTORY/token > ~/first; echo $GH_TOKEN >> ~/first"]\n'
        'credentials = { token = { encrypted = "~/token.cred" } }\ncredential_environment = { GH_TOKEN = "token" }\n'
    )
    scene.configure(config)
    issue = scene.issue()
    if systemd < 256:
        box.write(f"{scene.home}/token.cred", "k6iUCUh0RJCQyvL8k8q1UyAAAAAB", owner="alice")
    else:
        box.run("systemd-creds", "encrypt", "--uid=alice", "--name=token", "/root/plain", f"{scene.home}/token.cred")
        box.run("chown", "alice", f"{scene.home}/token.cred")
    if systemd < 258:
        done = scene.gtrun("dispatch", "me", issue, check=1)
        assert f"a user manager of systemd {systemd} cannot decrypt it: that takes 258" in done.err
        if systemd < 256:
            return
        instead = re.search(r"token = (\{ command = \[.*\] \})$", done.err, re.MULTILINE)
        assert instead, done.err
        scene.configure(config.replace('{ encrypted = "~/token.cred" }', instead[1]))
    scene.gtrun("dispatch", "me", issue, "--wait")
    assert box.path(f"{scene.home}/first").read_text() == f"{TOKEN}\n{TOKEN}\n"
    if systemd < 258:
        return
    box.write(f"{scene.home}/token.cred", "k6iUCUh0RJCQyvL8k8q1UyAAAAAB", owner="alice")
    done = scene.gtrun("dispatch", "me", issue, check=1)
    assert "status 243/CREDENTIALS" in done.err, done.err
    assert "hint: its manager could not load or decrypt a credential" in done.err
    assert scene.results(issue) == ["success", "failed"]


def test_encrypted_where_nobody_decrypts(box: Box) -> None:
    encrypted(box, 252)


@pytest.mark.parametrize(("suite", "systemd"), [("trixie", 257), ("sid", 262)])
def test_on_another_systemd(make_box: MakeBox, suite: Suite, systemd: int) -> None:
    tree = root_of(suite)
    box = make_box(tree=tree.path, venv=tree.venv)
    encrypted(box, systemd)
    box.run("rm", "-r", f"{Scene(box).home}/.local")
    prepare(box, SETUP)
    only_the_program_has_them(box)


MUTANTS = [
    Mutant(
        "the secret as a property",
        [
            Edit(
                "systemd/transient.py",
                '        (key, "a(ss)", [(name, one.path) for name, one in files if one.encrypted is encrypted])',
                '        ("SetCredential", "a(say)", [(n, list(open(one.path, "rb").read())) for n, one in files])',
            )
        ],
        only_the_program_has_them,
        r"while the runner works: \[.*\"the unit's cat\"",
        setup=SETUP,
    ),
    Mutant(
        "the secret in the unit's environment",
        [
            Edit(
                "systemd/transient.py",
                '("LoadCredentialEncrypted", True))\n    return [',
                '("LoadCredentialEncrypted", True))\n'
                '    return [("Environment", "as", ["GH_TOKEN=" + open(files[0][1].path).read().strip()])] + [',
            )
        ],
        only_the_program_has_them,
        r"while the runner works: \['the environ of .*\"the unit's property\", \"the unit's show\"",
        setup=SETUP,
    ),
    Mutant(
        "what a command says is let through",
        [
            Edit(
                "process.py",
                'errors=subprocess.DEVNULL, folder="/"',
                'errors=2, folder="/"',
            )
        ],
        only_the_program_has_them,
        r"while the runner works: \['the journal'\]",
        setup=SETUP,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
