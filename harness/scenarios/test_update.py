"""The run's first step: it goes on in the newest release once, whole, or says why not."""

from __future__ import annotations

import json

import pytest

from harness.box import Box
from harness.control import Edit, Mutant, kill, prepare
from harness.releases import WORK, Releases
from harness.scene import Scene

PLAIN = "exit 0"
WORKS = "touch ~/ready-$GTRUN_ISSUE; until [ -e ~/go ]; do sleep 0.05; done"
IMPATIENT = Edit("release/git.py", "FETCH_SECONDS = 10.0", "FETCH_SECONDS = 2.0")


def all_in(version: int) -> list[tuple[int, str]]:
    """A whole run of one version."""
    return [(version, what) for what in WORK]


def runs(releases: Releases) -> str:
    """Run a new issue to its end; returns its number."""
    issue = releases.scene.issue()
    releases.scene.gtrun("dispatch", "me", issue, "--wait")
    releases.scene.ends(issue)
    return issue


def updates_once(box: Box) -> None:
    """CASE 27: a new runner is executed once; another change right after is left to the next run."""
    releases = Releases.installed(Scene(box))
    releases.configure(PLAIN)
    first = runs(releases)
    assert (releases.begun(first), releases.worked(first)) == ([1], all_in(1)), releases.trace(first)
    releases.push(2)
    second = releases.scene.issue()
    releases.hold(second, 2, "run", "begins")
    releases.scene.gtrun("dispatch", "me", second)
    box.wait_for("the second runner, or none", lambda: releases.is_held(second, 2) or not releases.scene.units())
    releases.push(3)
    releases.let_go(second, 2, "run", "begins")
    releases.scene.idle()
    assert releases.begun(second) == [1, 2], f"runners of versions {releases.begun(second)}"
    assert releases.worked(second) == all_in(2), f"the work of {releases.worked(second)}"
    assert releases.current() == releases.commits[2] == releases.head()
    assert releases.scene.results(second) == ["success"]
    assert releases.scene.kinds(second) == ["started", "finished"]
    third = runs(releases)
    assert releases.begun(third) == [2, 3], f"runners of versions {releases.begun(third)}"
    assert releases.worked(third) == all_in(3)
    assert [releases.note(issue) for issue in (first, second, third)] == ["", "", ""]
    (run,) = releases.scene.runs(third)
    assert run["commit"] == releases.commits[3]


def nothing_half_new(box: Box) -> None:
    """A run between its steps, and one in its close-out, while another brings updates: each is one release's alone.

    The releases that they are of stay, however many come after.
    """
    releases = Releases.installed(Scene(box))
    releases.configure(PLAIN, 'stop_timeout = "300s"')  # of which the close-out that is held has a third
    between, closing = releases.scene.issue(), releases.scene.issue()
    held = (between, 1, "run", "posts"), (closing, 1, "closeout", "judges")
    for place in held:
        releases.hold(*place)
        releases.scene.gtrun("dispatch", "me", place[0])
        releases.held(*place)
    for version in (2, 3, 4, 5):
        releases.push(version)
        for older in range(1, version):
            manifest = f"gtrun/releases/{releases.commits[older]}/release.json"
            releases.scene.sh(f"[ ! -e {manifest} ] || touch -d '{10 - older} days ago' {manifest}")
        assert releases.worked(runs(releases)) == all_in(version)
    for place in held:
        releases.let_go(*place)
    releases.scene.idle()
    for issue in (between, closing):
        assert releases.worked(issue) == all_in(1), f"the work of {releases.worked(issue)}"
    assert releases.scene.results(between) == releases.scene.results(closing) == ["success"]
    assert releases.installed_versions() == [1, 3, 4, 5]


def test_updates_once(box: Box) -> None:
    updates_once(box)


