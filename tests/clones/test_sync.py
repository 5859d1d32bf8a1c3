"""A clone before a run, in every state: what is in it comes back byte for byte, or nothing is touched."""

import contextlib
import fcntl
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import msgspec
import pytest

from gtrun.account import own
from gtrun.clones import stashes, worktrees
from gtrun.clones import sync as syncing
from gtrun.clones.sync import moved
from gtrun.errors import LaunchFailed
from gtrun.git import git_of
from gtrun.names import RunId, Token, UnitName
from gtrun.state import record as records
from gtrun.state.facts import Begun, WorksIn
from tests.clones.place import RUN, Place, everything, on, others, tree, write
from tests.clones.states import ASIDE, UNTOUCHED

SECRET = "hunter2"  # noqa: S105


@pytest.mark.parametrize("script", ASIDE.values(), ids=ASIDE)
def test_what_is_in_it_comes_back_byte_for_byte(place, script):
    place.sh(script)
    before, branches = everything(place), others(place)
    assert place.sync() == f"{place.clone}/dir"
    assert not (place.root / "ran").exists()
    assert on(place) == ("main", place.tip)
    assert place.git(place.clone, "status", "--porcelain") == ""
    assert others(place) == branches
    (stash,) = place.stashes()
    ref = f"refs/gtrun/{RUN}/0"
    assert (stash.ref, stash.run, stash.issue, stash.clone) == (ref, RUN, "1", os.path.realpath(place.clone))
    assert place.git(place.clone, "rev-parse", ref).strip() == stash.commit
    (note,) = place.notes
    assert note.startswith(f"set aside from the clone {stash.clone}: {stash.what}; to bring it back: ")
    assert note.endswith(" ".join(stash.command))
    shutil.rmtree(place.clone / ".git/hooks")
    place.bring_back(stash)
    assert everything(place) == before
    place.git(place.clone, "fsck", "--strict")


def test_what_is_to_be_added_comes_back_as_a_file(place):
    place.sh("echo a > intent; git add -N intent")
    before = tree(place.clone)
    place.sync()
    assert place.git(place.clone, "status", "--porcelain") == ""
    place.bring_back(place.stashes()[0])
    assert tree(place.clone) == before


def test_a_clean_clone_is_brought_up_to_date_in_silence(place):
    assert place.sync() == f"{place.clone}/dir"
    assert place.git(place.clone, "rev-parse", "HEAD").strip() == place.tip
    assert tree(place.clone)[b"new"] == ("file", b"new\n")
    assert (place.stashes(), place.notes, place.moved) == ([], [], {})


def test_what_is_ignored_stays(place):
    place.sh("echo l > a.log; mkdir build; echo b > build/out; touch kept")
    place.sync()
    assert (place.clone / "a.log").read_text() == "l\n"
    assert (place.clone / "build/out").read_text() == "b\n"
    assert place.stashes() == []


def test_other_branches_are_as_they_were(place):
    place.sh("git checkout -q -b other; echo o > o; git add o; git commit -qm o; git checkout -q main")
    before = place.git(place.clone, "rev-parse", "other")
    place.sync()
    assert place.git(place.clone, "rev-parse", "other") == before
    assert place.stashes() == []


def test_twice_is_two_stashes(place):
    place.sh("echo 1 > one")
    place.sync()
    place.sh("echo 2 > two")
    place.sync(RunId("c" * 32))
    assert [stash.ref[11:12] for stash in place.stashes()] == ["a", "c"]
    assert [place.git(place.clone, "ls-tree", "--name-only", f"{one.ref}^3").strip() for one in place.stashes()] == [
        "one", "two",
    ]  # fmt: skip


def test_what_was_private_is_private(place):
    place.sh("echo s > secret; chmod 600 secret; chmod 755 .git .git/objects .git/objects/pack")
    before = set((place.clone / ".git/objects").rglob("*"))
    place.sync()
    made = [path for path in set((place.clone / ".git/objects").rglob("*")) - before if path.suffix == ".pack"]
    kept = [path for path in made if not path.stat().st_mode & 0o077]
    assert len(kept) == 1
    assert not any(stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (place.state / "stashes").glob("*"))


# What cannot be proven to be kept


