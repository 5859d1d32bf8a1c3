"""Where the demo plays: in a throwaway machine with two agents, or on a person's own user manager with one."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from harness.box import CHECKOUT, Box
from harness.demo.issues import ISSUES

HERE = Path(__file__).parent
PROJECT = ("when.py", "checks.py")
OTHERS = ("GTRUN_", "DISPATCH_", "GIT_")
COMMAND_SECONDS = 30.0


class DemoFailed(Exception):
    """What was to be shown is not there."""


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent of the demo: its name, its account, its clone and the FIFO it waits at, both as a shell needs them."""

    name: str
    account: str
    clone: str
    nod: str


class Stage(Protocol):
    """What the demo needs of either place. `remote` and `look`, a clone to look at, are as a shell needs them."""

    agents: tuple[Agent, Agent]
    operator: str
    remote: str
    look: str

    def run(self, command: str, account: str) -> tuple[int, str]:
        """Run a shell command as an account; its exit code, and all that it wrote."""


def furnish(stage: Stage, project: str) -> None:
    """Put repository, clones, nods and issues in place; `project` is the folder with the repository's first files."""
    author = "-c user.name=maintainer -c user.email=maintainer@localhost"
    _set_up(
        stage,
        stage.operator,
        f"git init --quiet --bare --shared=group --initial-branch=main {stage.remote} && git init --quiet {stage.look}"
        f" && cd {stage.look} && cp {project}/when.py {project}/checks.py . && git add ."
        f" && git {author} commit --quiet --message 'when: tell about dates'"
        f" && git push --quiet {stage.remote} HEAD:main",
    )
    for agent in dict.fromkeys(stage.agents):
        _set_up(stage, agent.account, f"git clone --quiet {stage.remote} {agent.clone} && mkfifo {agent.nod}")
    for title, body, options in ISSUES:
        words = shlex.join(["gtrun", "board", "add", *options, f"--body={body}", "--", title])
        _set_up(stage, stage.operator, words)


def _set_up(stage: Stage, account: str, command: str) -> None:
    code, output = stage.run(command, account)
    if code != 0:
        raise DemoFailed(f"set-up: `{command}` ended with {code}\n{output}")


def wait_for(what: str, probe: Callable[[], bool], seconds: float = 20.0) -> None:
    """Ask until the answer is yes. Raises DemoFailed after so many seconds."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not probe():
        if time.monotonic() >= deadline:
            raise DemoFailed(f"{what}: not within {seconds:g} s")
        pause.wait(0.02)


class BoxStage:
    """A booted box: root dispatches for alice and bob."""

    operator = "root"
    remote = "/srv/git/when.git"
    look = "look"
    agents = (
        Agent("alice", "alice", "/home/alice/when", "/home/alice/nod"),
        Agent("bob", "bob", "/home/bob/when", "/home/bob/nod"),
    )
    FLEET = """\
[board]
path = "/srv/board/board.db"
[run]
backend = "demo"
command = ["/opt/demo/agent.py", "/home/{agent}/nod"]
workdir = "~/when"
time_limit = "5m"
[agents.alice]
account = "alice"
[agents.bob]
account = "bob"
"""

    def __init__(self, box: Box) -> None:
        """The box needs the accounts alice and bob in the group `fleet`."""
        self.box = box
        for name in PROJECT:
            box.write(f"/opt/demo/{name}", (HERE / "first-commit" / name).read_text())
        box.write("/opt/demo/agent.py", (HERE / "agent.py").read_text(), mode=0o755)
        box.write("/etc/gtrun/fleet.toml", self.FLEET)
        box.write("/etc/gitconfig", "[safe]\n\tdirectory = *\n[init]\n\tdefaultBranch = main\n")
        # setgid, without the sticky bit: what is made in it is the group's
        box.run("install", "-d", "-o", "root", "-g", "fleet", "-m", "2770", "/srv/board", "/srv/git")
        furnish(self, "/opt/demo")

    def run(self, command: str, account: str) -> tuple[int, str]:
        """As the account, in its home."""
        done = self.box.run(
            "bash", "-c", f"exec 2>&1\n{command}", account=account, check=None, timeout=COMMAND_SECONDS
        )  # fmt: skip
        return done.code, done.out


class HereStage:
    """The person's own user manager, with everything else in a temporary folder. A context manager."""

    def __init__(self) -> None:
        """Nothing is touched before the context is entered."""
        self.operator = pwd.getpwuid(os.getuid()).pw_name
        self.folder = Path()

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="gtrun-demo-"))
        try:
            self._furnish()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _furnish(self) -> None:
        self.remote = shlex.quote(str(self.folder / "when.git"))
        self.look = "look"
        me = Agent("me", self.operator, shlex.quote(f"{self.folder}/when"), shlex.quote(f"{self.folder}/nod"))
        self.agents = (me, me)
        (self.folder / "bin").mkdir()
        # a link, since a unit's command line takes only plain characters, and the checkout may lie anywhere
        (self.folder / "bin/gtrun").symlink_to(CHECKOUT / ".venv/bin/gtrun")
        shutil.copy(HERE / "agent.py", self.folder / "agent.py")
        (self.folder / "agent.py").chmod(0o755)
        config = self.folder / "config/gtrun/fleet.toml"
        config.parent.mkdir(parents=True)
        config.write_text(
            f"""\
[claim]
lock = "{self.folder}/claim.lock"
[run]
backend = "demo"
command = ["{self.folder}/agent.py", "{self.folder}/nod"]
workdir = "{self.folder}/when"
time_limit = "5m"
environment = {{ GIT_CONFIG_GLOBAL = "/dev/null", GIT_CONFIG_NOSYSTEM = "1" }}
[rigs.here]
gtrun = "{self.folder}/bin/gtrun"
[agents.me]
"""
        )
        furnish(self, shlex.quote(str(HERE / "first-commit")))

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # a second ^C must not leave half of it behind
        self.run("gtrun stop --agent me", self.operator)  # what is no run of this folder's records is left alone
        shutil.rmtree(self.folder)

    @property
    def environment(self) -> Mapping[str, str]:
        """The person's own, but for where gtrun and git keep and look for things."""
        folder = self.folder
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(OTHERS)},
            "XDG_RUNTIME_DIR": runtime_folder(),
            "XDG_CONFIG_HOME": f"{folder}/config",
            "XDG_DATA_HOME": f"{folder}/data",
            "XDG_STATE_HOME": f"{folder}/state",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "PATH": f"{folder}/bin:/usr/local/bin:/usr/bin:/bin",
        }

    def run(self, command: str, account: str) -> tuple[int, str]:  # noqa: ARG002 - there is but one here
        """As the person, in the temporary folder."""
        process = subprocess.Popen(
            ["/bin/bash", "-c", f"exec 2>&1\n{command}"],
            cwd=self.folder,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=COMMAND_SECONDS)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):  # communicate() waits a moment before it lets a ^C through
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        return process.returncode, output


def runtime_folder() -> str:
    """$XDG_RUNTIME_DIR, or what pam_systemd(8) would have set."""
    return os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"


def has_user_manager() -> bool:
    """Whether this account's user manager answers."""
    try:
        asked = subprocess.run(
            ["/usr/bin/systemctl", "--user", "show", "--property=Version"],
            env={**os.environ, "XDG_RUNTIME_DIR": runtime_folder()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10,
            check=False,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0