def test_the_inside_of_a_sandbox_is_of_the_same_release(box: Box) -> None:
    """The unit names the release that dispatched for both of its steps: the second follows the first."""
    releases = Releases.installed(Scene(box))
    releases.configure(PLAIN, "[run.sandbox]\nprivate_tmp = true")
    releases.push(2)
    issue = runs(releases)
    entered = [line["version"] for line in releases.trace() if line["verb"] == "enter"]
    assert (releases.begun(issue), entered) == ([1, 2], [2])
    assert releases.scene.results(issue) == ["success"]


def test_nothing_half_new(box: Box) -> None:
    nothing_half_new(box)


def test_why_a_run_goes_on_with_what_it_has(box: Box) -> None:
    """CASE 28: it proceeds, and the marker and the journal say why and how many commits behind it is."""
    prepare(box, [IMPATIENT])
    releases = Releases.installed(Scene(box))
    scene = releases.scene
    releases.configure(PLAIN)
    releases.push(2)
    releases.push(3)

    def kept(reason: str, said: str, behind: int, *, set_up: str = ":", undo: str = ":") -> None:
        scene.sh(f"cd src; {set_up}")
        before, commit = releases.current(), releases.head()
        (version,) = [number for number, each in releases.commits.items() if each == before]
        issue = runs(releases)
        assert (releases.current(), releases.head()) == (before, commit)
        assert (releases.begun(issue), releases.worked(issue)) == ([version], all_in(version))
        assert scene.results(issue) == ["success"]
        commits = "1 commit" if behind == 1 else f"{behind} commits"
        assert releases.note(issue) == f"{said}; {commits} behind as of the last fetch"
        (entry,) = box.journal("-o", "json", f"GTRUN_UPDATE={reason}").splitlines()
        told = json.loads(entry)
        assert (told["GTRUN_BEHIND"], told["GTRUN_ISSUE"], told["GTRUN_AGENT"]) == (str(behind), issue, "me")
        scene.sh(f"cd src; {undo}")

    kept(
        "dirty", "the checkout has changes that are not committed", 2,
        set_up="echo '# mine' >>pyproject.toml", undo="git checkout -q .",
    )  # fmt: skip
    kept("detached", "no branch is checked out", 2, set_up="git checkout -q --detach", undo="git checkout -q main")
    kept(
        "diverged", "main and origin/main have diverged", 2,
        set_up="git commit -q --allow-empty -m mine", undo="git reset -q --hard HEAD~",
    )  # fmt: skip
    no_remote = f"git fetch: '{scene.home}/remote.git' does not appear to be a git repository"
    kept(
        "offline", f"the remote could not be asked ({no_remote})", 2,
        set_up="mv ~/remote.git ~/away.git", undo="mv ~/away.git ~/remote.git",
    )  # fmt: skip
    box.run("journalctl", "--rotate")
    box.run("journalctl", "--vacuum-time=1s", check=None)
    hangs = "git config core.sshCommand 'sh -c \"exec sleep 300\" ssh'; git remote set-url origin ssh://h/r"
    late = "git fetch did not end within 2 s"
    issue_before = len(box.journal("-o", "json", "GTRUN_UPDATE=offline").splitlines())
    scene.sh(f"cd src; {hangs}")
    issue = runs(releases)
    assert releases.note(issue) == f"the remote could not be asked ({late}); 2 commits behind as of the last fetch"
    assert len(box.journal("-o", "json", "GTRUN_UPDATE=offline").splitlines()) == issue_before + 1
    scene.sh("cd src; git config --unset core.sshCommand; git remote set-url origin ~/remote.git")

    releases.push(4, "echo 'import nonsense' >>gtrun/runner/closeout.py")
    bug = "gtrun: this is a bug in gtrun: ModuleNotFoundError(\"No module named 'nonsense'\")"
    kept("unusable", f"commit {releases.commits[4][:12]} does not import: {bug}", 3)
    assert releases.installed_versions() == [1]
    releases.push(5, "sed -i '$d' gtrun/runner/closeout.py")
    taken = runs(releases)
    assert (releases.begun(taken), releases.worked(taken), releases.note(taken)) == ([1, 5], all_in(5), "")

    scene.sh("cd work; git commit -q --amend -m 'other words'; git push -qf origin HEAD")
    kept("rewritten", "origin/main was rewritten", 1)