def inside_git(clone: Path) -> dict[str, bytes]:
    """What git keeps of a clone's state, but for what a fetch and a new worktree add."""
    where = clone / ".git"
    passing = (
        "objects/",
        "refs/remotes/",
        "logs/refs/remotes/",
        "worktrees/",
        "FETCH_HEAD",
        "ORIG_HEAD",
        "packed-refs",
    )
    return {
        name: path.read_bytes()
        for path in where.rglob("*")
        if path.is_file() and not (name := str(path.relative_to(where))).startswith(passing)
    }


@pytest.mark.parametrize(("script", "why"), UNTOUCHED.values(), ids=UNTOUCHED)
def test_what_cannot_be_kept_is_not_touched(place, script, why):
    place.sh(script)
    before, git_before = tree(place.clone), inside_git(place.clone)
    workdir = place.sync(stash_max=1 << 20)
    assert tree(place.clone) == before
    assert inside_git(place.clone) == git_before
    assert not (place.root / "ran").exists()
    assert place.git(place.clone, "for-each-ref", "refs/gtrun") == ""
    folder = Path(workdir).parent
    assert workdir == f"{folder}/dir"
    assert folder.is_relative_to(place.state)
    assert place.moved == {str(place.clone): str(folder)}
    assert place.git(folder, "rev-parse", "HEAD").strip() == place.git(place.clone, "rev-parse", "origin/main").strip()
    assert b"kept" in tree(folder)
    note = place.notes[-1]
    assert why in note, note
    assert note.startswith(f"the clone {place.clone} is left as it is (")
    assert note.endswith(f": the run works in a fresh worktree of origin/main, {folder}")


def test_the_habit_of_a_fresh_worktree_touches_no_clone(place):
    place.sh("echo more >> changed; echo u > untracked")
    before = tree(place.clone)
    folder = Path(place.sync(worktree="fresh")).parent
    assert tree(place.clone) == before
    assert place.git(folder, "rev-parse", "HEAD").strip() == place.tip
    assert place.notes == [
        f"the clone {place.clone} is not used: the run works in a fresh worktree of origin/main, {folder}"
    ]
    assert place.git(place.clone, "for-each-ref", "refs/gtrun") == ""


# Which branch a run starts from


def test_a_run_does_not_start_on_the_branch_of_the_one_before(place):
    """The branch keeps its name and its commits, and one list tells what of them is on no remote."""
    place.sh("git checkout -q -b issue-1; echo i > i; git add i; git commit -qm i")
    tip = place.git(place.clone, "rev-parse", "issue-1").strip()
    place.sync()
    assert on(place) == ("main", place.tip)
    assert place.git(place.clone, "rev-parse", "issue-1").strip() == tip
    (stash,) = place.stashes()
    assert (stash.what, stash.commit) == ("1 unpushed commit on issue-1", tip)
    assert "1 unpushed commit on issue-1; to bring it back: " in place.notes[0]
    place.sync(RunId("c" * 32))
    assert len(place.stashes()) == len(place.notes) == 1


def test_a_branch_that_the_remote_has_is_left_in_silence(place):
    place.sh("git checkout -q -b issue-1; echo i > i; git add i; git commit -qm i; git push -q -u origin issue-1")
    place.sync()
    assert (on(place), place.stashes(), place.notes) == (("main", place.tip), [], [])


def test_commits_of_the_default_branch_are_set_aside_as_well(place):
    """The clone is on another branch, so that nothing of them is in its files."""
    place.sh(
        """echo m >> kept; git commit -qam mine; git checkout -q -b issue-1 HEAD~
        echo i > i; git add i; git commit -qm i; echo u > u"""
    )
    before, tip = everything(place), place.git(place.clone, "rev-parse", "main").strip()
    place.sync()
    assert on(place) == ("main", place.tip)
    work, branch = place.stashes()
    assert (work.what, branch.what) == (
        "1 untracked file and 1 unpushed commit on issue-1",
        "1 unpushed commit on main",
    )
    assert (branch.commit, branch.ref) == (tip, f"refs/gtrun/{RUN}/0-branch")
    assert [note.partition("; ")[0] for note in place.notes] == [
        f"set aside from the clone {place.clone}: {stash.what}" for stash in (work, branch)
    ]
    place.bring_back(work)
    assert everything(place) == before
    place.sh("git add -A; git commit -qm all")
    place.bring_back(branch)
    assert on(place) == (f"gtrun-{RUN[:12]}-0-branch", tip)


