"""WebAssembly modules by wasmtime: is it one that can be run here, and running it within its bounds.

A module sees the folders that it was given, its arguments, a few variables, an empty standard input, and clocks. It is
given no socket, and can make none. Three things bound how long it runs: its fuel, the epoch, which a thread ends, and
the unit's own time limit, which also ends one that waits in a call of the system.
"""

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from gtrun.errors import LaunchFailed
from gtrun.measures import human_bytes
from gtrun.model import Result
from gtrun.text import plain, shorten

if TYPE_CHECKING:
    from wasmtime import Engine, Func, Linker, Module

PREVIEW1 = "wasi_snapshot_preview1"
TRAPPED = 134
TIMED_OUT = 124
"""Exit codes for what no code of its own ends; those of wasmtime(1) and timeout(1)."""

_TABLES, _MOST_TABLE = 4, 1 << 18  # elements of 8 bytes each: 8 MiB, which come on top of the memory
_WORDS = 300


class Outcome(msgspec.Struct, frozen=True):
    """How it ended. The exit code is its own, unless `result` says otherwise; `reason` is told besides."""

    code: int
    reason: str = ""
    result: Result | None = None


def check(data: bytes) -> None:
    """Raises LaunchFailed for what is no module that can be run here, and where wasmtime is not installed."""
    engine = _engine(fuel=None)
    from wasmtime import FuncType  # noqa: PLC0415 - see _engine

    module = _compiled(engine, data)
    for one in module.imports:
        if one.module != PREVIEW1:
            raise LaunchFailed(
                f"the plugin imports {plain(shorten(f'{one.module}.{one.name}', _WORDS))}, and only WASI preview 1"
                f" ({PREVIEW1}) is there",
                hint="build it for the target wasm32-wasip1",
            )
    exports = {one.name: one.type for one in module.exports}
    start = exports.get("_start")
    if not isinstance(start, FuncType) or start.params or start.results:
        raise LaunchFailed("the plugin has no function _start to begin with", hint="build a command, not a library")
    with _refused("the plugin cannot be linked"):
        _linker(engine).instantiate_pre(module)


def execute(
    data: bytes,
    *,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folders: Sequence[tuple[str, str, bool]],
    memory_max: int,
    fuel: int | None,
    seconds: float | None,
) -> Outcome:
    """Run a module to its end; what it prints goes to our own standard output and error.

    `folders` are (where it is, how it is called inside, whether it may be changed). `seconds` counts from here.
    Raises LaunchFailed if it does not even begin.
    """
    engine = _engine(fuel=fuel)
    from wasmtime import ExitTrap, Memory, Store, Trap, TrapCode, WasiConfig, WasmtimeError  # noqa: PLC0415

    store = Store(engine)
    store.set_limits(memory_size=memory_max, table_elements=_MOST_TABLE, instances=1, tables=_TABLES, memories=1)
    store.set_epoch_deadline(1)  # counted from the epoch as it is now, so before anything can end that
    _end_after(engine, seconds)
    module = _compiled(engine, data)
    if fuel is not None:
        store.set_fuel(fuel)
    wasi = WasiConfig()
    wasi.argv = list(arguments)
    wasi.env = list(environment.items())
    wasi.inherit_stdout()
    wasi.inherit_stderr()
    with _refused("a folder of the plugin cannot be opened"):
        for place, inside, is_mutable in folders:
            wasi.preopen_dir(place, inside, is_mutable)
    store.set_wasi(wasi)
    memory: object = None
    try:
        exports = _linker(engine).instantiate(store, module).exports(store)
        memory = exports.get("memory")
        cast("Func", exports["_start"])(store)
    except ExitTrap as end:
        # who has its memory doubled is refused from the half on, and then says so in its own way
        size = memory.data_len(store) if isinstance(memory, Memory) else 0
        return Outcome(end.code, _used(size, memory_max) if end.code and size * 2 >= memory_max else "")
    except (Trap, WasmtimeError) as error:
        used = _used(memory.data_len(store) if isinstance(memory, Memory) else 0, memory_max)
        match error.trap_code if isinstance(error, Trap) else None:
            case TrapCode.INTERRUPT:
                return Outcome(TIMED_OUT, f"time limit reached, {used}", Result.TIMEOUT)
            case TrapCode.OUT_OF_FUEL:
                return Outcome(TRAPPED, f"it used up its fuel of {fuel}, {used}", Result.FAILED)
            case (
                None
            ):  # such as a memory that is larger from the start than it may be, or an exit code that there is not
                return Outcome(TRAPPED, f"{_said(error)}, {used}", Result.FAILED)
        return Outcome(TRAPPED, f"trap: {_said(error)}, {used}", Result.FAILED)
    return Outcome(0)


def _used(size: int, memory_max: int) -> str:
    return f"with {human_bytes(size)} of memory, of {human_bytes(memory_max)} that it may have"


def _engine(*, fuel: int | None) -> "Engine":
    try:
        from wasmtime import Config, Engine  # noqa: PLC0415 - 29 ms, and 30 MB on the disk, that only plugins need
    except ImportError:
        raise LaunchFailed(
            "wasmtime is not installed for this gtrun, and a WebAssembly plugin needs it",
            hint="it comes with gtrun for x86_64 and aarch64; elsewhere use an executable as the plugin",
        ) from None
    config = Config()
    config.epoch_interruption = True
    config.consume_fuel = fuel is not None
    config.parallel_compilation = False  # so many functions at once need so much memory
    config.wasm_threads = False
    config.wasm_memory64 = False
    return Engine(config)


def _compiled(engine: "Engine", data: bytes) -> "Module":
    from wasmtime import Module  # noqa: PLC0415

    with _refused("the plugin is no valid WebAssembly module"):
        return Module(engine, data)


def _linker(engine: "Engine") -> "Linker":
    """What a module can import."""
    from wasmtime import Linker  # noqa: PLC0415

    linker = Linker(engine)
    linker.define_wasi()
    return linker


def _end_after(engine: "Engine", seconds: float | None) -> None:
    """Trap whatever the engine runs then: a thread, since the wait and the module are in the same process."""
    if seconds is not None:
        timer = threading.Timer(seconds, engine.increment_epoch)
        timer.daemon = True
        timer.start()


@contextlib.contextmanager
def _refused(what: str) -> Iterator[None]:
    """wasmtime's errors as LaunchFailed."""
    from wasmtime import WasmtimeError  # noqa: PLC0415

    try:
        yield
    except WasmtimeError as error:
        raise LaunchFailed(f"{what}: {_said(error)}") from None


def _said(error: Exception) -> str:
    """wasmtime's own words, in one line: the last cause."""
    last = str(error).rstrip().rpartition("\n")[2].strip()
    return plain(shorten(re.sub(r"^(?:[0-9]+: )?(?:wasm trap: )?", "", last), _WORDS))