def test_two_at_once(box: Box) -> None:
    """One of two updates, the other goes on with what it has; one that is stopped half-way is in nobody's way."""
    releases = Releases.installed(Scene(box))
    scene = releases.scene
    releases.configure(PLAIN)
    releases.push(2)
    proof = ("", 2, "imports", "proves")
    releases.hold(*proof)
    stopped, other = scene.issue(), scene.issue()
    scene.gtrun("dispatch", "me", stopped)
    releases.held(*proof)
    scene.gtrun("dispatch", "me", other, "--wait")
    assert releases.worked(other) == all_in(1)
    assert releases.note(other) == "another update is under way; 1 commit behind as of the last fetch"
    scene.gtrun("stop", stopped)
    scene.idle()
    assert scene.results(stopped) == ["stopped"]
    assert (releases.current(), releases.head()) == (releases.commits[1], releases.commits[1])
    releases.let_go(*proof)
    assert releases.worked(runs(releases)) == all_in(2)


def test_closeout_of_another_release(box: Box) -> None:
    """The release that a run ended up in is gone, or its close-out fails: the one that dispatched tells the truth."""
    releases = Releases.installed(Scene(box))
    scene = releases.scene
    releases.configure(WORKS)
    releases.push(2)
    gone = scene.issue()
    scene.gtrun("dispatch", "me", gone)
    scene.appears(f"{scene.home}/ready-{gone}", timeout=20)
    shown = scene.properties(f"task-{gone}.service", "ExecStart", "ExecStopPost")
    for line in shown.values():
        assert f"{releases.root}/releases/{releases.commits[1]}/bin/gtrun" in line, shown
        assert "current" not in line, shown
    scene.sh(f"rm -r gtrun/releases/{releases.commits[2]}; touch go")
    scene.idle()
    assert releases.worked(gone) == [(2, "posts"), (2, "becomes"), (1, "judges"), (1, "ends")]
    assert f"closed out by another release than {releases.root}/releases/{releases.commits[2]}" in box.journal()

    scene.sh("rm go; src/scripts/install ~/gtrun")
    scene.sh("cd work && sed -i 's/^def closeout.*/&\\n    raise RuntimeError/' gtrun/runner/closeout.py")
    releases.push(3)
    failing = scene.issue()
    scene.gtrun("dispatch", "me", failing)
    scene.appears(f"{scene.home}/ready-{failing}", timeout=20)
    scene.sh("touch go")
    scene.idle()
    assert releases.begun(failing) == [2, 3]
    assert releases.worked(failing) == [(3, "posts"), (3, "becomes"), (2, "judges"), (2, "ends")]
    for issue in (gone, failing):
        assert scene.results(issue) == ["success"]
        assert scene.kinds(issue) == ["started", "finished"]
    assert not scene.open_records()


