"""The values that the rooms hand each other. Nothing here does anything."""

from enum import StrEnum

import msgspec

from gtrun.names import IssueKey, RunId, Token, UnitName


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work as a board tells it; every text in it is untrusted. Of a plugin it is the key and a title.

    `priority` counts from 0, the most urgent; `created_at` is in seconds since the epoch, and so is `turned_at`, when
    somebody last reopened it or changed its labels (None: nobody has, or the board does not know).
    `is_pull`: it is a pull request, which some boards number along with issues. `moved_to`: it was transferred, and
    this is its name now. `is_by_stranger`: it was opened by somebody whose word does not count on this board. Blockers
    in other repositories are named only while they are open.
    """

    key: IssueKey
    title: str
    body: str = ""
    labels: tuple[str, ...] = ()
    priority: int = 2
    is_open: bool = True
    blocked_by: tuple[IssueKey, ...] = ()
    url: str = ""
    created_at: float = 0.0
    turned_at: float | None = None
    is_pull: bool = False
    moved_to: str = ""
    is_by_stranger: bool = False


class Standing(StrEnum):
    """Where an issue stands. Only what is ready is handed out by itself; a person can dispatch what is awaiting."""

    READY = "ready"
    AWAITING = "awaiting"
    SHIPPED = "shipped"
    NOT_WORK = "not-work"


class PullState(StrEnum):
    """What has become of a pull request."""

    OPEN = "open"
    DRAFT = "draft"
    MERGED = "merged"
    CLOSED = "closed"


class PullRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pull request whose merge closes an issue, as a board tells it; every text in it is untrusted.

    `auto_merge` is whether it will be merged by itself once its checks pass. `repo` is where it is, empty on a board
    without repositories; `merged_at` is in seconds since the epoch.
    """

    url: str
    state: PullState
    auto_merge: bool = False
    repo: str = ""
    merged_at: float | None = None


class Comment(msgspec.Struct, frozen=True, kw_only=True):
    """One comment on an issue; `at` is in seconds since the epoch."""

    author: str
    body: str
    at: float


class Result(StrEnum):
    """How a run ended."""

    SUCCESS = "success"
    FAILED = "failed"
    TIMEOUT = "timeout"
    IDLE = "idle"
    STOPPED = "stopped"
    KILLED = "killed"
    OOM_KILL = "oom-kill"
    QUOTA = "quota"
    LOST = "lost"
    DISPOSED = "disposed"


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits on the unit: sizes in bytes, `cpu_quota` in per cent of one CPU (systemd.resource-control(5)).

    `oom_policy` is OOMPolicy of systemd.service(5), `nofile` LimitNOFILE of systemd.exec(5).
    """

    memory_max: int | None = None
    memory_high: int | None = None
    memory_swap_max: int | None = None
    tasks_max: int | None = None
    cpu_weight: int | None = None
    cpu_quota: int | None = None
    io_weight: int | None = None
    oom_policy: str | None = None
    nofile: int | None = None


class Sandbox(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the agent program is kept from, under the names of systemd.exec(5).

    `protect_system` and `protect_home` are systemd's own words (`yes`, `strict`, …), None for none.
    """

    protect_system: str | None = None
    protect_home: str | None = None
    private_tmp: bool = False
    private_devices: bool = False
    private_network: bool = False
    protect_kernel_tunables: bool = False
    protect_control_groups: bool = False
    no_new_privileges: bool = False
    read_write_paths: tuple[str, ...] = ()
    read_only_paths: tuple[str, ...] = ()
    inaccessible_paths: tuple[str, ...] = ()
    bind_paths: tuple[str, ...] = ()
    bind_read_only_paths: tuple[str, ...] = ()

    @property
    def is_asked_for(self) -> bool:
        """Whether there is any sandbox: then the runner and the close-out are outside of it."""
        return self != Sandbox()


