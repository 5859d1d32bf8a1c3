"""Stopping the product before any one of the writes that it really makes: there it is killed, or its disk is full.

    steps = traced(scene, issue, "closeout")         # what the process of that verb wrote, in its order
    plan(scene, issue, "closeout", 3, "die")         # the next one is killed before its third write

Nothing is listed by hand: calls that change a file, flush it, or change a directory are counted as they are made, and
statements by which SQLite writes. What a process of ours writes for one kind of run is the same each time.
"""

from __future__ import annotations

import json
from typing import Literal

from harness.box import Box
from harness.scene import PACKAGE, Scene

_MODULE = r"""
import json, os, signal, socket, sqlite3, stat, sys

VERB = sys.argv[1] if len(sys.argv) > 1 else ""
PARENT = os.getpid()
HOME = os.path.expanduser("~")
real = {name: getattr(os, name) for name in
        ("open", "write", "pwrite", "fsync", "fdatasync", "rename", "replace", "unlink", "mkdir", "link", "execve")}
counted = {}


def issue():
    if VERB == "dispatch":
        return sys.argv[3]
    from gtrun.names import decode_path
    record = decode_path(sys.argv[2])
    with open(record if os.path.exists(record) else record.replace("/open/", "/closed/")) as file:
        return json.loads(file.readline())["run"]["issue"]["key"]


def here(what):
    who = VERB if os.getpid() == PARENT else f"{VERB}-worker"
    counted[who] = counted.get(who, 0) + 1
    try:
        key = issue()
        with open(f"{HOME}/plan-{key}") as file:
            plan = json.load(file)
    except OSError:
        return
    if plan["who"] != who:
        return
    if plan["do"] == "trace":
        trace = real["open"](f"{HOME}/trace-{key}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        real["write"](trace, f"{what}\n".encode())
        os.close(trace)
    elif counted[who] == plan["step"]:
        if plan["once"]:
            real["unlink"](f"{HOME}/plan-{key}")
        os.close(real["open"](f"{HOME}/met-{key}", os.O_WRONLY | os.O_CREAT, 0o644))
        if plan["do"] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        fill(plan["folder"])


def fill(folder):
    filler = real["open"](f"{folder}/filler", os.O_WRONLY | os.O_CREAT, 0o644)
    for size in (1 << 16, 1):
        try:
            while True:
                real["write"](filler, b"\0" * size)
        except OSError:
            pass
    os.close(filler)


def name_of(thing):
    return os.readlink(f"/proc/self/fd/{thing}") if isinstance(thing, int) else os.fsdecode(thing)


def wrapped(function):
    def call(*arguments, **more):
        if function == "open" and not (arguments + (more.get("flags", 0),))[1] & os.O_CREAT:
            return real[function](*arguments, **more)
        name = name_of(arguments[0])
        is_file = name.startswith("/") and not name.startswith(("/memfd", "/dev/"))
        if function == "execve" or (is_file and arguments[0] not in (0, 1, 2)):
            here(f"{function} {os.path.basename(name)}")
        return real[function](*arguments, **more)
    return call


class Connection(sqlite3.Connection):
    def execute(self, statement, *more):
        word = statement.lstrip().partition(" ")[0]
        if word in ("BEGIN", "INSERT", "UPDATE", "DELETE", "COMMIT", "CREATE"):
            here(f"sqlite {word}")
        return super().execute(statement, *more)

    def close(self):
        here("sqlite close")
        super().close()


def sendto(self, *arguments):
    here("journal entry")
    return socket.socket.__base__.sendto(self, *arguments)


if VERB in ("run", "closeout", "dispatch"):
    for function in real:
        setattr(os, function, wrapped(function))
    connect = sqlite3.connect
    sqlite3.connect = lambda *arguments, **more: connect(*arguments, factory=Connection, **more)
    socket.socket.sendto = sendto
"""

Deed = Literal["die", "fill"]


def count(box: Box) -> None:
    """From now on every process of the product in this box counts what it writes."""
    (package,) = box.path("/").glob(PACKAGE.lstrip("/"))
    (package / "writes.py").write_text(_MODULE)
    main = package / "cli/__init__.py"
    main.write_text(main.read_text() + "\n\nimport gtrun.writes\n")
    for compiled in main.parent.glob("__pycache__/__init__.*.pyc"):
        compiled.unlink()


def trace(scene: Scene, issue: str, who: str) -> None:
    """The process `who` (`run`, `closeout`, `dispatch`, `dispatch-worker`) of this issue notes its writes."""
    _plan(scene, issue, {"who": who, "do": "trace"})


def traced(scene: Scene, issue: str) -> list[str]:
    """What the process noted, one line a write."""
    return scene.box.path(f"{scene.home}/trace-{issue}").read_text().splitlines()


def plan(scene: Scene, issue: str, who: str, step: int, do: Deed, *, once: bool = True, folder: str = "") -> None:
    """Before its write number `step` the process of this issue is killed, or fills the file system of a folder.

    `once`: only the first such process.
    """
    _plan(scene, issue, {"who": who, "step": step, "do": do, "once": once, "folder": folder})


def _plan(scene: Scene, issue: str, wanted: dict[str, object]) -> None:
    scene.box.write(f"{scene.home}/plan-{issue}", json.dumps(wanted), owner=scene.account)


def was_met(scene: Scene, issue: str) -> bool:
    """Whether a process of this issue came to its step."""
    return scene.box.path(f"{scene.home}/met-{issue}").exists()
