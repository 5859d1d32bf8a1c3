"""Which release a run goes on with: the judgement, and real builds that fail or are in use."""

import os
import re
import shutil
import struct
import sys
import time
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from gtrun.release import build as building
from gtrun.release import installation
from gtrun.release.build import Busy, locked, make_current, point, prune
from gtrun.release.git import State
from gtrun.release.installation import Release, pinned
from gtrun.release.update import NotUpdated, Reason, judge, newest
from tests.release.conftest import commit, git

UP_TO_DATE = State("c", "main", "origin/main", 0, 0)


@pytest.mark.parametrize(
    ("state", "offline", "was_upstream", "reason"),
    [
        (UP_TO_DATE, "", False, None),
        (State("c", "main", "origin/main", 0, 3), "", False, None),
        (State("c", "main", "origin/main", 3, 0), "", False, None),
        (State("c"), "no route", False, Reason.DETACHED),
        (State("c", "main"), "", False, Reason.NO_UPSTREAM),
        (State("c", "main", "origin/main"), "", False, Reason.NO_UPSTREAM),
        (UP_TO_DATE, "no route", False, Reason.OFFLINE),
        (State("c", "main", "origin/main", 0, 3, is_dirty=True), "", False, Reason.DIRTY),
        (State("c", "main", "origin/main", 1, 2), "", False, Reason.DIVERGED),
        (State("c", "main", "origin/main", 1, 2), "", True, Reason.REWRITTEN),
    ],
)
def test_judge(state, offline, was_upstream, reason):
    told = judge(state, offline, was_upstream=was_upstream)
    assert (told and told[0]) == reason


@pytest.mark.parametrize(
    ("behind", "said"),
    [
        (None, "no route"),
        (0, "no route; 0 commits behind as of the last fetch"),
        (1, "no route; 1 commit behind as of the last fetch"),
        (22, "no route; 22 commits behind as of the last fetch"),
    ],
)
def test_what_a_marker_says(behind, said):
    assert NotUpdated(Reason.OFFLINE, "no route", behind).said == said


PROGRAM = """\
import sys
from pathlib import Path
def main():
    folder = Path(__file__).parent.parent.parent
    print("gtrun imports from", folder)
"""
PYPROJECT = "[project]\ndependencies = ['none']\n"


@pytest.fixture
def own(tmp_path, upstream, clone):
    """A release of a package that can say that it imports, made from the clone."""
    commit(upstream, gtrun____init__="", pyproject="")
    for name, text in {"gtrun/cli/__init__.py": PROGRAM, "gtrun/__init__.py": "", "pyproject.toml": PYPROJECT}.items():
        (upstream / name).parent.mkdir(exist_ok=True, parents=True)
        (upstream / name).write_text(text)
    commit(upstream)
    git(upstream, "push", "--quiet")
    git(clone, "pull", "--quiet")
    root = tmp_path / "root"
    for folder in ("releases", "environments", "bin"):
        (root / folder).mkdir(parents=True)
    # the package needs nothing, so that the bare interpreter will do for its environment
    packages = building.environment_folder(root, sys.executable, ["none"])
    (packages / "bin").mkdir(parents=True)
    (packages / "bin/python").symlink_to(os.path.realpath(sys.executable))
    (packages / "complete").touch()
    made = building.build(root, checkout_of(clone), git(clone, "rev-parse", "HEAD"), sys.executable, os.environ)
    make_current(made)
    return made


def checkout_of(clone):
    return building.Checkout(str(clone), os.environ)


def taken(own, in_use=frozenset):
    return newest(own, environment=os.environ, in_use=in_use)


def refused(own):
    with pytest.raises(NotUpdated) as caught:
        taken(own)
    return caught.value


def test_nothing_new(own):
    assert taken(own) == own


def assert_compiled(source):
    """What Python would take instead of the source counts for it: by its time and size (importlib)."""
    compiled = Path(cache_from_source(str(source))).read_bytes()
    info = source.stat()
    assert struct.unpack("<LLL", compiled[4:16]) == (0, int(info.st_mtime) & 0xFFFFFFFF, info.st_size)


def test_what_is_the_same_is_not_compiled_again(own, upstream):
    """Nor is what has the same size and another content taken for it."""
    same, other = (
        Path(cache_from_source(str(own.folder / "gtrun" / name))) for name in ("cli/__init__.py", "__init__.py")
    )
    marked = same.read_bytes() + b"marked"
    same.write_bytes(marked)
    other.write_bytes(other.read_bytes() + b"marked")
    (upstream / "gtrun/__init__.py").write_text("#B")
    commit(upstream)
    git(upstream, "push", "--quiet")
    (own.folder / "gtrun/__init__.py").write_text("#A")
    folder = taken(own).folder
    assert (folder / same.relative_to(own.folder)).read_bytes() == marked
    assert b"marked" not in (folder / other.relative_to(own.folder)).read_bytes()


