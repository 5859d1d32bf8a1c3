"""Root file systems of other systemd versions, built once by mmdebstrap and cached, with gtrun.

    tree = root_of("trixie")
    with Box(tree=tree.path, venv=tree.venv) as box: ...

A tree is kept in $XDG_CACHE_HOME/gtrun-harness/SUITE-HASH, where the hash covers what it was built from; its
environment is built inside it (pystemd links that systemd's library) and renewed when the checkout changes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from harness import cgroups
from harness.box import CHECKOUT, BoxError, NeedsRoot

Suite = Literal["trixie", "sid"]

MIRROR = "http://deb.debian.org/debian"
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "openssh-server",
    "openssh-client", "mount", "passwd", "util-linux", "git", "gcc", "libc6-dev", "pkg-config",
    "libsystemd-dev", "python3", "python3-dev", "python3-venv", "ca-certificates",
)  # fmt: skip
OPTIONS: dict[str, tuple[str, ...]] = {
    "trixie": (),
    "sid": ('--aptopt=Acquire::Check-Valid-Until "false"',),  # a mirror that lags must do
}
NETWORK_FILES = ("/etc/hosts", "/etc/ssl/certs", "/etc/pip.conf", "/etc/xdg/pip")
BUILD_SECONDS = 900.0
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "gtrun")


class TreeFailed(BoxError):
    """A tree could not be built; the text has the builder's last lines."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A root file system and the environment with gtrun that fits it."""

    path: Path
    venv: Path


def root_of(suite: Suite) -> Tree:
    """The tree of a Debian suite, built if need be (a minute; needs root and a mirror). Raises TreeFailed."""
    if os.geteuid() != 0:
        raise NeedsRoot
    recipe = repr((suite, PACKAGES, OPTIONS[suite]))
    home = cache() / f"{suite}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    with _locked(home):
        if not (home / "root").is_dir():
            _build_root(suite, home)
        _renew_venv(home)
    return Tree(home / "root", home / "venv")


def cache() -> Path:
    """Where trees are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "gtrun-harness"


def _build_root(suite: Suite, home: Path) -> None:
    print(f"harness: building a tree of {suite} in {home}; a minute, once", file=sys.stderr)
    unfinished = home / "root.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    mirror = os.environ.get("GTRUN_HARNESS_MIRROR", MIRROR)
    packages = f"--include={','.join(PACKAGES)}"
    builder = ["mmdebstrap", "--quiet", "--mode=root", "--variant=apt", packages, *OPTIONS[suite]]
    _run(f"a tree of {suite}", [*builder, suite, str(unfinished), mirror])
    unfinished.rename(home / "root")


def _renew_venv(home: Path) -> None:
    """Install this checkout's gtrun, at /opt/gtrun, where the box shows it, and then move it aside."""
    made = home / "venv/made"
    wanted = _fingerprint()
    if made.exists() and made.read_text() == wanted:
        return
    print(f"harness: installing gtrun into {home}", file=sys.stderr)
    root, venv = home / "root", home / "venv"
    shutil.rmtree(venv, ignore_errors=True)
    shutil.rmtree(root / "opt/gtrun", ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=root / "var/tmp", prefix="gtrun-source-") as scratch:
        for name in SOURCES:
            if (CHECKOUT / name).is_dir():
                compiled = shutil.ignore_patterns("__pycache__")
                shutil.copytree(CHECKOUT / name, Path(scratch, name), ignore=compiled)
            elif (CHECKOUT / name).exists():
                shutil.copy(CHECKOUT / name, scratch)
        source = "/" + str(Path(scratch).relative_to(root))
        pip = ["/opt/gtrun/bin/pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
        with _inside(root) as enter:
            _run("its environment", [*enter, "/usr/bin/python3", "-m", "venv", "/opt/gtrun"])
            _run("gtrun in it", [*enter, *pip, source])
    (root / "opt/gtrun").rename(venv)
    made.write_text(wanted)


@contextmanager
def _inside(root: Path) -> Iterator[list[str]]:
    """How to run in the tree, with the host's network, resolver, certificates and pip configuration.

    nspawn gets a cgroup and a /run of its own, or it would leave some of both on the host.
    """
    name = f"gtrun-tree-{os.getpid()}"
    cgroup, lock = cgroups.claim(name)
    try:
        with tempfile.TemporaryDirectory(prefix=name) as scratch:
            resolver = shutil.copy("/etc/resolv.conf", scratch)  # often a link into /run
            given = [f"--bind-ro={resolver}:/etc/resolv.conf"]
            given += [f"--bind-ro={path}" for path in NETWORK_FILES if Path(path).exists()]
            given += [f"--setenv={name}={value}" for name, value in os.environ.items() if _is_network(name)]
            script = 'mount -t tmpfs tmpfs /run && echo 0 >"$0" && exec "$@"'
            apart = ["unshare", "--mount", "--propagation", "private", "--", "/bin/sh", "-c", script]
            nspawn = [
                "systemd-nspawn",
                "--quiet",
                "--register=no",
                "--keep-unit",
                "--settings=no",
                "--as-pid2",
            ]
            tree = ["--console=pipe", "--resolv-conf=off", f"--directory={root}"]
            yield [*apart, str(cgroup / "cgroup.procs"), *nspawn, *tree, *given]
    finally:
        cgroups.release(cgroup)
        os.close(lock)


def _is_network(name: str) -> bool:
    return name.upper() in {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} or name.startswith("PIP_")


def _run(what: str, argv: list[str]) -> None:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
    except FileNotFoundError as error:
        raise TreeFailed(f"{what}: {error.filename} is missing; `scripts/setup test` installs it") from None
    except subprocess.TimeoutExpired:
        raise TreeFailed(f"{what}: not built within {BUILD_SECONDS:g} s") from None
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise TreeFailed(f"{what}: {argv[0]} … exited with {done.returncode}\n{tail}")


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for name in SOURCES:
        top = CHECKOUT / name
        files = sorted(top.rglob("*")) if top.is_dir() else [top]
        for path in files:
            if path.is_file() and path.suffix != ".pyc":
                digest.update(f"{path.relative_to(CHECKOUT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """One builder at a time; the others wait for its result."""
    home.mkdir(parents=True, exist_ok=True)
    lock = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def main(suites: list[str]) -> int:
    """Build the named suites' trees, or all."""
    try:
        for suite in get_args(Suite):
            if not suites or suite in suites:
                print(root_of(suite).path)
    except BoxError as error:
        print(f"harness: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
