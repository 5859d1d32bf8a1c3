"""What a plugin's run executes, as `gtrun.program` is for an agent program; used before the start and by the runner.

An executable is the unit's main process itself. A module needs somebody to run it: that is `gtrun wasi`, executed anew,
with nothing but the descriptors of the module and of the run's record, and an order.
"""

import os
from collections.abc import Mapping
from typing import cast

import msgspec
from msgspec.structs import replace

from gtrun import plugins
from gtrun.account import Account
from gtrun.errors import LaunchFailed
from gtrun.model import Plugin, ResolvedRun
from gtrun.names import RunId
from gtrun.plugins import payload
from gtrun.program import Program, argument_space, check_strings, check_workdir, environment_of, expand_home
from gtrun.reach.route import this_installation


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What `gtrun wasi` is told: the module and the run's record as descriptors, and the module's bounds and variables.

    `seconds` is the time limit.
    """

    plugin: Plugin
    environment: dict[str, str]
    workdir: str
    seconds: float | None
    module: int = -1
    record: int = -1


def settled(run: ResolvedRun, account: Account, data: bytes) -> ResolvedRun:
    """The run with the folders that it means here, if these bytes can be executed here. Raises LaunchFailed."""
    plugin = plugin_of(run)
    payload.refuse_changed(data, plugin.digest)
    if plugin.kind == payload.WASI:
        from gtrun.plugins import checking  # noqa: PLC0415 - an executable does without

        checking.check(data)
    else:
        payload.refuse_unusable(data)
    plugin = replace(
        plugin,
        directories=_folders(plugin.directories, account.home, os.R_OK),
        writable_directories=_folders(plugin.writable_directories, account.home, os.R_OK | os.W_OK),
    )
    return replace(run, plugin=plugin, workdir=f"{account.runtime}/{plugins.folder(run)}")


def plugin_of(run: ResolvedRun) -> Plugin:
    """The plugin of a run that is of one."""
    return cast("Plugin", run.plugin)


def _folders(folders: tuple[str, ...], home: str, mode: int) -> tuple[str, ...]:
    found = tuple(expand_home(folder, home) for folder in folders)
    for folder in found:
        if not os.path.isdir(folder) or not os.access(folder, mode | os.X_OK):  # noqa: PTH112
            raise LaunchFailed(
                f"the plugin is to see {folder}, which is no folder that this account can use so",
                hint="create it, or take it out of the plugin's directories in fleet.toml",
            )
    return found


def resolve(run: ResolvedRun, run_id: RunId, *, inherited: Mapping[str, str], stack: int) -> Program:
    """Everything that execve(2) needs but for what `armed` adds. Raises LaunchFailed.

    `inherited` and `stack` as for `gtrun.program.resolve`.
    """
    plugin = plugin_of(run)
    told = {"GTRUN_AGENT": run.agent, "GTRUN_PLUGIN": plugin.name, "GTRUN_RIG": run.rig, "GTRUN_RUN": run_id}
    argv = [plugin.name, *plugin.arguments]
    path, environment = plugin.name, environment_of(run, inherited) | told
    if plugin.kind == payload.WASI:
        order = Order(plugin=plugin, environment=told, workdir=run.workdir, seconds=run.time_limit)
        argv = _host(order)
        path = argv[0]
        environment = {"PATH": ":".join(run.path), "LANG": "C.UTF-8"}
    room = check_strings(argv, "an argument of the plugin") + check_strings(environment, "the environment")
    if room > (most := argument_space(stack)):
        raise LaunchFailed(f"arguments and environment take {room} bytes, and the kernel takes at most {most}")
    return Program(
        path=path, argv=argv, environment=environment, workdir=run.workdir, prompt="", stdin=None,
        wants_prompt_file=False,
    )  # fmt: skip


def _host(order: Order) -> list[str]:
    return [*this_installation(), "wasi", msgspec.json.encode(order).decode()]


def armed(program: Program, run: ResolvedRun, data: bytes, record: int) -> Program:
    """The program with the very bytes that were checked, which nobody can change from here on.

    `record` is a descriptor of the run's record. Raises LaunchFailed if these are others, OSError.
    """
    plugin = plugin_of(run)
    payload.refuse_changed(data, plugin.digest)
    check_workdir(run.workdir)
    if plugin.kind == payload.WASI:
        module = payload.sealed(data, plugin.name, is_inherited=True)
        os.set_inheritable(record, True)  # noqa: FBT003 - the host notes in it why it ended the module
        order = msgspec.json.decode(program.argv[-1], type=Order)
        return replace(program, argv=_host(replace(order, module=module, record=record)))
    # a script is opened by its interpreter, under that name
    descriptor = payload.sealed(data, plugin.name, is_inherited=data.startswith(b"#!"))
    return replace(program, path=f"/proc/self/fd/{descriptor}")
