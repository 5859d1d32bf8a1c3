"""From the text of a fleet.toml to a Fleet, or to every mistake in it."""

import re
import tomllib
from typing import Any

from gtrun.config import values
from gtrun.config.schema import (
    DEFAULT_AGENT,
    DEFAULT_RIG,
    Agent,
    BoardConfig,
    ClaimConfig,
    Fleet,
    PluginProfile,
    Rig,
    RunProfile,
    Schedule,
)
from gtrun.config.shapes import Keys, Named, read
from gtrun.errors import ConfigError
from gtrun.model import GitHubPlace, Limits, Notify, Sandbox
from gtrun.text import plain

_LIMITS = Keys(
    {
        "memory_max": values.size,
        "memory_high": values.size,
        "memory_swap_max": values.size_or_none,
        "tasks_max": values.tasks,
        "cpu_weight": values.weight,
        "cpu_quota": values.per_cent,
        "io_weight": values.weight,
        "oom_policy": values.oom_policy,
        "nofile": values.descriptors,
    }
)
_SANDBOX = Keys(
    {
        "protect_system": values.protect_system,
        "protect_home": values.protect_home,
        "private_tmp": values.switch,
        "private_devices": values.switch,
        "private_network": values.switch,
        "protect_kernel_tunables": values.switch,
        "protect_control_groups": values.switch,
        "no_new_privileges": values.switch,
        "read_write_paths": values.plain_paths,
        "read_only_paths": values.plain_paths,
        "inaccessible_paths": values.plain_paths,
        "bind_paths": values.plain_paths,
        "bind_read_only_paths": values.plain_paths,
    }
)
_RUN = Keys(
    {
        "backend": values.line,
        "command": values.command,
        "prompt": values.path,
        "workdir": values.folder,
        "time_limit": values.duration,
        "idle_limit": values.idle_limit,
        "stop_timeout": values.stop_timeout,
        "environment": Named(values.variable, values.text),
        "path": values.search_path,
        "limits": _LIMITS,
        "sandbox": _SANDBOX,
        "slice": values.slice_name,
        "credentials": Named(values.credential_name, values.credential),
        "credential_environment": Named(values.variable, values.credential_reference),
        "keep": values.duration,
        "quota_patterns": values.patterns,
        "quota_exit_codes": values.exit_codes,
        "update": values.switch,
        "clones": values.clones,
        "worktree": values.worktree,
        "branch": values.branch,
        "stash_max": values.size,
    },
)
FLEET = Keys(
    {
        "board": Keys(
            {
                "kind": values.kind,
                "path": values.path,
                "terminal_labels": values.words,
                "terminal_glyphs": values.glyphs,
                "ready_label": values.word,
                "repo": values.repository,
                "api": values.api,
                "token_file": values.path,
                "trusted": values.authors,
                "priority_labels": values.words,
            }
        ),
        "claim": Keys(
            {
                "host": values.destination,
                "machine_id": values.machine_id,
                "gtrun": values.program_path,
                "lock": values.path,
                "wait": values.duration,
            }
        ),
        "schedule": Keys(
            {
                "settle": values.duration_or_none,
                "backoff": values.duration,
                "backoff_max": values.duration,
                "attempts": values.count,
                "attempts_decay": values.duration,
                "retry": values.duration,
                "batch": values.count,
                "every": values.duration,
            }
        ),
        "notify": Keys({"command": values.absolute_command, "timeout": values.duration}),
        "run": _RUN,
        "plugins": Named(
            values.plugin,
            Keys(
                {
                    "cooldown": values.duration,
                    "time_limit": values.duration,
                    "memory_max": values.size,
                    "arguments": values.arguments,
                    "fuel": values.fuel,
                    "directories": values.folders,
                    "writable_directories": values.folders,
                }
            ),
        ),
        "rigs": Named(
            values.name,
            Keys({"gtrun": values.program_path, "host": values.host, "max_runs": values.count}),
        ),
        "agents": Named(
            values.name,
            Keys(
                {
                    "rig": values.reference,
                    "account": values.account,
                    "reach": values.reach,
                    "skills": values.skills,
                    "max_runs": values.count,
                    "run": _RUN,
                }
            ),
        ),
    },
)
"""Every key of a fleet.toml."""


def parse(data: bytes, source: str, *, caller: str, home: str, board: str, lock: str) -> Fleet:
    """The fleet that a file describes. Raises ConfigError with one line for each mistake.

    `caller` and `home` are the account that dispatches; `board` and `lock` are the paths where the file names none.
    """
    wrong: list[str] = []
    tree = read(FLEET, _toml(data, source), wrong)
    _raise(wrong, source)
    rigs = {name: Rig(name=name, **table) for name, table in tree.get("rigs", {DEFAULT_RIG: {}}).items()}
    agents = {
        name: _agent(name, table, tree.get("run", {}), rigs, wrong)
        for name, table in tree.get("agents", {DEFAULT_AGENT: {}}).items()
    }
    if not agents:
        wrong.append("agents: expected at least one agent, found an empty table")
    wrong.extend(
        f"rigs.{rig.name}.gtrun: missing; a rig with a host needs the path of gtrun there, like /opt/gtrun/bin/gtrun"
        for rig in rigs.values()
        if rig.host is not None and rig.gtrun is None
    )
    _check_names(agents, rigs, wrong)
    _check_accounts(agents, rigs, caller, wrong)
    _raise(wrong, source)
    claim = {"lock": lock, **tree.get("claim", {})}
    claim["lock"] = _below(home, claim["lock"])
    board_config = _board(tree.get("board", {}), board, home, wrong)
    _raise(wrong, source)
    return Fleet(
        source=source, board=board_config, claim=ClaimConfig(**claim), rigs=rigs, agents=agents,
        schedule=Schedule(**tree.get("schedule", {})), notify=Notify(**tree.get("notify", {})),
        plugins={name: PluginProfile(**table) for name, table in tree.get("plugins", {}).items()},
    )  # fmt: skip