def test_a_newer_commit_is_taken(own, upstream, clone):
    (upstream / "gtrun/new.py").write_text("A = 1\n")
    newer = commit(upstream, gtrun__more="1")
    git(upstream, "push", "--quiet")
    release = taken(own)
    assert release.commit == newer == git(clone, "rev-parse", "HEAD")
    assert (release.folder / "gtrun/more").read_text() == "1"
    assert (own.root / "current").readlink() == Path("releases", newer)
    assert installation.read(release.folder) == release
    assert release.environment == own.environment
    for source in ("__init__.py", "cli/__init__.py", "new.py"):
        assert_compiled(release.folder / "gtrun" / source)
    assert not (own.folder / "gtrun/more").exists()
    assert sorted(path.name for path in release.folder.iterdir()) == ["bin", "gtrun", "release.json"]


@pytest.mark.parametrize(
    ("change", "reason", "said"),
    [
        (
            {"gtrun/cli/__init__.py": "import nonsense\n"},
            Reason.UNUSABLE,
            "does not import: .*No module named 'nonse",
        ),
        ({"gtrun/other.py": "def :\n"}, Reason.UNUSABLE, r"gtrun/other.py does not compile: invalid syntax"),
        ({"gtrun/cli/__init__.py": "def main(): print('yes')\n"}, Reason.UNUSABLE, "does not import: yes"),
        ({"pyproject.toml": "[project]\n"}, Reason.UNUSABLE, "pyproject.toml does not say what gtrun needs"),
        (
            {"pyproject.toml": "[project]\ndependencies = ['/nonexistent/gtrun-none.whl']\n"},
            Reason.DEPENDENCIES,
            "the packages that it needs cannot be installed: .*gtrun-none",
        ),
    ],
)
def test_what_is_not_usable_is_not_taken(own, upstream, clone, change, reason, said):
    for name, text in change.items():
        (upstream / name).write_text(text)
    commit(upstream)
    git(upstream, "push", "--quiet")
    before = git(clone, "rev-parse", "HEAD")
    error = refused(own)
    assert (error.reason, error.behind) == (reason, 1)
    assert re.search(said, error.message), error.message
    assert git(clone, "rev-parse", "HEAD") == before
    assert [path.name for path in (own.root / "releases").iterdir()] == [own.commit]
    assert [path.name for path in (own.root / "environments").iterdir()] == [Path(own.environment).name]
    assert (own.root / "current").readlink() == Path("releases", own.commit)


def test_somebody_else_updates(own):
    with locked(own.root):
        assert refused(own).reason is Reason.BUSY
        with pytest.raises(Busy), locked(own.root):
            pass
    assert taken(own) == own


def test_what_a_killed_update_left_is_made_anew(own, upstream):
    newer = commit(upstream, gtrun__more="1")
    git(upstream, "push", "--quiet")
    left = own.root / "releases" / newer
    (left / "gtrun").mkdir(parents=True)
    (left / "gtrun/half").touch()
    assert not (taken(own).folder / "gtrun/half").exists()


def test_a_checkout_that_is_gone(own, clone):
    shutil.rmtree(clone / ".git")
    assert refused(own).reason is Reason.NOT_A_CHECKOUT


def releases(root, *ages):
    """Releases 0, 1, … that were made so many days ago, each in an environment of its own."""
    for name, days in enumerate(ages):
        folder = root / "releases" / str(name)
        folder.mkdir(parents=True)
        (root / "environments" / str(name)).mkdir(parents=True)
        Release(folder, str(name), "/c", str(root / "environments" / str(name)), "/p").publish()
        made = time.time() - days * 86400
        os.utime(folder / installation.MANIFEST, (made, made))


@pytest.mark.parametrize(
    ("ages", "in_use", "kept"),
    [
        ((9, 8, 7), (), "012"),
        ((9, 8, 7, 6), (), "123"),
        ((9, 8, 7, 6), (0,), "0123"),
        ((9, 0.5, 0.4, 0.3), (), "0123"),  # 0 was replaced half a day ago
        ((9, 8, 0.5, 0.4, 0.3), (), "1234"),
    ],
)
def test_prune(tmp_path, ages, in_use, kept):
    releases(tmp_path, *ages)
    point(tmp_path / "current", Path("releases") / str(len(ages) - 1))
    (tmp_path / "releases/half/gtrun").mkdir(parents=True)  # a build that was killed, of what nobody wants any more
    prune(tmp_path, [str(tmp_path / "releases" / str(name)) for name in in_use], time.time())
    assert "".join(sorted(path.name for path in (tmp_path / "releases").iterdir())) == kept
    assert "".join(sorted(path.name for path in (tmp_path / "environments").iterdir())) == kept


def test_the_current_one_is_kept(tmp_path):
    releases(tmp_path, 9, 8, 7, 6)
    point(tmp_path / "current", Path("releases/0"))
    prune(tmp_path, [], time.time())
    assert (tmp_path / "releases/0").exists()


def test_pinned(tmp_path):
    releases(tmp_path, 1)
    program = tmp_path / "releases/0/bin/gtrun"
    program.parent.mkdir()
    program.touch()
    point(tmp_path / "current", Path("releases/0"))
    (tmp_path / "bin").mkdir()
    point(tmp_path / "bin/gtrun", Path("../current/bin/gtrun"))
    point(tmp_path / "bin/other", Path("/bin/sh"))
    assert pinned(str(tmp_path / "bin/gtrun")) == str(program)
    assert pinned(str(tmp_path / "bin/other")) == str(tmp_path / "bin/other")
    assert pinned("/nonexistent/gtrun") == "/nonexistent/gtrun"
