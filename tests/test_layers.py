"""The rooms of the package and who may use which, held for every import there is, also those inside functions."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import gtrun

PACKAGE = Path(gtrun.__file__).parent

# From the ground up. A room may use the rooms of its own floor and of the floors below it.
FLOORS: Mapping[str, tuple[str, ...]] = {
    # words, values and names: no room here knows of systemd, a board or a configuration
    "base": (
        "exits", "errors", "text", "measures", "names", "model", "markers", "placeholders", "account", "files", "alive",
        "hangup", "machine", "quota", "resets", "exhausted", "pulls", "previous", "turns", "news",
        "counters", "witness", "notices",
    ),
    # what people wrote in fleet.toml; programs of others; the releases of gtrun itself
    "edge": ("config", "process", "git", "release", "orphans", "notify"),
    # the three things that gtrun keeps its promises with
    "ground": ("systemd", "board", "state"),
    # what one dispatch is made of: the program to run, the process that acts as its account, the guards
    "parts": ("program", "credentials", "clones", "reach", "planner", "guards", "plugins"),
    # what people ask for; each module is one verb, or what several of them share
    "verbs": (
        "request", "asked", "start", "dispatch", "forward", "runner", "survey", "looking", "delivery", "reconcile",
        "doctor", "unit_files", "catalog", "verified", "gather", "pick", "announce", "slots",
    ),
    # parse, call, print
    "command line": ("cli", "__main__"),
}  # fmt: skip

# What only these places may use: a module, or a function of one. The package's own folder is left out of each name.
CONFINED: Mapping[str, tuple[str, ...]] = {
    "pystemd": ("systemd",),  # it holds the interpreter's lock while it waits: see gtrun.reach
    "sqlite3": ("board.file", "board.local", "state.ledger"),
    "sh": ("process",),
    "subprocess": ("process",),
    "typer": ("cli.app", "cli.commands"),  # 32 ms: `run`, `closeout` and a plain dispatch do without
    "httpx": ("board.github.client",),  # 50 ms: only a GitHub board pays
    "rich": ("cli.output",),
    "wasmtime": ("plugins.wasi",),  # 29 ms, and 30 MB on the disk
    "threading": ("plugins.wasi",),  # what ends a module that runs too long is in its own process
    "os.fork": ("plugins.checking", "reach.worker", "state.claim"),
    "os.execve": ("runner.become", "runner.update"),
}

# What has no place: a shell, a second way to start a program, a wait that nothing can end
BANNED = (
    "os.system", "os.popen", "os.forkpty", "os.spawn", "os.posix_spawn", "os.exec", "time.sleep", "pty", "asyncio",
    "threading", "multiprocessing", "concurrent",
)  # fmt: skip


def modules(package: Path) -> dict[str, ast.Module]:
    """Every module by its name without the package's own: `systemd.bus`; a folder's `__init__` has the folder's."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(), str(path))
    return found


def used(tree: ast.Module, known: Mapping[str, object]) -> Iterator[str]:
    """The full dotted names of what a module imports anywhere in it, and of what it takes out of those modules."""
    bound = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
                bound[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                is_ours = inner.startswith("gtrun.")
                yield inner if not is_ours or inner.removeprefix("gtrun.") in known else str(node.module)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bound:
            yield f"{bound[node.value.id]}.{node.attr}"


def within(name: str, places: tuple[str, ...]) -> bool:
    """Whether a module is one of the places, or in one."""
    return any(name == place or name.startswith(f"{place}.") for place in places)


def faults(trees: Mapping[str, ast.Module]) -> list[str]:
    """What breaks a rule, one line each."""
    floor = {room: level for level, rooms in enumerate(FLOORS.values()) for room in rooms}
    found, edges = [], {}
    for name, tree in trees.items():
        wanted = set(used(tree, trees))
        ours = {one.partition(".")[2] for one in wanted if one == "gtrun" or one.startswith("gtrun.")}
        edges[name] = {one for one in ours & set(trees) if one and one != name}
        if name and name.partition(".")[0] not in floor:
            found.append(f"{name} has no floor: give it one in FLOORS")
            continue
        level = floor[name.partition(".")[0]] if name else -1
        found += [
            f"{name} imports upwards: {one}"
            for one in sorted(edges[name])
            if floor.get(one.partition(".")[0], 99) > level
        ]
        found += [
            f"{name} imports another command: {one}"
            for one in sorted(edges[name])
            if name.startswith("cli.commands.") and one.startswith("cli.commands.")
        ]
        for one in sorted(wanted):
            confined = [place for what, place in CONFINED.items() if within(one, (what,))]
            found += [f"{name} uses {one}, which is for {places}" for places in confined if not within(name, places)]
            banned = any(within(one, (what,)) or (what.startswith("os.") and one.startswith(what)) for what in BANNED)
            if banned and not confined:
                found.append(f"{name} uses {one}, which has no place here")
    return found + cycles(edges)


def cycles(edges: Mapping[str, set[str]]) -> list[str]:
    """Each ring of modules that import each other, as a path."""
    found, done = [], set()

    def walk(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            found.append("a cycle: " + " -> ".join((*path[path.index(name) :], name)))
        elif name not in done:
            for one in sorted(edges.get(name, ())):
                walk(one, (*path, name))
            done.add(name)

    for name in edges:
        walk(name, ())
    return found


def test_the_package_keeps_the_rules():
    trees = modules(PACKAGE)
    assert len(trees) > 50, "the package was not found"
    assert faults(trees) == []


def test_every_floor_is_lived_in():
    rooms = {name.partition(".")[0] for name in modules(PACKAGE)}
    assert {room for floor in FLOORS.values() for room in floor} <= rooms


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({"names": "import gtrun.config"}, "names imports upwards: config"),
        ({"names": "def f():\n  from gtrun.state import ledger"}, "names imports upwards: state.ledger"),
        ({"state.ledger": "from gtrun.dispatch import dispatch"}, "state.ledger imports upwards: dispatch"),
        ({"cli.commands.ps": "from gtrun.cli.commands.live import x"}, "imports another command: cli.commands.live"),
        ({"reach.worker": "import pystemd.dbuslib"}, "uses pystemd.dbuslib, which is for ('systemd',)"),
        ({"looking": "def f():\n  import subprocess"}, "uses subprocess, which is for ('process',)"),
        (
            {"state.ledger": "import os\nos.fork()"},
            "uses os.fork, which is for ('plugins.checking', 'reach.worker', 'state.claim')",
        ),
        (
            {"looking": "import os as o\no.execve('x')"},
            "uses os.execve, which is for ('runner.become', 'runner.update')",
        ),
        ({"runner.run": "import os\nos.execvp('x')"}, "uses os.execvp, which has no place here"),
        ({"looking": "from os import system"}, "uses os.system, which has no place here"),
        ({"looking": "from time import sleep"}, "uses time.sleep, which has no place here"),
        ({"reach.worker": "from threading import Thread"}, "uses threading.Thread, which is for ('plugins.wasi',)"),
        ({"extra": ""}, "extra has no floor"),
        ({"names": "from gtrun import errors", "errors": "from gtrun.names import x"}, "a cycle: names -> errors -> n"),
        (
            {"state.record": "import gtrun.state.outbox", "state.outbox": "def f():\n  import gtrun.state.record"},
            "a cycle: state.record -> state.outbox -> state.record",
        ),
    ],
)
def test_a_breach_is_seen(files, fault):
    around = dict.fromkeys(("config", "state", "state.ledger", "dispatch", "cli.commands.live"), ast.parse(""))
    found = faults(around | {name: ast.parse(source) for name, source in files.items()})
    assert len(found) == 1, found
    assert fault in found[0]