def _board(table: dict[str, Any], default: str, home: str, wrong: list[str]) -> BoardConfig:
    """The board of either kind; a key of the other one would count for nothing."""
    kind = table.pop("kind", "local")
    told = {key: table.pop(key) for key in GitHubPlace.__struct_fields__ if key in table}
    if kind == "local":
        wrong.extend(f'board.{key}: only a board with kind = "github" has it' for key in told)
        return BoardConfig(**{**table, "path": _below(home, table.get("path", default))})
    if "path" in table:
        wrong.append('board.path: only a board with kind = "local" has it')
    if "repo" not in told:
        wrong.append('board.repo: missing; expected the repository whose issues are the board, like "owner/name"')
    place = GitHubPlace(**{"repo": "", **told})
    return BoardConfig(**{**table, "path": place.address}, github=place)


def _below(home: str, path: str) -> str:
    return home + path.removeprefix("~") if path.startswith("~") else path


def _toml(data: bytes, source: str) -> dict[str, Any]:
    try:
        text = data.decode("utf-8-sig")  # an editor on Windows begins a file with U+FEFF
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{source}: line {line}: expected UTF-8, found the byte 0x{data[error.start]:02x}") from None
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{source}: nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"{source}: {_syntax_error(str(error), text)}") from None


def _syntax_error(message: str, text: str) -> str:
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", message, re.DOTALL)
    if not match:
        return f"not TOML: {plain(message)}"
    last = text.rstrip("\n").split("\n")
    line, column = (match[2], match[3]) if match[2] else (len(last), len(last[-1]) + 1)
    hint = " (a text needs quotes; true and false have small letters)" if match[1] == "Invalid value" else ""
    return f"line {line}, column {column}: not TOML: {plain(match[1])}{hint}"


def _raise(wrong: list[str], source: str) -> None:
    if wrong:
        raise ConfigError("\n".join(f"{source}: {mistake}" for mistake in wrong))


def _agent(name: str, table: dict[str, Any], run: dict[str, Any], rigs: dict[str, Rig], wrong: list[str]) -> Agent:
    rig = table.get("rig", next(iter(rigs)) if len(rigs) == 1 else None)
    if rig is None:
        wrong.append(f"agents.{name}.rig: missing; expected one of {', '.join(rigs) or 'the rigs, and there is none'}")
    elif rig not in rigs:
        wrong.append(f"agents.{name}.rig: there is no rig {rig!r}; known: {', '.join(rigs)}")
    elif rigs[rig].host is not None and table.get("reach", "ssh") != "ssh":
        wrong.append(f'agents.{name}.reach: expected "ssh" or nothing, as rig {rig} is another box')
    keys = {key: table[key] for key in ("account", "reach", "skills", "max_runs") if key in table}
    profile = _profile(run, table.get("run", {}))
    for variable, credential in profile.credential_environment.items():
        at = f"agents.{name}.run.credential_environment.{variable}"
        if credential not in profile.credentials:
            known = ", ".join(profile.credentials) or "none"
            wrong.append(f"{at}: there is no credential {credential!r}; known in credentials: {known}")
        if variable in profile.environment:
            wrong.append(f"{at}: environment sets this variable already")
    return Agent(name=name, rig=rig or "", **keys, run=profile)


def _profile(shared: dict[str, Any], own: dict[str, Any]) -> RunProfile:
    """[run] with what the agent has of its own; tables are merged key by key: no limit gets lost."""
    merged = {**shared, **own}
    for key in ("environment", "credentials", "credential_environment"):
        merged[key] = {**shared.get(key, {}), **own.get(key, {})}
    merged["limits"] = Limits(**{**shared.get("limits", {}), **own.get("limits", {})})
    merged["sandbox"] = Sandbox(**{**shared.get("sandbox", {}), **own.get("sandbox", {})})
    return RunProfile(**merged)


def _check_names(agents: dict[str, Agent], rigs: dict[str, Rig], wrong: list[str]) -> None:
    wrong.extend(
        f"agents.{name}: rigs.{name} has this name already; expected another for the agent"
        for name in agents
        if name in rigs
    )


def _check_accounts(agents: dict[str, Agent], rigs: dict[str, Rig], caller: str, wrong: list[str]) -> None:
    """Two agents on one account would share one unit name, one quota, one state."""
    taken: dict[tuple[str | None, str], Agent] = {}
    for agent in agents.values():
        if agent.rig not in rigs:
            continue
        user, _, host = (rigs[agent.rig].host or "").rpartition("@")
        account = agent.account or user or caller
        other = taken.setdefault((host, account), agent)
        if other is not agent:
            wrong.append(
                f"agents.{agent.name}: expected an account of its own, but it and agents.{other.name} are"
                f" both the account {account!r} of one box (without the key account: whoever dispatches)"
            )
