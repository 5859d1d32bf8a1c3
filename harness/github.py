"""A GitHub that nobody here wrote: emulate for its state, prism with GitHub's own OpenAPI description for its contract.

    with emulate() as state:          # state.url; USERS have tokens there
    with prism() as contract:         # an address; it says of each question what GitHub's description does not have

The packages are kept in $XDG_CACHE_HOME/gtrun-harness/github-HASH, installed once by npm.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import select
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from harness.box import Box
from harness.trees import TreeFailed, cache

PACKAGES = ("emulate@0.7.0", "@octokit/openapi@23.0.2", "@stoplight/prism-cli@5.14.2")
USERS = {"admin": "test_token_admin", "helper": "test_token_helper", "stranger": "test_token_stranger"}
"""Accounts and their tokens; each owns what it makes."""

HANDS = 40
"""Further tokens of each (`hand`): emulate has GitHub's limit of 5,000 questions an hour for each token."""

INSTALL_SECONDS = 600.0
START_SECONDS = 60.0
PROGRAM = "node_modules/emulate/dist/index.js"
"""The emulation, below `packages()`."""
DOCUMENT = "node_modules/@octokit/openapi/generated/api.github.com.json"

# what gtrun asks; prism takes half a minute to read all that there is
ASKED = {
    "/user": ("get",),
    "/repos/{owner}/{repo}": ("get",),
    "/repos/{owner}/{repo}/issues": ("get",),
    "/repos/{owner}/{repo}/issues/comments": ("get",),
    "/repos/{owner}/{repo}/issues/{issue_number}": ("get", "patch"),
    "/repos/{owner}/{repo}/issues/{issue_number}/comments": ("get", "post"),
    "/repos/{owner}/{repo}/issues/{issue_number}/dependencies/blocked_by": ("get",),
    "/repos/{owner}/{repo}/issues/{issue_number}/events": ("get",),
    "/repos/{owner}/{repo}/issues/{issue_number}/labels": ("post",),
    "/repos/{owner}/{repo}/issues/{issue_number}/labels/{name}": ("delete",),
    "/repos/{owner}/{repo}/issues/{issue_number}/timeline": ("get",),
    "/repos/{owner}/{repo}/pulls": ("get",),
    "/repos/{owner}/{repo}/pulls/{pull_number}": ("get",),
}


def packages() -> Path:
    """The folder with the packages, installed if need be (12 s, once; by npm from its registry). Raises TreeFailed."""
    home = cache() / f"github-{hashlib.sha256(repr(PACKAGES).encode()).hexdigest()[:12]}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{home}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            with tempfile.TemporaryDirectory(prefix=f"{home.name}.", dir=home.parent) as scratch:
                # no script of a package is run
                npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", scratch]
                try:
                    done = subprocess.run(
                        [*npm, *PACKAGES], capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS
                    )
                except FileNotFoundError as error:
                    raise TreeFailed("there is no npm: scripts/setup test installs it") from error
                if done.returncode != 0:
                    raise TreeFailed(f"npm could not install {', '.join(PACKAGES)}:\n{done.stdout}{done.stderr}")
                for file in Path(scratch, DOCUMENT).parent.glob("*.json"):
                    if file.name != Path(DOCUMENT).name:
                        file.unlink()  # 370 MB
                (Path(scratch) / "asked.json").write_text(json.dumps(_part(Path(scratch, DOCUMENT))))
                shutil.copytree(scratch, home, symlinks=True)
    return home


def _part(file: Path) -> dict[str, Any]:
    """What GitHub's description says of the questions in ASKED, with all that it refers to."""
    whole = json.loads(file.read_text())
    paths = {
        path: {name: value for name, value in whole["paths"][path].items() if name in {*methods, "parameters"}}
        for path, methods in ASKED.items()
    }
    components: dict[str, dict[str, Any]] = {}
    pending: list[Any] = [paths]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, dict):
            pending.extend(node.values())
            where = node.get("$ref")
            if isinstance(where, str):
                _, _, kind, name = where.split("/")
                if name not in components.setdefault(kind, {}):
                    components[kind][name] = whole["components"][kind][name]
                    pending.append(components[kind][name])
    return {"openapi": whole["openapi"], "info": whole["info"], "paths": paths, "components": components}


def hand(login: str, number: int) -> str:
    """One more token of an account, for what a test does there itself."""
    return f"test_hand_{login}_{number % HANDS}"