class Plugin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The plugin that a run is of: `kind` is "wasi" or "executable", `digest` the SHA-256 of its bytes in hexadecimal.

    For a module: `memory_max` and `size` are in bytes, `fuel` counts WebAssembly's own steps (None: any number), and
    it sees its work folder, and these: `directories` to read, `writable_directories` to change as well.
    """

    name: str
    kind: str
    digest: str
    size: int
    arguments: tuple[str, ...] = ()
    memory_max: int = 0
    fuel: int | None = None
    directories: tuple[str, ...] = ()
    writable_directories: tuple[str, ...] = ()


class Credential(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a secret comes from: a file, which may be encrypted (systemd-creds(1)), or what a command prints."""

    path: str = ""
    encrypted: bool = False
    command: tuple[str, ...] = ()


class Notice(StrEnum):
    """The news that gtrun gives by itself."""

    RUN_ENDED = "RUN_ENDED"
    AGENT_DARK = "AGENT_DARK"
    SCHEDULER_OPEN = "SCHEDULER_OPEN"
    SLOT_OPEN = "SLOT_OPEN"
    SLOT_BLOCKED = "SLOT_BLOCKED"


class Notify(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The command that is told of notices, none for nobody, and for how many seconds it may run.

    Its program is absolute, or begins with `~/` as long as nobody has said whose home that is.
    """

    command: tuple[str, ...] = ()
    timeout: float = 10.0


class GitHubPlace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A repository whose issues are the board: `repo` is `owner/name` in small letters, `api` the root of its REST API.

    `token_file` may begin with `~/`, the home of whoever opens the board: each account has a token of its own.
    `trusted` are the authors whose comments count: an author_association of GitHub's in capitals, or a login.
    `priority_labels` are the labels that tell how urgent an issue is, the most urgent first.
    """

    repo: str
    api: str = "https://api.github.com"
    token_file: str = ""
    trusted: tuple[str, ...] = ("OWNER", "MEMBER", "COLLABORATOR")
    priority_labels: tuple[str, ...] = ("P0", "P1", "P2", "P3", "P4")

    @property
    def address(self) -> str:
        """What tells this board from any other: the address of the repository in the REST API."""
        return f"{self.api}/repos/{self.repo}"

    @property
    def web(self) -> str:
        """Where people look at it.

        The API of GitHub.com, and of Enterprise in the cloud, has a host of its own; a server's is below /api/v3
        (docs.github.com, "Getting started with the REST API").
        """
        scheme, _, rest = self.api.partition("://")
        host, slash, path = rest.partition("/")
        if not slash and host.startswith("api.") and host.endswith((".github.com", ".ghe.com")):
            host = host.removeprefix("api.")
        return f"{scheme}://{host}{slash}{path.removesuffix('api/v3')}".rstrip("/") + f"/{self.repo}"


class BoardRef(msgspec.Struct, frozen=True):
    """Which board is meant: its file, and its identity, since on another box the same path may lead to another board.

    Where the identity is not known, `machine` (machine-id(5)) is the box on which the path was meant. A repository of
    GitHub's has its address for both, and is the same from every box.
    """

    path: str
    identity: str = ""
    machine: str = ""
    github: GitHubPlace | None = None


class ResolvedRun(msgspec.Struct, frozen=True, kw_only=True):
    """All that the runner and the close-out need, so that neither reads fleet.toml.

    `command` and `prompt` still carry their placeholders: `{run}` is known only once systemd has started the unit.
    `attempt` counts the issue's runs from 1, and `previous` tells how the one before this ended.
    `board` is an absolute path or an address: `board_ref` tells which board is meant by it. `time_limit`, `idle_limit`
    and `stop_timeout` are in seconds; `path` and `clones` hold absolute folders; `worktree` is "clone" or "fresh";
    `branch` is a branch of their remotes, empty for the default one; `stash_max` is in bytes.
    `credential_environment` says which variable of the agent program gets which credential.
    With a `plugin` that is what is executed, and not `command`; `issue` then has its key, and no board has that.
    A newer release than the dispatcher's may read it: a field that is added needs a default.
    """

    token: Token
    agent: str
    rig: str
    issue: Issue
    unit: UnitName
    identifier: str
    board: str
    terminal_labels: tuple[str, ...]
    terminal_glyphs: tuple[str, ...]
    backend: str
    command: tuple[str, ...]
    prompt: str
    workdir: str
    environment: dict[str, str]
    path: tuple[str, ...]
    time_limit: float | None
    stop_timeout: float
    limits: Limits
    sandbox: Sandbox = Sandbox()
    slice: str | None = None
    keep: float
    dispatched_at: float
    dispatched_by: str
    quota_patterns: tuple[str, ...] = ()
    quota_exit_codes: tuple[int, ...] = ()
    attempt: int = 1
    previous: str = ""
    credentials: dict[str, Credential] = {}
    credential_environment: dict[str, str] = {}
    update: bool = True
    clones: tuple[str, ...] = ()
    worktree: str = "clone"
    branch: str = ""
    stash_max: int = 512 << 20
    board_identity: str = ""
    board_machine: str = ""
    board_github: GitHubPlace | None = None

    @property
    def board_ref(self) -> BoardRef:
        """The board that the issue is on."""
        return BoardRef(self.board, self.board_identity, self.board_machine, self.board_github)

    idle_limit: float | None = None
    notify: Notify = Notify()
    plugin: Plugin | None = None


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Who had a command run here from somewhere else, `account@host`, and the configuration that says so.

    It is what the other side says of itself.
    """

    by: str
    source: str


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run used: CPU in seconds, memory in bytes; None where the kernel does not say."""

    cpu: float | None = None
    memory_peak: int | None = None


class Ending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The truth about one run, as the close-out judged it.

    Exactly one of `exit_code` and `signal` is set unless the main process never was (`lost`, and some failures).
    `duration` is in seconds from the unit's start to the end of its main process. `resets_at` is until when the quota
    is used up, in seconds since the epoch, if the run ended of that.
    """

    result: Result
    reason: str = ""
    exit_code: int | None = None
    signal: str | None = None
    duration: float | None = None
    usage: Usage = Usage()
    service_result: str = ""
    resets_at: float | None = None

    @property
    def shell_code(self) -> int:
        """The run's own exit code as a shell gives it: 128+n for a signal."""
        if self.signal is not None:
            from signal import Signals  # noqa: PLC0415 - only `dispatch --wait` asks

            name = self.signal if self.signal.startswith("SIG") else f"SIG{self.signal}"
            return 128 + (Signals[name].value if name in Signals.__members__ else 0)
        if self.exit_code is not None:
            return self.exit_code
        return 0 if self.result in {Result.SUCCESS, Result.DISPOSED} else 1


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run as its record tells it. Times are in seconds since the epoch.

    `idle_for` is for how many seconds it had done nothing when gtrun asked to stop it for that.
    `pulls` are the issue's pull requests when its finished marker was written; None before that, and if they could not
    be asked for (`pulls_problem`).
    `release` is the folder of the release whose code the run is, `begun_in` of the one that its unit names; both are
    empty for an installation without releases.
    `works_in` are the clones that it does not use, each with the worktree that it uses instead.
    `is_dark_news` is whether it was this run that found the quota used up; `noticed` are the notices that are given.
    """

    resolved: ResolvedRun
    run: RunId | None = None
    begun_at: float | None = None
    notes: tuple[str, ...] = ()
    works_in: tuple[tuple[str, str], ...] = ()
    stop_asked_by: str | None = None
    idle_for: float | None = None
    ending: Ending | None = None
    ended_at: float | None = None
    owed: tuple[str, ...] = ()
    posted: tuple[str, ...] = ()
    is_quota_noted: bool = False
    pulls: tuple[PullRequest, ...] | None = None
    pulls_problem: str = ""
    begun_in: str = ""
    release: str = ""
    is_dark_news: bool = False
    noticed: tuple[str, ...] = ()
