"""Clones before a run: what is in them is set aside and comes back, or is not touched, in a whole run as its account.

Every state of a clone is in tests/clones; here is what the run, its marker and the commands make of it.
"""

from __future__ import annotations

import re
import shlex

import pytest

from harness.box import Box
from harness.control import Edit, Mutant, kill
from harness.scene import Scene

SECRET = "hunter2"  # noqa: S105
IDENTITY = "git config --global user.name A; git config --global user.email a@b;"
REMOTE = (
    IDENTITY
    + """
    git init -q --bare -b main ~/remote.git; git init -q -b main ~/seed; cd ~/seed
    mkdir dir; echo one > changed; echo in > dir/inner; git add -A; git commit -qm one
    git remote add origin ~/remote.git; git push -q origin main
    git clone -q ~/remote.git ~/src/app
    echo two > changed; echo new > new; git add new; git commit -qam two; git push -q origin main
"""
)
WORK = r"""
    cd ~/src/app; git checkout -q -b issue-0; git push -q -u origin issue-0; echo mine > dir/inner; git commit -qam mine
    echo staged > staged; git add staged
    echo more >> changed; printf bytes > $'new\nline'; printf more > $'\xff'; ln -s /nowhere link; chmod +x changed
"""
TELL = "pwd > ~/where; git status --porcelain > ~/saw; git rev-parse HEAD > ~/head; git branch --show-current >> ~/head"
STATE = r"""
    cd ~/src/app; export GIT_OPTIONAL_LOCKS=0
    git rev-parse HEAD; git ls-files -s | sha256sum; git status --porcelain -z | sha256sum
    find . -path ./.git -prune -o -printf '%P %y %l %m\0' | sort -z | sha256sum
    find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum
"""


def place(box: Box, script: str = TELL) -> Scene:
    """An account with a clone that is one commit behind its remote, and an agent that works in it."""
    scene = Scene(box)
    scene.sh(REMOTE)
    configure(scene, script)
    return scene


def configure(scene: Scene, script: str, more: str = "") -> None:
    """What the agent runs in its clone."""
    scene.runs_shell(script, f'clones = ["~/src/app"]\nworkdir = "~/src/app/dir"\n{more}')


def run(scene: Scene, title: str = "Mend the roof") -> str:
    """One whole run; its issue."""
    issue = scene.issue(title)
    scene.gtrun("dispatch", "me", issue)
    scene.idle(timeout=30)
    return issue


def text(scene: Scene, file: str) -> str:
    return scene.box.path(f"{scene.home}/{file}").read_text()


def started(scene: Scene, issue: str) -> str:
    """The body of the started marker."""
    bodies = [one["body"] for one in scene.asks("board", "show", issue)["comments"]]
    (body,) = [body for body in bodies if "gtrun: **started**" in body]
    return str(body)


def work_is_set_aside_and_comes_back(box: Box) -> None:
    """An agent has left the clone on its branch. The next finds what the remote has; the marker, `stashes` and `show`
    tell how to get the rest back.
    """
    scene = place(box)
    scene.sh(WORK)
    before = scene.sh(STATE).out
    issue = run(scene)
    tip = scene.sh("git -C ~/remote.git rev-parse main").out
    head = text(scene, "head")
    assert (text(scene, "saw"), head) == ("", f"{tip}main\n"), f"the program was on {head.split()}"
    assert text(scene, "where") == f"{scene.home}/src/app/dir\n"
    told = scene.asks("stashes")
    what = "2 changed files, 3 untracked files and 1 unpushed commit on issue-0"
    assert [one["what"] for one in told["stashes"]] == [what], f"stashes are {told}"
    (stash,) = told["stashes"]
    run_id = scene.runs(issue)[0]["run"]
    assert (stash["run"], stash["issue"], stash["agent"], stash["account"]) == (run_id, issue, "me", "alice")
    assert (stash["ref"], stash["clone"]) == (f"refs/gtrun/{run_id}/0", f"{scene.home}/src/app")
    command = shlex.join(stash["command"])
    assert command in started(scene, issue)
    assert command in scene.gtrun("stashes").out
    assert command in scene.gtrun("show", issue).out
    assert [one["command"] for one in scene.asks("show", issue)["stashes"]] == [stash["command"]]
    assert box.run("stat", "-c", "%U %a", f"{scene.state}/stashes/{run_id}.0.json").out == "alice 600\n"
    box.run(*stash["command"], account="alice")
    assert scene.sh(STATE).out == before
    scene.sh(f"cd ~/src/app; git checkout -qf main; git update-ref -d {stash['ref']}")
    assert scene.asks("stashes")["stashes"] == []


