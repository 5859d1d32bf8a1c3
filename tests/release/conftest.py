"""A remote and a clone of it, by the real git."""

import os
import subprocess
from pathlib import Path

import pytest

from gtrun.release.git import Checkout

IDENTITY = {f"GIT_{who}_{what}": "t@example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", **IDENTITY}
    done = subprocess.run(
        ["/usr/bin/git", "-C", folder, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def commit(clone: Path, **files: str) -> str:
    """Commit these files (`a__b` is a/b); returns the commit."""
    for name, text in files.items():
        path = clone / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "more")
    return git(clone, "rev-parse", "HEAD")


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """A clone that pushes to the remote, which has one commit on its branch `main`."""
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", "remote.git")
    git(tmp_path, "clone", "--quiet", "remote.git", "upstream")
    git(tmp_path / "upstream", "checkout", "--quiet", "-B", "main")
    commit(tmp_path / "upstream", roof="old\n")
    git(tmp_path / "upstream", "push", "--quiet", "--set-upstream", "origin", "main")
    return tmp_path / "upstream"


@pytest.fixture
def clone(upstream: Path) -> Path:
    """A clone of the remote."""
    git(upstream.parent, "clone", "--quiet", "remote.git", "clone")
    return upstream.parent / "clone"


@pytest.fixture
def checkout(clone: Path, tmp_path: Path) -> Checkout:
    return Checkout(str(clone), {"HOME": str(tmp_path)})