@pytest.mark.parametrize("is_told", [True, False])
def test_the_default_branch_is_what_the_remote_says_now(place, is_told):
    """Also in a clone that has never heard of one."""
    place.sh("git push -q origin main:trunk; git remote set-head origin -d")
    if is_told:
        place.git(place.clone, "remote", "set-head", "origin", "main")
    place.git(place.remote, "symbolic-ref", "HEAD", "refs/heads/trunk")
    head = place.git(place.clone, "rev-parse", "main").strip()
    place.sync()
    assert on(place) == ("trunk", head)
    assert place.git(place.clone, "rev-parse", "--abbrev-ref", "trunk@{upstream}") == "origin/trunk\n"
    assert place.git(place.clone, "symbolic-ref", "refs/remotes/origin/HEAD") == "refs/remotes/origin/trunk\n"
    assert place.notes == []


def test_another_branch_by_configuration(place):
    place.sh("git checkout -q -b develop; echo d > d; git add d; git commit -qm d; git push -q origin develop")
    head = place.git(place.clone, "rev-parse", "develop").strip()
    place.sh("git checkout -q main; git branch -qD develop")
    place.sync(branch="develop")
    assert (on(place), place.notes) == (("develop", head), [])
    assert place.git(place.clone, "symbolic-ref", "refs/remotes/origin/HEAD") == "refs/remotes/origin/main\n"
    folder = Path(place.sync(branch="develop", worktree="fresh")).parent
    assert place.git(folder, "rev-parse", "HEAD").strip() == head


def test_what_a_remote_without_a_default_branch_does(place):
    place.git(place.remote, "symbolic-ref", "HEAD", "refs/heads/nothing")
    place.sh("echo u > u")
    place.sync()
    assert on(place) == ("main", place.tip)
    why = "it stays on its branch main, since no default branch of the remote is known"
    assert place.notes[-1] == f"the clone {place.clone} is at origin/main: {why}"


def test_a_default_branch_that_is_not_fetched(place):
    place.sh("git config remote.origin.fetch +refs/heads/main:refs/remotes/origin/main; git push -q origin main:trunk")
    place.git(place.remote, "symbolic-ref", "HEAD", "refs/heads/trunk")
    place.sync()
    assert on(place) == ("main", place.tip)
    assert place.notes[-1].endswith(
        "it stays on its branch main, since the remote's default branch trunk is not fetched"
    )


def test_a_default_branch_that_is_checked_out_elsewhere(place):
    """It is not moved under another worktree's files."""
    place.sh("git checkout -q -b issue-1; git worktree add -q ../wt main; echo u > u")
    head = place.git(place.clone, "rev-parse", "main").strip()
    place.sync()
    assert on(place) == ("", place.tip)
    assert place.git(place.root / "wt", "rev-parse", "main").strip() == head
    assert place.git(place.root / "wt", "status", "--porcelain") == ""
    assert place.notes[-1].endswith(f"it is on no branch, since main is checked out in {place.root}/wt")
    assert [stash.what for stash in place.stashes()] == ["1 untracked file on issue-1"]


def test_a_remote_that_is_off_is_known_as_it_was(place):
    place.sh("git fetch -q; git checkout -q -b issue-1; git remote set-url origin /nowhere; echo u > u")
    place.sync()
    assert on(place) == ("main", place.tip)
    assert re.search(r" was not reached \(git ls-remote ended with 128\): as fetched \S+ ago$", place.notes[0])


def test_submodules(place, tmp_path):
    """One as committed is left alone; one that is not keeps the clone from being touched."""
    place.git(tmp_path, "init", "-q", "-b", "main", "sub")
    write(tmp_path / "sub/file", "s")
    place.commit(tmp_path / "sub", "s")
    place.sh(
        "git pull -q; git -c protocol.file.allow=always submodule add -q ../sub sub; git commit -qm sub; git push -q"
    )
    place.sh("echo m >> changed")
    place.sync()
    assert tree(place.clone)[b"sub/file"] == ("file", b"s")
    assert [stash.what for stash in place.stashes()] == ["1 changed file"]
    for script in (
        "echo t > sub/file",
        "cd sub; git add -A; git commit -qm t",
        "cd sub; git reset -q --hard HEAD~; : > u",
    ):
        place.sh(script)
        before = tree(place.clone)
        assert place.sync(RunId(f"{len(place.moved):032x}")) != f"{place.clone}/dir"
        assert "a submodule in it is not as it was committed" in place.notes[-1]
        assert tree(place.clone) == before