def test_work_is_set_aside_and_comes_back(box: Box) -> None:
    """And then, by configuration, nothing of it is touched."""
    work_is_set_aside_and_comes_back(box)
    scene = Scene(box)
    configure(scene, TELL + "; echo {workdir} > ~/given", 'worktree = "fresh"')
    scene.sh("cd ~/src/app; echo mine > dir/inner; echo u > untracked")
    before = scene.sh(STATE).out
    issue = run(scene)
    assert scene.sh(STATE).out == before
    assert text(scene, "given") == text(scene, "where") != f"{scene.home}/src/app/dir\n"
    assert f"the clone {scene.home}/src/app is not used: the run works in a fresh worktree" in started(scene, issue)
    assert scene.asks("stashes")["stashes"] == []


BROKEN = """
    cd ~/src/app; echo more > changed; git add changed; o=$(git rev-parse :changed); f=.git/objects/${o:0:2}/${o:2}
    p=$(echo else | git hash-object -w --stdin); cp -f .git/objects/${p:0:2}/${p:2} $f; echo mine > untracked
"""


def what_is_not_proven_to_be_kept_is_not_touched(box: Box) -> None:
    """A staged object that cannot be read back as what it is: the clone stays, and the run works elsewhere."""
    scene = place(box)
    scene.sh(BROKEN)
    before = scene.sh(STATE).out
    issue = run(scene)
    assert scene.sh(STATE).out == before, "the clone was touched"
    where = text(scene, "where").strip()
    assert re.fullmatch(rf"{scene.state}/worktrees/[0-9a-f]{{32}}/0/app/dir", where), where
    note = f"Note: the clone {scene.home}/src/app is left as it is (what was kept of it cannot be read back): "
    assert note in started(scene, issue)
    assert text(scene, "head") == scene.sh("git -C ~/remote.git rev-parse main").out
    assert scene.results(issue) == ["success"]


def test_what_is_not_proven_to_be_kept_is_not_touched(box: Box) -> None:
    what_is_not_proven_to_be_kept_is_not_touched(box)


def test_worktrees_of_ended_runs_go_unless_they_hold_something(box: Box) -> None:
    """A rebase in progress: each run gets a worktree. What a run leaves in one is listed, and stays."""
    scene = place(box, TELL + "; [ $GTRUN_ISSUE != 1 ] || echo left > left")
    scene.sh("cd ~/src/app; git config pull.rebase true; echo x > changed; git commit -qam x; git pull -q || true")
    first, second = run(scene), run(scene)
    assert "(a rebase is in progress)" in started(scene, first)
    assert "(a rebase is in progress)" in started(scene, second)
    (stash,) = scene.asks("stashes")["stashes"]
    assert (stash["issue"], stash["what"], stash["ref"]) == (first, "worktree: 1 untracked file", None)
    assert box.path(f"{stash['worktree']}/dir/left").read_text() == "left\n"
    worktrees = "find ~/.local/state/gtrun/worktrees -mindepth 3 -maxdepth 3 | wc -l"
    assert scene.sh(worktrees).out == "2\n"
    scene.gtrun("reconcile")
    assert scene.sh(worktrees).out == "1\n"
    assert [one["worktree"] for one in scene.asks("stashes")["stashes"]] == [stash["worktree"]]
    scene.sh(f"rm {stash['worktree']}/dir/left")
    scene.gtrun("reconcile")
    assert scene.asks("stashes")["stashes"] == []
    assert scene.sh("ls -A ~/.local/state/gtrun/stashes; git -C ~/src/app worktree list | wc -l").out == "1\n"


