"""Making a release: files, environment, compiled, proven, on the disk; only then it counts.

It is made at the place where it will be executed, so that what was proven is what runs, and its manifest is written
last. Whoever builds holds the installation's lock; a folder without a manifest is then nobody's.
"""

import contextlib
import os
import py_compile
import shutil
import sys
import time
import tomllib
from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from importlib.util import cache_from_source
from pathlib import Path

from gtrun.errors import GtrunError
from gtrun.files import describe, lock_at_once, publish, sync_folder
from gtrun.names import is_plain_argument
from gtrun.process import finish
from gtrun.release import installation
from gtrun.release.git import Checkout, closed, last_words
from gtrun.release.installation import Release

NEWEST = 3
"""So many releases are kept whatever became of them."""

REPLACED_FOR = 86400.0
"""Seconds for which a release is kept after a newer one came: somebody may still wait in it (`dispatch --wait`)."""

_COMPLETE = "complete"
_INSTALL_SECONDS = 180.0  # pystemd is compiled
_SECONDS = 30.0
_SHEBANG_MAX = 255  # execve(2)
_PROGRAM = """\
#!{python} -I
import sys

sys.path.insert(0, {folder!r})
from gtrun.cli import main

main()
"""


class BuildFailed(GtrunError):
    """A release that does not build or does not import. Nothing is left of it."""


class EnvironmentFailed(BuildFailed):
    """The packages that it needs could not be installed."""