def test_what_is_not_ours_to_write(box: Box) -> None:
    """An installation of root's, a read-only one, and one by pip: each says so; `update = false` does not."""
    releases = Releases.installed(Scene(box))
    scene = releases.scene
    releases.push(2)
    scene.sh("git -C src fetch -q")
    box.run("cp", "-r", f"{scene.home}/src", "/srv/src")
    box.run("chown", "-R", "root:root", "/srv/src")
    releases.borrow("/srv/gtrun", "root")
    box.run("/srv/src/scripts/install", "/srv/gtrun")
    behind = "1 commit behind as of the last fetch"
    releases.configure(PLAIN, program="/srv/gtrun/bin/gtrun")
    assert releases.note(runs(releases)) == f"/srv/src is not this account's to write; {behind}"
    releases.configure(PLAIN)
    box.remount_read_only(releases.root)
    issue = runs(releases)
    assert releases.note(issue) == f"{releases.root} is not this account's to write; {behind}"
    assert releases.worked(issue) == all_in(1)
    box.remount_writable(releases.root)
    scene.runs_shell(PLAIN)
    issue = runs(releases)
    assert releases.note(issue) == "this gtrun is not installed from a git checkout"
    assert scene.runs(issue)[0]["commit"] is None
    for program in ("", "/srv/gtrun/bin/gtrun"):
        releases.configure(PLAIN, "update = false", program=program)
        issue = runs(releases)
        assert (releases.begun(issue), releases.note(issue)) == ([1], "")
    told = json.loads(box.run(f"{releases.root}/bin/gtrun", "info", "--json", account="alice").out)
    assert told["commit"] == releases.commits[1]
    assert told["release"] == f"{releases.root}/releases/{releases.commits[1]}"
    again = box.run("/srv/src/scripts/install", "/opt/gtrun", check=78)
    assert again.err == "install: /opt/gtrun is an environment that pip installs into: choose another folder\n"


def test_what_the_claim_account_executes(box: Box) -> None:
    """Nobody who is an agent may write it: 78 from a dispatch, named by doctor; for one account alone it is fine."""
    releases = Releases.installed(Scene(box))
    releases.configure(PLAIN)
    issue = runs(releases)
    box.run(f"{releases.root}/bin/gtrun", "dispatch", "me", issue, account="alice", check=0)
    releases.scene.idle()
    fleet = '[run]\ncommand = ["true"]\n[agents.a]\naccount = "alice"\n[agents.b]\naccount = "bob"\n'
    box.write("/root/.config/gtrun/fleet.toml", fleet, mode=0o600)
    box.run("gtrun", "board", "add", "Mend the roof")
    theirs = "/home/alice belongs to user ID 1000, not to root or user ID 0 (on the way to "
    refused = box.run(f"{releases.root}/bin/gtrun", "dispatch", "b", "1", check=78)
    assert theirs in refused.err, refused.err
    examined = box.run(f"{releases.root}/bin/gtrun", "doctor", check=1)
    assert f"BAD  gtrun: {theirs}" in examined.out, examined.out
    assert "ok   gtrun: /opt/gtrun/lib/python3" in box.run("gtrun", "doctor", check=None).out
    box.run("bash", "-c", "chmod g+w /opt/gtrun/lib/python3*/site-packages/gtrun/names.py")
    assert "names.py can be written by its group" in box.run("gtrun", "doctor", check=1).out
    box.run("chmod", "g+w", "/opt/gtrun/lib")
    refused = box.run("gtrun", "dispatch", "--dry-run", "b", "1", check=78)
    assert "gtrun: /opt/gtrun/lib can be written by its group (mode 0775)" in refused.err
    assert "hint: chmod go-w /opt/gtrun/lib, or install gtrun where only root writes" in refused.err


MUTANTS = [
    Mutant(
        "never goes on in the new release",
        [Edit("runner/update.py", "    if str(release.folder) == mine:\n", "    if release:\n")],
        updates_once,
        r"runners of versions \[1\]",
    ),
    Mutant(
        "updates again when it goes on",
        [Edit("runner/run.py", "    if not is_going_on and record", "    if record")],
        updates_once,
        r"runners of versions \[1, 2, 3",
    ),
    Mutant(
        "update under live code",
        [
            Edit(
                "release/update.py",
                "    make_current(release)\n",
                "    make_current(release)\n"
                "    import shutil\n"
                "    for each in own.root.glob('releases/*/gtrun'):\n"
                "        if each.parent != release.folder:\n"
                "            shutil.copytree(release.folder / 'gtrun', each, dirs_exist_ok=True)\n",
            )
        ],
        nothing_half_new,
        r"the work of \[\(1, 'posts'\), \(1, 'becomes'\), \(5, 'judges'\), \(5, 'ends'\)\]",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
