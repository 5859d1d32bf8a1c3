"""`gtrun wasi`: the main process of a unit whose payload is a WebAssembly module. It does that and nothing else."""

import os
import sys

import msgspec

from gtrun.errors import LaunchFailed
from gtrun.model import Result
from gtrun.plugins import wasi
from gtrun.plugins.program import Order
from gtrun.state import record as records
from gtrun.state.facts import EndedFor
from gtrun.text import plain


def host(text: str) -> int:
    """Run the module of an order; returns its exit code. Why it ended otherwise is noted in the run's record."""
    order = msgspec.json.decode(text, type=Order)
    plugin = order.plugin
    for descriptor in (order.module, order.record):
        os.set_inheritable(descriptor, False)  # noqa: FBT003
    with os.fdopen(order.module, "rb") as file:
        data = file.read()
    folders = [(order.workdir, ".", True)]
    folders += [(place, place, False) for place in plugin.directories]
    folders += [(place, place, True) for place in plugin.writable_directories]
    try:
        outcome = wasi.execute(
            data, arguments=[plugin.name, *plugin.arguments], environment=order.environment, folders=folders,
            memory_max=plugin.memory_max, fuel=plugin.fuel, seconds=order.seconds,
        )  # fmt: skip
    except LaunchFailed as error:
        outcome = wasi.Outcome(wasi.TRAPPED, error.message, Result.FAILED)
    if outcome.reason:
        print(f"gtrun: {plain(outcome.reason)}", file=sys.stderr, flush=True)
        records.append_through(order.record, EndedFor(outcome.reason, outcome.result or Result.FAILED))
    return outcome.code