class Busy(GtrunError):
    """Somebody else changes this installation."""


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Be the only one who changes this installation. Raises Busy, OSError."""
    descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if not lock_at_once(descriptor):
            raise Busy("another update is under way")
        yield
    finally:
        os.close(descriptor)


def build(
    root: Path,
    checkout: Checkout,
    commit: str,
    python: str,
    environment: Mapping[str, str],
    before: Release | None = None,
) -> Release:
    """The release of a commit, made if it is not there, from what is the same in the one `before`.

    Raises BuildFailed with nothing left behind.
    """
    folder = root / "releases" / commit
    if installation.is_release(folder):
        return installation.read(folder)
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        checkout.export(commit, "gtrun", folder / "gtrun", folder / "index")
        (folder / "index").unlink()
        needed = _dependencies(checkout.show(commit, "pyproject.toml"))
        packages = _environment(root, python, needed, environment)
        release = Release(folder, commit, str(checkout.path), str(packages), python)
        _write_program(release)
        _compile(folder / "gtrun", before.folder / "gtrun" if before else None)
        _prove(release, environment)
        _sync(folder)
        release.publish()
        sync_folder(folder.parent)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise BuildFailed(f"commit {commit[:12]} cannot be installed: {describe(error)}") from error
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, GtrunError) and not isinstance(error, BuildFailed):
            raise BuildFailed(f"commit {commit[:12]} cannot be installed: {error.message}") from error
        raise
    return release


def _dependencies(pyproject: str) -> list[str]:
    try:
        return [str(one) for one in tomllib.loads(pyproject)["project"]["dependencies"]]
    except (ValueError, KeyError, TypeError) as error:
        raise BuildFailed("pyproject.toml does not say what gtrun needs") from error


def environment_folder(root: Path, python: str, needed: Collection[str]) -> Path:
    """Where the packages for these needs lie, in that python as it is now (this process runs it)."""
    told = "\n".join([python, sys.version, *sorted(needed)])
    return root / "environments" / sha256(told.encode()).hexdigest()[:32]


def _environment(root: Path, python: str, needed: list[str], environment: Mapping[str, str]) -> Path:
    """A virtual environment with these packages, made if it is not there. Raises EnvironmentFailed, OSError."""
    folder = environment_folder(root, python, needed)
    if (folder / _COMPLETE).exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    until = time.monotonic() + _INSTALL_SECONDS
    pip = [str(folder / "bin/python"), "-I", "-m", "pip", "install", "--quiet", "--no-input"]
    try:
        for argv in ([python, "-I", "-m", "venv", str(folder)], [*pip, "--disable-pip-version-check", *needed]):
            left = max(1.0, until - time.monotonic())
            done = finish(argv, environment=closed(environment), deadline=left)
            if done.code != 0:
                raise EnvironmentFailed(f"the packages that it needs cannot be installed: {last_words(done)}")
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, GtrunError) and not isinstance(error, EnvironmentFailed):
            raise EnvironmentFailed(f"the packages that it needs cannot be installed: {error.message}") from error
        raise
    _sync(folder)
    publish(folder / _COMPLETE, b"")
    sync_folder(folder.parent)
    return folder


def _write_program(release: Release) -> None:
    python = f"{release.environment}/bin/python"
    first = f"#!{python} -I"
    if not is_plain_argument(str(release.program)) or len(first) > _SHEBANG_MAX:
        raise BuildFailed(
            f"{release.root} cannot stand on a unit's command line",
            hint="install under a path of letters, digits and _ . / = - only, of at most 180 characters",
        )
    release.program.parent.mkdir()
    release.program.write_text(_PROGRAM.format(python=python, folder=str(release.folder)))
    release.program.chmod(0o755)


def _compile(package: Path, before: Path | None) -> None:
    """Compile every module; what is the same in the package `before` is not compiled again. Raises BuildFailed.

    By this very interpreter: the environment's is the same, or it would be another environment.
    """
    for source in sorted(package.rglob("*.py")):
        if before is None or not _taken_over(source, before / source.relative_to(package)):
            try:
                py_compile.compile(str(source), doraise=True)
            except py_compile.PyCompileError as error:
                raise BuildFailed(f"{source.relative_to(package.parent)} does not compile: {error.exc_value}") from None


def _taken_over(source: Path, before: Path) -> bool:
    """Whether the module is what it was, and then has what was compiled of it, which counts by time and size."""
    compiled, compiled_before = (Path(cache_from_source(str(path))) for path in (source, before))
    try:
        if source.read_bytes() != before.read_bytes():
            return False
        compiled.parent.mkdir(exist_ok=True)
        compiled.write_bytes(compiled_before.read_bytes())
        modified = before.stat().st_mtime_ns
    except FileNotFoundError:
        return False
    os.utime(source, ns=(modified, modified))
    return True


def _prove(release: Release, environment: Mapping[str, str]) -> None:
    done = finish([str(release.program), installation.PROOF], environment=closed(environment), deadline=_SECONDS)
    if done.code != 0 or done.output != installation.proven(release.folder):
        raise BuildFailed(f"commit {release.commit[:12]} does not import: {last_words(done)}")


def _sync(folder: Path) -> None:
    """All of it is on the disk. Raises OSError."""
    for place, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(place, name)  # noqa: PTH118 - thousands of them
            if os.path.islink(path):  # noqa: PTH114
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(Path(place))


def make_current(release: Release) -> None:
    """From now on `current` is this release, for whoever looks. Raises OSError."""
    point(release.root / "current", Path("releases") / release.commit)


def point(link: Path, target: Path) -> None:
    """Make or turn a link, atomically and durably. Raises OSError."""
    temporary = link.with_name(f".{link.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.rename(link)
    sync_folder(link.parent)


def prune(root: Path, in_use: Collection[str], now: float) -> None:
    """Remove releases that nothing needs, and environments that no release needs.

    Kept are the current one, those `in_use` (folders), the newest, and what was replaced lately. Whoever prunes holds
    the installation's lock.
    """
    folders = [path for path in (root / "releases").iterdir() if installation.is_release(path)]
    made = sorted((((path / installation.MANIFEST).stat().st_mtime, path) for path in folders), reverse=True)
    current = Path(os.path.realpath(root / "current"))
    kept = {path for _, path in made[:NEWEST]} | {current, *map(Path, in_use)}
    for (_, path), (replaced_at, _) in zip(made[1:], made, strict=False):
        if path not in kept and replaced_at < now - REPLACED_FOR:
            (path / installation.MANIFEST).unlink()  # no release any more, whatever becomes of the rest
    for path in (root / "releases").iterdir():
        if not installation.is_release(path):  # that, and what a build that was killed has left
            shutil.rmtree(path, ignore_errors=True)
    needed = {installation.read(path).environment for path in folders if installation.is_release(path)}
    for path in (root / "environments").iterdir():
        if str(path) not in needed:
            shutil.rmtree(path)
