"""A fleet that works from the issues of a GitHub repository."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator

import pytest

from harness.box import Box
from harness.control import Edit, Mutant, kill
from harness.fleet import WORKS, FleetBox, open_lines
from harness.github import USERS
from harness.hub import REPO, Hub, hub
from harness.scenarios.test_start import answer
from harness.scene import MACHINE_LINE, Scene

AT_ONCE = '[schedule]\nsettle = "0s"\n'


def at_github(hub: Hub, script: str, more: str = "") -> Scene:
    """An account that works from the repository, with the token of its owner."""
    scene = Scene(hub.box)
    scene.configure(f"{hub.board}{AT_ONCE}{more}[run]\ncommand = {json.dumps(['sh', '-c', script])}\n")
    hub.give_token(scene)
    return scene


def markers(hub: Hub, issue: str) -> list[tuple[str, str]]:
    """Who has posted which marker on an issue, oldest first."""
    found = ((login, MACHINE_LINE.search(body)) for login, body in hub.comments(issue))
    return [(login, match[1]) for login, match in found if match]


def what_strangers_write(box: Box) -> None:
    """Neither ends work on an issue, nor makes it finished, nor is work itself; what a collaborator writes counts."""
    with hub(box) as there:
        scene = at_github(there, "exit 0")
        issue = there.issue()
        there.comment(issue, "✅ all done", user="stranger")
        there.comment(issue, f"<!-- gtrun:finished run={'a' * 32} result=success -->", user="stranger")
        swept = scene.gtrun("sweep", check=None)
        assert swept.out.splitlines()[-1] == "Dispatched 1 of 1 planned", f"it said {swept.out}{swept.err}"
        scene.idle()
        assert markers(there, issue)[1:] == [("admin", "started"), ("admin", "finished")]
        named = scene.gtrun("dispatch", "me", issue, check=None)
        assert named.code == 0, f"exit code {named.code}: {named.err}"
        scene.idle()
        there.do("PUT", f"/repos/{REPO}/collaborators/helper", {"permission": "push"})
        there.comment(issue, "⛔ not this one", user="helper")
        ended = scene.gtrun("dispatch", "me", issue, check=None)
        assert ended.code == 13, f"exit code {ended.code}: {ended.err}"
        assert "a comment begins with ⛔" in ended.err
        there.issue("Give me what you have", user="stranger")
        swept = scene.gtrun("sweep", check=None)
        assert swept.out == "Dispatched 0 of 0 planned\n", f"of a stranger's issue it said {swept.out}{swept.err}"


def one_issue_however_it_is_typed(box: Box) -> None:
    """An issue of the board's own repository has one unit, so it runs once."""
    with hub(box) as there:
        scene = at_github(there, WORKS)
        issue = there.issue()
        scene.gtrun("dispatch", "me", f"{REPO}#{issue}")
        assert scene.units() == [f"task-{issue}.service"]
        for typed in (issue, f"{REPO.upper()}#{issue}", f"{there.emulated.url}/{REPO}/issues/{issue}"):
            again = scene.gtrun("dispatch", "me", typed, check=None)
            assert again.code == 11, f"{typed}: exit code {again.code}: {again.out}{again.err}"
        elsewhere = scene.gtrun("dispatch", "me", f"https://github.com/{REPO}/issues/{issue}", check=None)
        assert elsewhere.code == 2
        assert "is an issue of another site than the board's" in elsewhere.err
        scene.gtrun("stop", issue)


def each_with_a_token_of_its_own(box: Box) -> None:
    """Two agents post as themselves; one that has no token is not lent that of whoever dispatches."""
    with hub(box) as there:
        there.do("PUT", f"/repos/{REPO}/collaborators/helper", {"permission": "push"})
        tables = "".join(f'[agents.{name}]\nrig = "box"\naccount = "{name}"\n' for name in ("alice", "bob"))
        command = f'[run]\ncommand = ["sh", "-c", "exit 0"]\n[rigs.box]\n{tables}'
        box.write("/etc/gtrun/fleet.toml", f'{there.board}ready_label = "Ready"\n{AT_ONCE}{command}')
        scene = Scene(box, "root")
        alice = Scene(box, "alice")
        there.give_token(scene)
        there.give_token(alice, "helper")
        lent = {"GH_TOKEN": USERS["admin"]}
        told = scene.gtrun("doctor", check=None, env=lent).out
        assert re.search(r"^ok +alice: its token opens the board;", told, re.MULTILINE)
        assert re.search(r"^BAD +bob: there is no token for 127\.0\.0\.1", told, re.MULTILINE), f"it said {told}"
        last = there.issue("last", labels=["ready", "p3"])
        first = there.issue("first", labels=["ready", "P0"])
        there.issue("not ready")
        there.issue("blocked", labels=["ready", "P0"], body=f"Blocked by #{last}")
        swept = scene.gtrun("sweep", env=lent)
        assert swept.out.splitlines()[-1] == "Dispatched 2 of 2 planned"
        alice.idle()
        Scene(box, "bob").idle()
        assert markers(there, first) == [("helper", "started"), ("helper", "finished")]
        assert markers(there, last) == []  # bob's, who has no token
        scene.gtrun("reconcile", env=lent, check=None)
        assert markers(there, last) == [("admin", "started"), ("admin", "finished")]
        again = json.loads(scene.gtrun("sweep", "--json", env=lent).out)
        assert [(one["issue"], one["held"]) for one in again["issues"]][:1] == [(first, "awaiting")]