def test_a_submodule_is_not_overwritten_by_a_folder_of_the_remote(place, tmp_path):
    place.git(tmp_path, "init", "-q", "-b", "main", "sub")
    write(tmp_path / "sub/file", "s")
    place.commit(tmp_path / "sub", "s")
    place.sh(
        "git pull -q; git -c protocol.file.allow=always submodule add -q ../sub sub; git commit -qm sub; git push -q"
    )
    place.git(tmp_path, "clone", "-q", str(place.remote), "other")
    place.git(tmp_path / "other", "rm", "-q", "sub")
    write(tmp_path / "other/sub", "a file now")
    place.commit(tmp_path / "other", "no submodule")
    place.git(tmp_path / "other", "push", "-q")
    before = tree(place.clone)
    place.sync()
    assert "an ignored file" in place.notes[-1]
    assert tree(place.clone) == before


@pytest.mark.parametrize("option", ["--depth=1", "--filter=blob:none", "--no-checkout", "--single-branch"])
def test_clones_of_other_kinds(place, option):
    place.git(place.remote, "config", "uploadpack.allowFilter", "true")
    shutil.rmtree(place.clone)
    place.git(place.root, "clone", "-q", option, f"file://{place.remote}", str(place.clone))
    place.git(place.clone, "checkout", "-q", "main")
    place.sh("git reset -q --hard; echo m >> changed; git add changed; echo n >> changed; echo u > untracked")
    before = everything(place)
    assert place.sync() == f"{place.clone}/dir"
    assert place.git(place.clone, "status", "--porcelain") == ""
    place.bring_back(place.stashes()[0])
    assert everything(place) == before


def test_a_linked_worktree_is_a_clone_as_well(place):
    place.git(place.clone, "worktree", "add", "-q", "-b", "wt", str(place.root / "wt"), "--track", "origin/main")
    write(place.root / "wt/untracked", "u")
    wt = str(place.root / "wt")
    assert place.sync(clones=(wt,), workdir=wt) == wt
    assert place.git(Path(wt), "status", "--porcelain") == ""
    place.bring_back(place.stashes()[0])
    assert (place.root / "wt/untracked").read_text() == "u"


def test_sha256(place):
    for folder in (place.clone, place.remote):
        shutil.rmtree(folder)
    place.git(place.root, "init", "-q", "--bare", "-b", "main", "--object-format=sha256", str(place.remote))
    place.git(place.root, "init", "-q", "-b", "main", "--object-format=sha256", str(place.clone))
    place.git(place.clone, "remote", "add", "origin", str(place.remote))
    place.sh("mkdir dir; echo a > dir/changed; git add -A; git commit -qm a; git push -q -u origin main")
    place.sh("echo b > dir/changed; echo u > u")
    before = everything(place)
    place.sync()
    assert place.git(place.clone, "status", "--porcelain") == ""
    place.bring_back(place.stashes()[0])
    assert everything(place) == before


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("rm -rf ../app", "is not there"),
        ("rm -rf .git", "is not a clone that git can work in"),
        ("git config core.bare true", "is not a clone that git can work in"),
        ("git config core.worktree ../..", "the files of the clone"),
        ("git remote remove origin", "cannot be used: it has no remote"),
        ("git config remote.origin.fetch '+refs/*:refs/*'", "cannot be used: a fetch would overwrite its branches"),
        ("git config remote.origin.fetch '+refs/heads/*:refs/heads/*'", "a fetch would overwrite its branches"),
        ("echo '[' > .git/config", "is not a clone that git can work in"),
        (
            "git -C ../remote.git symbolic-ref HEAD refs/heads/x; git checkout -q -b mine",
            "no default branch of its remote is known",
        ),
        ("cd ..; to=$(printf 'w\\377'); mv app $to; ln -s $to app", r"/w\udcff, which is not UTF-8"),
        ("touch .git/index.lock .git/worktrees", "and there is no fresh worktree of origin/main"),
    ],
)  # fmt: skip
def test_a_run_without_a_clone_to_work_in_gives_up(place, script, why):
    place.sh("echo m >> changed; " + script)
    before = tree(place.clone) if place.clone.exists() else {}
    with pytest.raises(LaunchFailed) as caught:
        place.sync()
    assert why in caught.value.message
    assert (tree(place.clone) if place.clone.exists() else {}) == before
    assert (place.stashes(), place.moved) == ([], {})


