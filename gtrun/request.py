"""What is asked for: which issue or plugin, by which agent, on whose word; and the run that it comes to."""

import os
import time
from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from gtrun.account import Account
from gtrun.config import Agent, Fleet, PluginProfile
from gtrun.config.trust import check_executed
from gtrun.counters import Mark
from gtrun.errors import ConfigError
from gtrun.model import BoardRef, Comment, Issue, ResolvedRun
from gtrun.names import IssueKey, Token, identifier, plugin_name, unit_name
from gtrun.previous import previous
from gtrun.release.installation import executed


class Request(msgspec.Struct, frozen=True):
    """Who wants which issue run by which agent. `environment` holds the hatches (DISPATCH_…, GTRUN_BACKEND).

    With a `payload` it is a plugin, whose bytes these are and whose key takes the place of the issue's.

    `caller` is the account that dispatches, `by` who asked it to, as the ledger and the run record keep it. `sweep`
    names the pass that picked the issue, and `planned` is how far the ledger had come when that looked; a person who
    names an issue has neither.
    """

    target: str
    issue: IssueKey
    caller: Account
    environment: Mapping[str, str]
    by: str
    sweep: str = ""
    payload: bytes = b""
    planned: Mark | None = None

    @property
    def is_plugin(self) -> bool:
        """Whether it is a plugin that is to be run."""
        return plugin_name(self.issue) is not None


def dispatchable(fleet: Fleet, request: Request) -> Agent:
    """The agent that was named, if it can be given work. Raises UsageError, ConfigError."""
    agent = fleet.agent(request.target)
    check_own_code(fleet, request.caller)
    if not agent.run.command and not request.is_plugin:
        where = fleet.source or "fleet.toml"
        raise ConfigError(
            f"agent {agent.name} has no command to run",
            hint=f"set [run] command in {where} (write one with: gtrun init)",
        )
    return agent


def is_alone(fleet: Fleet, caller: Account) -> bool:
    """Whether the fleet is nobody but the caller's own account on this box."""
    agents = fleet.agents.values()
    return all(agent.account in {None, caller.name} and fleet.rigs[agent.rig].host is None for agent in agents)


def check_own_code(fleet: Fleet, caller: Account) -> None:
    """No agent could have written what this process executes for all of them. Raises ConfigError."""
    if not is_alone(fleet, caller):
        check_executed(executed(), caller.uid)


def resolved(
    fleet: Fleet, agent: Agent, token: Token, issue: Issue, comments: Iterable[Comment], *, board: BoardRef, by: str
) -> ResolvedRun:
    """The run, but for what only the agent's account can tell: its home and its prompt template.

    `comments` are those on the issue, which `board` has: their markers tell of earlier runs.
    """
    profile, before = agent.run, previous(comments)
    unit = unit_name(issue.key)
    return ResolvedRun(
        token=token,
        agent=agent.name,
        rig=agent.rig,
        issue=issue,
        unit=unit,
        identifier=identifier(unit, token),
        board=board.path,
        board_identity=board.identity,
        board_machine=board.machine,
        board_github=board.github,
        terminal_labels=fleet.board.terminal_labels,
        terminal_glyphs=fleet.board.terminal_glyphs,
        backend=profile.backend or os.path.basename(next(iter(profile.command), "")),  # noqa: PTH119
        command=profile.command,
        prompt="",
        workdir=profile.workdir or "~",
        environment=profile.environment,
        path=profile.path,
        time_limit=profile.time_limit,
        idle_limit=profile.idle_limit,
        stop_timeout=profile.stop_timeout,
        limits=profile.limits,
        sandbox=profile.sandbox,
        slice=profile.slice,
        keep=profile.keep,
        credentials=profile.credentials,
        credential_environment=profile.credential_environment,
        dispatched_at=time.time(),
        dispatched_by=by,
        quota_patterns=profile.quota_patterns,
        quota_exit_codes=profile.quota_exit_codes,
        update=profile.update,
        attempt=before.attempt,
        previous=before.text,
        clones=profile.clones,
        worktree=profile.worktree,
        branch=profile.branch,
        stash_max=profile.stash_max,
        notify=fleet.notify,
    )


def resolved_plugin(fleet: Fleet, agent: Agent, token: Token, request: Request) -> ResolvedRun:
    """The run of a plugin: in the unit that the agent's profile describes, without what is for agent programs.

    No clone, no secret, no quota, no board; the limits of the plugin's own go before those of the profile. Raises
    LaunchFailed for bytes that are no plugin, ConfigError for a setting that its kind does not know.
    """
    from gtrun.plugins.payload import EXECUTABLE, described  # noqa: PLC0415 - what no issue needs

    profile, wanted = agent.run, fleet.plugins.get(str(plugin_name(request.issue)), PluginProfile())
    plugin = described(request.issue, request.payload, wanted, source=fleet.source or "fleet.toml")
    issue = Issue(key=request.issue, title=f"{plugin.kind} plugin, SHA-256 {plugin.digest[:12]}")
    run = resolved(fleet, agent, token, issue, (), board=BoardRef(""), by=request.by)
    limits = profile.limits
    if plugin.kind == EXECUTABLE and wanted.memory_max is not None:
        limits = replace(limits, memory_max=wanted.memory_max)
    return replace(
        run,
        plugin=plugin,
        backend="plugin",
        command=(str(request.issue),),  # which an older gtrun looks for as a program, in vain
        workdir="",
        time_limit=wanted.time_limit,
        idle_limit=None,
        limits=limits,
        credentials={},
        credential_environment={},
        quota_patterns=(),
        quota_exit_codes=(),
        clones=(),
    )
