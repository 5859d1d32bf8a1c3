"""What fleet.toml says, with every default filled in and every value checked."""

import msgspec

from gtrun.errors import UsageError
from gtrun.model import Credential, GitHubPlace, Limits, Notify, Sandbox
from gtrun.names import IssueKey, parse_issue, plugin_key

DEFAULT_RIG = "here"
"""The rig where no rig is named: this very box. Not the host's name, which changes."""

DEFAULT_AGENT = "me"
"""The agent where no agent is named: whoever dispatches."""


class BoardConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The board. A comment that begins with a terminal glyph ends work on its issue.

    `path` is the absolute path of a local one, the address of one on GitHub (`GitHubPlace.address`). Only issues with
    the `ready_label` are handed out by themselves; without one, all that no stranger has opened.
    """

    path: str
    github: GitHubPlace | None = None
    ready_label: str | None = None
    terminal_labels: tuple[str, ...] = ("done", "wontfix")
    terminal_glyphs: tuple[str, ...] = ("✅", "⛔")


class ClaimConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where every claim is made, and the lock: an absolute path, and how long it is waited for, in seconds.

    `host` is `account@host` as ssh(1) takes it; None for whoever dispatches, here. With `machine_id` that host is
    recognised by it (machine-id(5)), otherwise by its name and addresses. `gtrun` is what is executed there.
    """

    lock: str
    wait: float = 20.0
    host: str | None = None
    machine_id: str | None = None
    gtrun: str = "gtrun"


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """How work is handed out by itself; times are in seconds.

    `settle` is for each run that a target was given; `backoff` doubles with each failure in a row, up to `backoff_max`.
    An issue of which `attempts` failed within `attempts_decay` waits. One of which a run succeeded, without a merge, is
    ready again `retry` after that; None: never by itself. `batch` is the most that one pass starts. Where its timer
    is installed, the next pass begins `every` after the end of one.
    """

    settle: float = 2.0
    backoff: float = 60.0
    backoff_max: float = 3600.0
    attempts: int = 3
    attempts_decay: float = 86400.0
    retry: float | None = None
    batch: int | None = None
    every: float = 120.0


class Rig(msgspec.Struct, frozen=True, kw_only=True):
    """A box. `gtrun` is what its units execute (None: this installation); `host` is None for this box, which is what
    ssh reaches it by otherwise. `max_runs` is how many runs its agents may have at the same time; None: each its own.
    """

    name: str
    gtrun: str | None = None
    host: str | None = None
    max_runs: int | None = None


class RunProfile(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent's runs are made; times are in seconds.

    The program, `prompt`, `workdir`, `path`, `clones`, `environment` and the files and programs of `credentials` may
    begin with `~/`, the home of the agent's account. `stash_max` is in bytes. `command` still carries its placeholders;
    an empty one cannot be dispatched. The quota is used up if a run fails with one of `quota_exit_codes`, or if one of
    `quota_patterns` is in its last lines (see `gtrun.exhausted`).
    """

    backend: str = ""
    command: tuple[str, ...] = ()
    prompt: str | None = None
    workdir: str | None = None
    time_limit: float | None = None
    idle_limit: float | None = None
    stop_timeout: float = 30.0
    environment: dict[str, str] = {}
    path: tuple[str, ...] = ("~/.local/bin", "/usr/local/bin", "/usr/bin", "/bin")
    limits: Limits = Limits()
    sandbox: Sandbox = Sandbox()
    slice: str | None = None
    credentials: dict[str, Credential] = {}
    credential_environment: dict[str, str] = {}
    keep: float = 30 * 86400.0
    quota_patterns: tuple[str, ...] = ()
    quota_exit_codes: tuple[int, ...] = ()
    update: bool = True
    clones: tuple[str, ...] = ()
    worktree: str = "clone"
    branch: str = ""
    stash_max: int = 512 << 20


class PluginProfile(msgspec.Struct, frozen=True, kw_only=True):
    """How the plugin of that name is run; times are in seconds, `memory_max` in bytes (None: what is usual).

    After a run that succeeded there is no other for `cooldown`. The last three are for WebAssembly modules alone;
    folders may begin with `~/`, the home of the agent's account.
    """

    cooldown: float | None = None
    time_limit: float = 600.0
    memory_max: int | None = None
    arguments: tuple[str, ...] = ()
    fuel: int | None = None
    directories: tuple[str, ...] = ()
    writable_directories: tuple[str, ...] = ()


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """A unix account on a rig; `account` is None for the account that dispatches.

    `reach` is how another account of this box is reached by whoever is not root: "ssh" or "sudo". `skills` and
    `max_runs` count where work is handed out by itself.
    """

    name: str
    rig: str
    account: str | None = None
    reach: str | None = None
    skills: tuple[str, ...] = ()
    max_runs: int = 1
    run: RunProfile = RunProfile()


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration; `source` is the file it comes from, None where there is no file."""

    source: str | None
    board: BoardConfig
    claim: ClaimConfig
    rigs: dict[str, Rig]
    agents: dict[str, Agent]
    schedule: Schedule = Schedule()
    notify: Notify = Notify()
    plugins: dict[str, PluginProfile] = {}

    def work_key(self, text: str) -> IssueKey:
        """What `issue_key` takes, or the `plugin:NAME` that a plugin goes by. Raises UsageError."""
        name = text.removeprefix("plugin:")
        return self.issue_key(text) if name == text else plugin_key(name)

    def issue_key(self, text: str) -> IssueKey:
        """The issue that was typed; one of the board's own repository has its number alone, however it is written.

        It has one unit name only if it has one key. Raises UsageError.
        """
        github = self.board.github
        return parse_issue(text, own=github.web if github else "")

    def target(self, name: str) -> list[Agent]:
        """The agents that a TARGET stands for: itself, or those of a rig. Raises UsageError."""
        if name in self.rigs:
            return [agent for agent in self.agents.values() if agent.rig == name]
        return [self.agent(name)]

    def agent(self, name: str) -> Agent:
        """The agent that was typed. Raises UsageError, which names those there are."""
        if name in self.agents:
            return self.agents[name]
        if name in self.rigs:
            there = [agent.name for agent in self.agents.values() if agent.rig == name]
            raise UsageError(
                f"{name} is a rig, and the issue is named: name the agent as well",
                hint=f"name one of its agents: {', '.join(there)}" if there else f"no agent has rig = {name!r}",
            )
        source = self.source or "the built-in configuration (there is no fleet.toml)"
        raise UsageError(
            f"there is no agent {name[:80]!r} in {source}",
            hint=f"known agents: {', '.join(self.agents)}",
        )