def test_a_workdir_that_cannot_be_told_in_a_worktree(place):
    place.sh("in=$(printf 'w\\377'); mkdir $in; ln -s $in in; git config core.autocrlf true; echo m >> changed")
    with pytest.raises(LaunchFailed, match=r"is in .* of the clone, which is not UTF-8"):
        place.sync(workdir=f"{place.clone}/in")


def test_a_folder_of_a_clone_is_none(place):
    with pytest.raises(LaunchFailed, match=f"{place.clone}/dir is not a clone that git can work in"):
        place.sync(clones=(f"{place.clone}/dir",))


def test_a_remote_that_hangs_costs_its_deadline_and_is_said(place, monkeypatch):
    monkeypatch.setattr("gtrun.clones.clone.FETCH", 5.0)
    script = f"#!/bin/sh\necho {SECRET} >&2\necho $$ > {place.root}/hung\nexec sleep 600\n"
    write(place.root / "hang", script)
    (place.root / "hang").chmod(0o755)
    place.sh(f"git config remote.origin.uploadpack {place.root}/hang; echo u > untracked")
    place.sync()
    hung = Path("/proc", (place.root / "hung").read_text().strip(), "stat")
    assert not hung.exists() or hung.read_text().rpartition(")")[2].split()[0] == "Z"
    assert place.notes[0].startswith(
        f"the remote of the clone {place.clone} was not reached (git ls-remote did not end with"
    )
    assert [stash.what for stash in place.stashes()] == ["1 untracked file"]
    assert place.git(place.clone, "status", "--porcelain") == ""
    assert SECRET not in "".join(place.notes)
    assert list((place.clone / ".git").rglob("*.lock")) == []


def test_what_a_remote_prints_is_nobodys_to_read(place, capfd):
    place.git(place.clone, "remote", "set-url", "origin", f"https://user:{SECRET}@127.0.0.1:1/x.git")
    place.sync()
    assert place.notes[0].startswith(
        f"the remote of the clone {place.clone} was not reached (git ls-remote ended with 128)"
    )
    assert SECRET not in "".join([*place.notes, *capfd.readouterr()])


@pytest.mark.parametrize("is_configured", [True, False])
def test_ssh_asks_nobody_and_leaves_nothing_behind(place, is_configured):
    """No connection that outlives the fetch, whichever ssh it is."""
    programs = place.root / "bin"
    write(programs / "ssh", f'#!/bin/sh\necho "$@" >> {place.root}/asked\nexit 1\n')
    (programs / "ssh").chmod(0o755)
    place.sh("git remote set-url origin ssh://host.invalid/x")
    if is_configured:
        place.git(place.clone, "config", "core.sshCommand", f"{programs}/ssh -4")
    place.sync(programs=() if is_configured else [str(programs)])
    asked = (place.root / "asked").read_text().splitlines()[-1]
    assert {"-oBatchMode=yes", "-oControlMaster=no", "-oControlPath=none"} <= set(asked.split())
    assert ("-4" in asked.split()) is is_configured