# Imports every module of the package and says what else that did. Reads of the environment count where the code of the
# package is what reads; files count wherever they are but in the interpreter's and the package's own folders.
WATCH = r"""
import _thread, importlib, os, sys, sysconfig, threading

package = sys.argv[1]
folders = {*sysconfig.get_paths().values(), sys.prefix, package} - {"", "/usr"}
places = tuple(os.path.realpath(folder) + "/" for folder in folders)
seen = []

def reader():
    frame = sys._getframe(2)
    while frame and not frame.f_code.co_filename.startswith(package):
        if frame.f_code.co_filename not in (os.__file__, "<frozen os>", "<frozen _collections_abc>"):
            return None
        frame = frame.f_back
    return frame and f"{frame.f_code.co_filename}:{frame.f_lineno}"

class Environment(type(os.environ)):
    def __getitem__(self, key):
        where = reader()
        if where:
            seen.append(f"reads ${key} at {where}")
        return super().__getitem__(key)

os.environ.__class__ = Environment

def hook(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if not path.startswith(places):
            seen.append(f"opens {path}")
    elif event in ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system", "os.putenv",
                   "os.mkdir", "os.chdir", "os.rename", "os.remove", "socket.connect", "socket.bind", "sqlite3.connect",
                   "signal.pthread_kill"):
        seen.append(f"{event}{arguments!r}")

def start(*arguments):  # an audit event only since Python 3.12
    seen.append(f"_thread.start_new_thread{arguments!r}")
    return start_new_thread(*arguments)

start_new_thread = threading._start_new_thread
_thread.start_new_thread = threading._start_new_thread = start
sys.addaudithook(hook)
for name in sys.argv[2:]:
    importlib.import_module(name)
    if seen:
        print(name, *seen, sep="\n  ")
        seen.clear()
"""


def imported(package: Path, *names: str) -> str:
    done = subprocess.run(
        [sys.executable, "-IBc", f"import sys; sys.path.insert(0, {str(package.parent)!r})\n{WATCH}", str(package),
         *names],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


def test_an_import_does_nothing_else():
    names = ["gtrun" + (f".{name}" if name else "") for name in modules(PACKAGE)]
    assert imported(PACKAGE, *names) == ""


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("import os; os.environ.get('HOME')", "reads $HOME at "),
        ("import os; 'HOME' in os.environ and os.getenv('HOME')", "reads $HOME at "),
        ("open('/etc/passwd')", "opens /etc/passwd"),
        (
            "import threading; threading.Thread(target=print, args=('',), kwargs={'end': ''}).start()",
            "start_new_thread",
        ),
        ("import sqlite3; sqlite3.connect(':memory:')", "sqlite3.connect"),
    ],
)
def test_what_an_import_does_is_seen(source, seen, tmp_path):
    package = tmp_path / "guilty"
    package.mkdir()
    (package / "__init__.py").write_text(source)
    assert seen in imported(package, "guilty")