@functools.cache
def description() -> dict[str, Any]:
    """GitHub's description of what gtrun asks."""
    described: dict[str, Any] = json.loads((packages() / "asked.json").read_text())
    return described


def breaches(method: str, path: str, query: str, content: bytes) -> list[str]:
    """What of a question GitHub's description does not have: its path, method, a parameter or its value, a field."""
    for template, methods in description()["paths"].items():
        names = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
        if re.fullmatch(names, path) and method.lower() in methods:
            operation = methods[method.lower()]
            break
    else:
        return [f"{method} {path} is not described"]
    parameters = map(_resolved, operation.get("parameters", ()))
    known = {one["name"]: _resolved(one["schema"]) for one in parameters if one["in"] == "query"}
    found = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            found.append(f"{method} {template} has no parameter {name}")
        elif not _is_allowed(value, known[name]):
            found.append(f"{method} {template}: {name}={value}")
    if bool(content) != ("requestBody" in operation):
        found.append(f"{method} {template}: {'a body' if content else 'no body'}")
    return found


def _is_allowed(value: str, schema: Mapping[str, Any]) -> bool:
    if schema.get("type") == "integer":
        return value.isdigit()
    if schema.get("format") == "date-time":
        return re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", value) is not None
    return value in schema.get("enum", (value,))


def _resolved(node: Mapping[str, Any]) -> Mapping[str, Any]:
    where = node.get("$ref")
    if where is None:
        return node
    _, _, kind, name = where.split("/")
    found: Mapping[str, Any] = description()["components"][kind][name]
    return found


@dataclass(frozen=True, slots=True)
class Emulated:
    """A GitHub that runs: its address, and its process."""

    url: str
    process: subprocess.Popen[bytes]


def _seed() -> dict[str, Any]:
    """What the emulation begins with: USERS and their tokens."""
    tokens = {token: login for login, token in USERS.items()}
    tokens |= {hand(login, number): login for login in USERS for number in range(HANDS)}
    return {
        "tokens": {token: {"login": login, "scopes": ["repo", "user"]} for token, login in tokens.items()},
        "github": {"users": [{"login": login, "name": login, "email": f"{login}@example.com"} for login in USERS]},
    }


@contextlib.contextmanager
def emulate(inside: Box | None = None) -> Iterator[Emulated]:
    """An empty GitHub in which USERS have their tokens; `inside` the network of a box, where others cannot reach it."""
    home, port = packages(), _free_port()
    with tempfile.TemporaryDirectory(prefix="gtrun-github-") as scratch:
        file = Path(scratch, "seed.json")
        file.write_text(json.dumps(_seed()))
        program = home / PROGRAM
        argv = [str(program), "start", "--service", "github", "--port", str(port), "--seed", str(file)]
        with _running(argv, port, inside) as process:
            yield Emulated(f"http://127.0.0.1:{port}", process)


@contextlib.contextmanager
def prism() -> Iterator[str]:
    """The address of what answers each described question with GitHub's example.

    It says in the header sl-violations what of a question, or of the example, is not as described.
    """
    home, port = packages(), _free_port()
    program = home / "node_modules/@stoplight/prism-cli/dist/index.js"
    with _running([str(program), "mock", "--port", str(port), str(home / "asked.json")], port):
        yield f"http://127.0.0.1:{port}"


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextlib.contextmanager
def _running(argv: list[str], port: int, inside: Box | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A program of node that listens on a port; ended when it is not needed, or when we are gone."""
    there = ["nsenter", f"--target={inside.leader}", "--net", "--"] if inside else []
    tied = [*there, "setpriv", "--pdeathsig=KILL", "--", "node", *argv]
    environment = {**os.environ, "NO_COLOR": "1"}
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(tied, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment) as child,
    ):
        gone = os.pidfd_open(child.pid)
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _listens(port, there):
                if select.select([gone], [], [], 0.05)[0] or time.monotonic() > deadline:
                    log.seek(0)
                    raise TreeFailed(f"{Path(argv[0]).parent.parent.name} does not listen:\n{log.read().decode()}")
            yield child
        finally:
            os.close(gone)
            child.kill()


def _listens(port: int, there: list[str]) -> bool:
    knock = [*there, "bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}"]
    return subprocess.run(knock, stderr=subprocess.DEVNULL, check=False, timeout=5.0).returncode == 0