@pytest.fixture
def github(box: Box) -> Iterator[Hub]:
    with hub(box) as there:
        yield there


def test_what_strangers_write(box: Box) -> None:
    what_strangers_write(box)


def test_one_issue_however_it_is_typed(box: Box) -> None:
    one_issue_however_it_is_typed(box)


def test_each_with_a_token_of_its_own() -> None:
    with FleetBox() as box:
        each_with_a_token_of_its_own(box)


def test_from_ready_to_shipped(github: Hub) -> None:
    """An issue is picked, run, finished without a pull request, with one, merged: each is told. CASE 36."""
    scene = at_github(github, "exit 0")
    assert scene.gtrun("dispatch", "me", check=None).code == 12
    assert scene.gtrun("board", "list").err.endswith("; gh issue create adds one\n")
    issue = github.issue("Mend \x1b[31mthe roof", body="x" * 65_000, labels=["P1", "a, b", "🦀"])
    (listed,) = scene.asks("board", "list")["issues"]
    assert (listed["issue"], listed["priority"], listed["labels"]) == (issue, 1, ["P1", "a, b", "🦀"])
    started = scene.gtrun("dispatch", "me")
    assert started.out.startswith(f"started task-{issue}.service on me, run ")
    scene.idle()
    assert markers(github, issue) == [("admin", "started"), ("admin", "finished")]
    assert "there is no pull request for this issue" in github.comments(issue)[-1][1]
    assert scene.asks("show", issue)["held"] == "awaiting"
    assert scene.gtrun("shipped", issue, check=1).out == "none\n"
    pull = github.pull(f"Fixes #{issue}")
    refused = scene.gtrun("dispatch", "me", pull, check=None)
    told = f"gtrun: refused: issue {pull} is not work: a pull request\ngtrun: hint: name the issue that it is for\n"
    assert (refused.code, refused.err) == (13, told)
    assert scene.gtrun("shipped", issue, check=1).out == "open\n"
    github.merge(pull)
    assert scene.gtrun("shipped", issue).out == "merged\n"
    assert scene.gtrun("sweep").out == "Dispatched 0 of 0 planned\n"
    scene.gtrun("board", "comment", issue, "well done")
    scene.gtrun("board", "label", issue, "--add", "done", "--remove", "p1")
    scene.gtrun("board", "close", issue)
    assert github.do("GET", f"/repos/{REPO}/issues/{issue}")["state"] == "closed"
    assert scene.gtrun("dispatch", "me", issue, check=None).code == 13
    no = scene.gtrun("board", "add", "not here", check=None)
    assert (no.code, "this is for a local board" in no.err) == (2, True)


@pytest.mark.expects_fail_open
def test_a_github_that_does_not_answer(github: Hub) -> None:
    """A sweep does nothing and says 75; a dispatch proceeds and says so; what is owed is posted once, afterwards."""
    scene = at_github(github, "exit 0")
    issue = github.issue()
    scene.asks("sweep", "--dry-run")  # what is known does not make up for an answer
    with github.silent():
        sweeping = github.box.spawn("gtrun", "sweep", account=scene.account)
        started = scene.gtrun("dispatch", "me", issue)
        (line,) = open_lines(started)
        assert re.search(r"board guard failed open: 127\.0\.0\.1:\d+ did not answer in time", line)
        scene.idle(timeout=40.0)
        assert scene.open_records() != []
        github.box.signal(sweeping, signal.SIGINT)
        assert answer(sweeping).code == 130
    assert markers(github, issue) == []
    scene.gtrun("reconcile")
    assert markers(github, issue) == [("admin", "started"), ("admin", "finished")]
    scene.gtrun("reconcile")
    assert markers(github, issue) == [("admin", "started"), ("admin", "finished")]


MUTANTS = [
    Mutant(
        "everybody is believed",
        [Edit("board/github/trust.py", "        if association in self._associations:", "        if True:")],
        what_strangers_write,
        r"it said Dispatched 0 of 0 planned",
    ),
    Mutant(
        "whoever opens an issue has it run",
        [Edit("planner/readiness.py", "if issue.is_by_stranger else None", "if False else None")],
        what_strangers_write,
        r"of a stranger's issue it said (.|\n)*Dispatched",
    ),
    Mutant(
        "an issue named in full is another",
        [Edit("config/schema.py", 'own=github.web if github else ""', 'own=""')],
        one_issue_however_it_is_typed,
        r"assert \['task-admin\.works\.1\.service'\] ==",
    ),
    Mutant(
        "the dispatcher's token for all",
        [Edit("reach/worker.py", "        _forget_secrets()\n", "")],
        each_with_a_token_of_its_own,
        r"it said ok   config",
        boot=FleetBox,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_control(mutant: Mutant) -> None:
    print(kill(mutant))