# git is in the middle of its checkout as long as it lasts to write out `new`
HOLD = """
    cd ~/src/app; echo 'new filter=hold' > .git/info/attributes; touch ~/hold
    git config filter.hold.smudge 'cat; [ ! -e ~/hold ] || { touch ~/at; exec sleep 600; }'
"""


def a_sync_is_killed_in_the_middle(box: Box) -> None:
    """Its whole unit, with -9: git leaves its lock. Then by `gtrun stop`."""
    scene = place(box)
    scene.sh(WORK + HOLD)
    before = scene.sh(STATE).out
    killed = scene.issue()
    scene.gtrun("dispatch", "me", killed)
    scene.appears(f"{scene.home}/at", timeout=20)
    box.run("systemctl", "--user", "kill", "-s", "KILL", f"task-{killed}.service", account="alice")
    scene.idle(timeout=30)
    assert scene.results(killed) == ["killed"]
    assert box.path(f"{scene.home}/src/app/.git/index.lock").exists()

    scene.sh("rm ~/hold ~/at")
    issue = run(scene)
    assert "was killed in the middle" in started(scene, issue), f"the marker says {started(scene, issue)}"
    assert (text(scene, "saw"), text(scene, "where")) == ("", f"{scene.home}/src/app/dir\n")
    assert text(scene, "head") == scene.sh("git -C ~/remote.git rev-parse main").out + "main\n"
    box.run(*scene.asks("stashes")["stashes"][0]["command"], account="alice")
    assert scene.sh(STATE).out == before

    scene.sh("touch ~/hold")
    stopped = scene.issue()
    scene.gtrun("dispatch", "me", stopped)
    scene.appears(f"{scene.home}/at", timeout=20)
    scene.gtrun("stop", stopped)
    assert scene.results(stopped) == ["stopped"]
    scene.sh("rm ~/hold ~/saw")
    assert scene.results(run(scene)) == ["success"]
    assert (text(scene, "saw"), text(scene, "where")) == ("", f"{scene.home}/src/app/dir\n")


def test_a_sync_is_killed_in_the_middle(box: Box) -> None:
    a_sync_is_killed_in_the_middle(box)


def test_two_live_runs_do_not_share_a_clone(box: Box) -> None:
    scene = place(
        box, "pwd > ~/where-$GTRUN_ISSUE; echo mine > mine; until [ -e ~/go ]; do sleep 0.05; done; cat mine > ~/got"
    )
    first, second = scene.issue(), scene.issue()
    scene.gtrun("dispatch", "me", first)
    assert scene.appears(f"{scene.home}/where-{first}", timeout=20) == f"{scene.home}/src/app/dir\n"
    scene.gtrun("dispatch", "me", second)
    scene.appears(f"{scene.home}/where-{second}", timeout=20)
    assert f"(task-{first}.service works in it)" in started(scene, second)
    assert "/worktrees/" in text(scene, f"where-{second}")
    assert text(scene, "src/app/dir/mine") == "mine\n"
    scene.sh("touch ~/go")
    scene.idle(timeout=30)
    assert scene.results(first) + scene.results(second) == ["success"] * 2