def test_another_run_that_prepares_it_keeps_it(place):
    descriptor = os.open(place.clone / ".git", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        assert place.sync() != f"{place.clone}/dir"
    finally:
        os.close(descriptor)
    assert "(another run is preparing it)" in place.notes[0]


@pytest.mark.parametrize(
    ("facts", "is_live", "is_used"),
    [
        ([Begun(RunId("d" * 32), 1.0)], True, True),
        ([Begun(RunId("d" * 32), 1.0)], False, False),
        ([Begun(RunId("d" * 32), 1.0), "moved"], True, False),
        ([], True, False),
    ],
)
def test_a_clone_that_a_live_run_works_in_is_not_touched(place, monkeypatch, facts, is_live, is_used):
    monkeypatch.setattr(syncing, "_is_live", lambda _: is_live)
    other = place.resolved(token=Token("e" * 32), unit=UnitName("task-2.service"), clones=())
    with records.create(str(place.state), other) as record:
        for fact in facts:
            record.append(WorksIn(str(place.clone), "/elsewhere") if fact == "moved" else fact)
        place.sh("echo m >> changed")
        assert (place.sync() != f"{place.clone}/dir") is is_used
    assert ("(task-2.service works in it)" in place.notes[0]) is is_used


def test_what_changes_in_between_is_not_touched(place, monkeypatch):
    """Somebody writes after the work was kept: in a file that is kept, and a new one."""
    place.sh("echo m >> changed")
    for script in ("echo late >> changed", "echo late > late"):
        place.notes.clear()

        def write_late(*arguments: object, script: str = script, real=stashes.write) -> Path:
            if not str(arguments[1]).endswith("worktree"):
                place.sh(script)
            return real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(stashes, "write", write_late)
            place.sync(RunId(f"{len(place.stashes()):032x}"))
        assert "(it changes while it is looked at)" in place.notes[-1]
    assert "late\n" in (place.clone / "changed").read_text()
    assert (place.clone / "late").read_text() == "late\n"


def test_a_reset_that_fails_is_said_and_all_is_kept(place):
    place.sh("echo m >> changed; echo u > untracked")
    before = everything(place)
    place.sh(
        "git config filter.x.smudge false; git config filter.x.required true; echo new filter=x > .git/info/attributes"
    )
    with pytest.raises(LaunchFailed) as caught:
        place.sync()
    assert "(it could not be reset: git checkout ended with 128)" in caught.value.message
    (stash,) = place.stashes()
    place.sh("rm .git/info/attributes; git reset -q --hard; git clean -fdq")
    place.bring_back(stash)
    assert everything(place) == before


@pytest.mark.parametrize("broken", ["proof", "record"])
def test_nothing_is_touched_before_it_is_kept(place, monkeypatch, broken):
    place.sh("echo m >> changed; echo u > untracked")
    before = tree(place.clone)
    if broken == "proof":
        monkeypatch.setattr("gtrun.clones.aside._stream", lambda *_: iter([b"done\n"]))
    else:
        write(place.state / "stashes", "in the way")
    with pytest.raises(LaunchFailed) if broken == "record" else contextlib.nullcontext():
        place.sync()
    assert tree(place.clone) == before


# Worktrees


def held_by(place: Place) -> str:
    account = msgspec.structs.replace(own({}), home=str(place.home))
    (stash,) = (one for one in place.stashes() if one.folder)
    return worktrees.held(git_of(account, {}), stash)


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("echo l > a.log", ""),
        ("git checkout -q -b work; echo w > w; git add w; git commit -qm w; git push -q origin work", ""),
        ("echo w > w", "1 untracked file"),
        ("echo w >> kept; git add kept", "1 changed file"),
        ("echo w >> kept; git commit -qam w", "1 unpushed commit"),
        ("git checkout -q -b work; echo w > w; git add w; git commit -qm w", "1 unpushed commit"),
        ("echo w > w; git add w; git commit -qm w; git checkout -q origin/main", "1 commit that no branch has"),
        ("git init -q nested", "not known: there is another repository or worktree in it"),
    ],
)
def test_a_worktree_goes_if_it_holds_nothing(place, script, what):
    folder = Path(place.sync(worktree="fresh")).parent
    subprocess.run(["bash", "-euc", script], cwd=folder, env=place.environment(), check=True, timeout=60)  # noqa: S607
    before = tree(folder)
    assert held_by(place) == what
    account = msgspec.structs.replace(own({}), home=str(place.home))
    worktrees.prune(str(place.state), git_of(account, {}))
    assert folder.exists() is bool(what)
    assert bool(place.stashes()) is bool(what)
    if what:
        assert tree(folder) == before
    else:
        assert "worktrees" not in place.git(place.clone, "worktree", "list")
        assert not (place.state / "worktrees" / RUN).exists()


def test_a_worktree_of_a_run_that_has_not_ended_stays(place):
    folder = Path(place.sync(worktree="fresh")).parent
    records.create(str(place.state), place.resolved()).close()
    worktrees.prune(str(place.state), git_of(own({}), {}))
    assert folder.exists()


@pytest.mark.parametrize(
    ("workdir", "there"),
    [("/c/app", "/w/app"), ("/c/app/a/b", "/w/app/a/b"), ("/c/app2", "/c/app2"), ("/c", "/c"), ("/", "/")],
)
def test_a_workdir_in_a_clone_is_in_the_worktree(workdir, there):
    assert moved(workdir, "/c/app", "/w/app") == there
    assert moved(workdir, "/c/app", "/c/app") == workdir
