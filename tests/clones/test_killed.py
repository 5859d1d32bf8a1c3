"""A sync that is killed at any step: nothing is lost, and the next one goes on as if it had not been."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from gtrun.names import RunId
from tests.clones.killing import Killing
from tests.clones.place import RUN, Place, everything, on, others, tree, write

NEXT = RunId("c" * 32)
LEFT = """
    echo local >> kept; git commit -qam local; git checkout -q -b issue-1 HEAD~
    echo mine >> changed; git commit -qam mine; rm dir/inner; git rm -q run.sh; echo s > staged; git add staged
    echo more >> staged; mkdir deep; echo u > deep/untracked; echo v > new
"""


@pytest.fixture(scope="session")
def killing(tmp_path_factory):
    return Killing(tmp_path_factory.mktemp("killing"))


def left_behind(place: Place) -> list[str]:
    """Lock files, temporary files, what git keeps for gtrun that no record names, and what a record names in vain."""
    kept = set(place.git(place.clone, "for-each-ref", "--format=%(refname)", "refs/gtrun").split())
    return [
        *map(str, (place.clone / ".git").rglob("*.lock")),
        *map(str, (place.clone / ".git").glob("gtrun-*")),
        *map(str, place.state.rglob("*.tmp")),
        *(kept ^ {stash.ref for stash in place.stashes() if stash.ref}),
    ]


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_a_sync_that_is_killed_anywhere(place, killing, tmp_path, by):
    place.sh(LEFT)
    before, branches = everything(place), others(place)
    local = place.git(place.clone, "rev-parse", "main").strip()
    code, calls = killing.sync(Place(tmp_path / "whole").copy(place))
    assert code == 0
    noted = next(number for number, call in enumerate(calls, 1) if call.endswith("gtrun-sync"))
    assert len(calls) > 30
    for at, call in enumerate(calls, 1):
        if by == signal.SIGTERM and not calls[at - 2].endswith(".lock"):
            continue  # git takes back what it has begun: its locks
        there = Place(tmp_path / str(at)).copy(place)
        assert killing.sync(there, at=at, by=by)[0] == -by, call
        assert there.sync(NEXT) == f"{there.clone}/dir", (call, there.notes)
        assert on(there) == ("main", place.tip), call
        assert there.git(there.clone, "status", "--porcelain") == "", call
        assert others(there) == branches, call
        assert left_behind(there) == [], call
        assert any("was killed in the middle" in note for note in there.notes) is (at > noted), (call, there.notes)
        told = there.stashes()
        assert local in {stash.commit for stash in told}, call
        first = next(stash for number in (RUN, NEXT) for stash in told if stash.ref == f"refs/gtrun/{number}/0")
        there.bring_back(first)
        assert everything(there) == before, call


def test_a_sync_that_is_killed_while_it_makes_a_worktree(place, killing, tmp_path):
    """Of what was not made to its end nothing is left, and nobody is told of it."""
    place.sh(LEFT)
    before = everything(place)
    code, calls = killing.sync(Place(tmp_path / "whole").copy(place), worktree="fresh")
    assert code == 0
    assert len(calls) > 15
    for at, call in enumerate(calls, 1):
        there = Place(tmp_path / str(at)).copy(place)
        assert killing.sync(there, at=at, worktree="fresh")[0] == -signal.SIGKILL, call
        folder = Path(there.sync(NEXT, worktree="fresh")).parent
        assert there.git(folder, "rev-parse", "HEAD").strip() == place.tip, call
        assert [stash.run for stash in there.stashes()] == [NEXT], call
        assert [path.name for path in (there.state / "worktrees").iterdir()] == [NEXT], call
        assert [path.name for path in (there.clone / ".git/worktrees").iterdir()] == ["app"], call
        assert left_behind(there) == [], call
        assert everything(there) == before, call


def test_a_lock_is_only_removed_if_nobody_alive_has_made_it(place):
    """After a sync that was killed, and only what is not older than its note."""
    place.sh("echo u > u")
    (place.clone / ".git/gtrun-sync").symlink_to(f"/nowhere/state/stashes/{RUN}")
    lock = place.clone / ".git/index.lock"
    lock.touch()
    before = tree(place.clone)
    argv = ["git", "-C", str(place.clone), "cat-file", "--batch"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as alive:
        assert alive.stdin is not None
        assert alive.stdout is not None
        alive.stdin.write(b"HEAD\n")
        alive.stdin.flush()
        alive.stdout.readline()
        assert place.sync(NEXT) != f"{place.clone}/dir"
        assert "is left as it is (a git that is alive works in it)" in place.notes[-1]
        alive.stdin.close()
    assert (lock.exists(), tree(place.clone)) == (True, before)
    assert place.sync(RunId("d" * 32)) == f"{place.clone}/dir"
    assert not lock.exists()
    lock.touch()
    (place.clone / ".git/gtrun-sync").symlink_to(f"/nowhere/state/stashes/{RUN}")
    later = lock.stat().st_ctime_ns + 1
    os.utime(place.clone / ".git/gtrun-sync", ns=(later, later), follow_symlinks=False)
    assert place.sync(RunId("e" * 32)) != f"{place.clone}/dir"
    assert "(its index is locked (index.lock))" in place.notes[-1]
    assert lock.exists()


def test_what_a_git_of_ours_leaves_that_fails_is_removed_at_once(place):
    programs = place.root / "bin"
    lock = place.clone / ".git/index.lock"
    script = f'#!/bin/sh\ncase "$*" in *checkout*) touch {lock}; exit 9;; esac\nexec /usr/bin/git "$@"\n'
    write(programs / "git", script)
    (programs / "git").chmod(0o755)
    assert place.sync(programs=[str(programs)]) != f"{place.clone}/dir"
    assert "(it could not be reset: git checkout ended with 9)" in place.notes[-1]
    assert left_behind(place) == []
    assert place.sync(NEXT) == f"{place.clone}/dir"