def test_a_run_without_a_place_to_work_in_says_so_and_touches_nothing(box: Box) -> None:
    """A clone that cannot be written, then one on a full disk: nothing is lost, and nothing is executed."""
    scene = place(box)
    scene.sh(WORK)
    before = scene.sh(STATE).out
    box.remount_read_only(f"{scene.home}/src/app/.git")
    issue = run(scene)
    box.remount_writable(f"{scene.home}/src/app/.git")
    assert scene.results(issue) == ["failed"]
    assert "there is no fresh worktree of origin/main" in scene.runs(issue)[0]["ending"]["reason"]
    assert scene.kinds(issue) == []
    assert scene.sh(STATE).out == before

    box.mount_small("/small", 4 << 20, "alice")
    scene.sh(
        "cp -a ~/src/app /small/app; mv ~/src/app ~/src/old; ln -s /small/app ~/src/app; ! cat /dev/zero > /small/fill"
    )
    issue = run(scene)
    assert scene.results(issue) == ["failed"], scene.runs(issue)
    assert "is left as it is (there is no room to set aside what is in it)" in scene.runs(issue)[0]["ending"]["reason"]
    assert scene.sh(STATE).out == before
    assert not box.path(f"{scene.home}/saw").exists()
    scene.sh("rm /small/fill")
    assert scene.results(run(scene)) == ["success"]
    box.run(*scene.asks("stashes")["stashes"][0]["command"], account="alice")
    assert scene.sh(STATE).out == before


def test_no_hook_and_no_remote_prints_a_secret(box: Box) -> None:
    """Hooks are off; a remote that refuses and talks is not heard; nobody is asked for a password."""
    scene = place(box, "pwd > ~/where")
    hook = f"#!/bin/sh\\necho {SECRET}; echo {SECRET} >&2; touch ~/hooked; exit 1"
    scene.sh(
        f"""
        cd ~/src/app; for hook in post-checkout reference-transaction post-index-change post-rewrite pre-commit; do
            printf '{hook}\\n' > .git/hooks/$hook; chmod +x .git/hooks/$hook
        done
        git config core.fsmonitor "echo {SECRET}; touch ~/hooked; false"; git config alias.status '!echo {SECRET}'
        echo mine > untracked; rm -f ~/hooked
        git remote set-url origin https://user:{SECRET}@127.0.0.1:1/app.git"""
    )
    issue = run(scene)
    assert "was not reached (git ls-remote ended with 128)" in started(scene, issue)
    assert [one["what"] for one in scene.asks("stashes")["stashes"]] == ["1 untracked file"]
    assert not box.path(f"{scene.home}/hooked").exists()
    everything = started(scene, issue) + box.journal("-o", "cat") + scene.gtrun("show", issue).out
    everything += "".join(path.read_text() for path in box.path(f"{scene.state}/runs").glob("*/*.jsonl"))
    assert SECRET not in everything


def test_stashes_of_the_whole_fleet(box: Box) -> None:
    """Root lists those of every agent; one that does not answer is a row, and costs nobody else's."""
    scene = place(box)
    scene.sh("echo mine > ~/src/app/untracked")
    run(scene)
    agents = "".join(f'[agents.{name}]\naccount = "{name}"\n' for name in ("alice", "bob"))
    Scene(box, "root").configure(agents)
    told = Scene(box, "root").asks("stashes")
    assert [(one["agent"], one["what"]) for one in told["stashes"]] == [("alice", "1 untracked file")]
    assert told["unreachable"] == []
    scene.configure(agents + 'reach = "ssh"\n')
    told = scene.asks("stashes")
    assert [one["agent"] for one in told["stashes"]] == ["alice"]
    assert [one["agent"] for one in told["unreachable"]] == ["bob"]
    rows = scene.gtrun("stashes").out.splitlines()
    assert [row.split()[1] for row in rows if " unreachable " in row] == ["bob"]
    assert len(rows) == 3


MUTANTS = [
    Mutant(
        "a sync without a record",
        [Edit("clones/sync.py", "        stashes.write(self.state, f\"{self.run_id}.{part}\", msgspec",
              "        (lambda *_: None)(self.state, f\"{self.run_id}.{part}\", msgspec")],
        work_is_set_aside_and_comes_back,
        r"stashes are \{.*'stashes': \[\]",
    ),
    Mutant(
        "cleared before it is proven",
        [Edit("clones/aside.py", "        prove(clone, work, ref)\n    except", "    except")],
        what_is_not_proven_to_be_kept_is_not_touched,
        r"the clone was touched",
    ),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
