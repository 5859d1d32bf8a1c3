"""Telling a real command: what it reads, what it sees, when it ends, and what is left of it."""

import json
import os
import re
import time
from pathlib import Path

import pytest

from gtrun import orphans, slots
from gtrun.account import Account
from gtrun.counters import Tally
from gtrun.errors import StateError
from gtrun.model import Ending, Issue, Notice, Notify, PullRequest, PullState, Result, Run
from gtrun.names import IssueKey, RunId
from gtrun.notices import document, of_run
from gtrun.notify import hand_over
from gtrun.planner import Availability
from gtrun.planner.slots import SlotNotice
from gtrun.state.facts import owed_notices
from tests.state.test_record import resolved

DOCUMENT = document(Notice.SLOT_OPEN, 1764525600.0, agent="alice", why="x" * 5000)


@pytest.fixture
def account(tmp_path):
    return Account("alice", os.getuid(), os.getgid(), str(tmp_path), str(tmp_path / "state"), "/run/user/7")


def tell(account, *command, timeout=10.0, seconds=20.0, document=DOCUMENT):
    handed = []
    notify = Notify(command=command, timeout=timeout)
    problem = hand_over(notify, document, account, seconds=seconds, handed=lambda: handed.append(1))
    assert handed == [1]
    return problem


def test_it_reads_one_document_and_sees_nothing_else(account, tmp_path):
    script = f"cat >{tmp_path}/read; env >{tmp_path}/env; pwd >{tmp_path}/pwd; ls -l /proc/self/fd >{tmp_path}/fds"
    assert tell(account, "/bin/sh", "-c", script) == ""
    data = (tmp_path / "read").read_bytes()
    assert data == DOCUMENT
    assert data.count(b"\n") == 1
    told = json.loads(data)
    assert (told["schema"], told["kind"], told["notice"], told["agent"]) == (1, "notice", "SLOT_OPEN", "alice")
    assert told["at"] == "2025-11-30T18:00:00Z"
    assert told["why"] == "x" * 1999 + "\u2026"
    names = {line.split("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {"HOME", "LANG", "LOGNAME", "PATH", "USER", "XDG_RUNTIME_DIR"}
    assert (tmp_path / "pwd").read_text() == "/\n"
    assert {line.split()[8] for line in (tmp_path / "fds").read_text().splitlines()[1:]} <= {"0", "1", "2", "3"}


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exit 0", ""),
        ("echo told >&2", ""),
        ("echo one; echo 'two \x1b[31m' >&2; exit 7", "exited with 7: two \\x1b[31m"),
        ("exec >&- 2>&-; exit 9", "exited with 9"),
        ("kill -9 $$", "was ended by signal 9"),
        ("exec sleep 600", "did not end within 0.3 s"),
        ("trap '' TERM; echo stuck; sleep 600 & wait; wait", "did not end within 0.3 s: stuck"),
        ("exec yes", "did not end within 0.3 s: y"),
    ],
)
def test_what_becomes_of_it_is_one_line(account, script, problem):
    begun = time.monotonic()
    said = tell(account, "/bin/sh", "-c", script, timeout=0.3 if "within" in problem else 10.0)
    assert said == (f"the notify command /bin/sh {problem}" if problem else "")
    assert time.monotonic() - begun < 8


def test_what_cannot_be_executed_is_said(account, tmp_path):
    assert tell(account, "/nowhere/tell") == (
        "the notify command /nowhere/tell cannot be executed: No such file or directory"
    )
    (tmp_path / "plain").write_text("no program")
    assert "cannot be executed: Permission denied" in tell(account, str(tmp_path / "plain"))


def test_a_document_longer_than_a_pipe_reaches_who_reads_slowly(account, tmp_path):
    long = b'"' + b"y" * 300_000 + b'"\n'
    assert tell(account, "/bin/sh", "-c", f"sleep 0.2; cat >{tmp_path}/read", document=long) == ""
    assert (tmp_path / "read").read_bytes() == long
    assert tell(account, "/bin/sleep", "600", timeout=0.3, document=long).endswith("did not end within 0.3 s")


def test_nothing_of_it_is_left(account, tmp_path):
    before = orphans._children()
    script = f"setsid sh -c 'setsid sleep 600 & echo $! >{tmp_path}/a; sleep 600' & sleep 600 & echo $! >{tmp_path}/b; "
    script += f"until [ -s {tmp_path}/a ]; do sleep 0.01; done"
    assert tell(account, "/bin/sh", "-c", script) == ""
    for name in "ab":
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / name).read_text()), 0)
    assert orphans._children() == before


def test_a_child_that_was_there_before_is_left_alone(account):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(7)
    os.close(reader)
    assert tell(account, "/bin/sh", "-c", "setsid sleep 600 &") == ""
    os.close(writer)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_what_cannot_be_remembered_ends_it(account, tmp_path):
    def handed():
        raise StateError("no room")

    before = orphans._children()
    script = f"cat; sleep 600 & echo $! >{tmp_path}/child; wait"
    with pytest.raises(StateError, match="no room"):
        hand_over(Notify(command=("/bin/sh", "-c", script)), DOCUMENT, account, seconds=10, handed=handed)
    assert orphans._children() == before


def run_of(**more):
    issue = Issue(key=IssueKey("7"), title="a\n\x1b" + "t" * 9000, url="https://x/7")
    return Run(resolved=resolved(issue=issue), run=RunId("e" * 32), begun_at=5.0, **more)


def test_what_a_run_owes():
    ending = Ending(result=Result.QUOTA, exit_code=1, resets_at=90.0, reason="limit")
    assert owed_notices(run_of()) == []
    ended = run_of(ending=ending, ended_at=9.0)
    assert owed_notices(ended) == [Notice.RUN_ENDED]
    both = run_of(ending=ending, ended_at=9.0, is_dark_news=True)
    assert owed_notices(both) == [Notice.RUN_ENDED, Notice.AGENT_DARK]
    assert owed_notices(run_of(ending=ending, is_dark_news=True, noticed=("RUN_ENDED",))) == [Notice.AGENT_DARK]
    dark = json.loads(of_run(Notice.AGENT_DARK, both))
    assert (dark["until"], dark["reason"], dark["run"]) == ("1970-01-01T00:01:30Z", "limit", "e" * 32)


def test_the_document_of_an_end_has_whatever_was_said_as_values():
    pull = PullRequest(url="https://x/8", state=PullState.OPEN, auto_merge=True)
    ending = Ending(result=Result.SUCCESS, exit_code=0, duration=1.5)
    told = json.loads(of_run(Notice.RUN_ENDED, run_of(ending=ending, ended_at=9.0, pulls=(pull,))))
    assert told["title"].startswith("a\n\x1btt")
    assert len(told["title"]) == 2000
    assert told["pull_requests"] == [
        {"url": "https://x/8", "state": "open", "auto_merge": True, "repo": "", "merged_at": None}
    ]
    assert (told["result"], told["exit_code"], told["duration"], told["reason"]) == ("success", 0, 1.5, None)
    assert told["at"] == "1970-01-01T00:00:09Z"


def test_an_instant_that_no_calendar_has_is_null():
    ending = Ending(result=Result.LOST)
    told = json.loads(of_run(Notice.RUN_ENDED, run_of(ending=ending, ended_at=1e300)))
    assert told["at"] is None


def test_it_is_told_when_it_has_read_and_not_before(account, tmp_path):
    """Whoever is killed in between has told nobody."""
    at = []
    script = f"sleep 0.3; touch {tmp_path}/reads; cat >/dev/null"

    def handed():
        at.append((tmp_path / "reads").exists())

    assert hand_over(Notify(command=("/bin/sh", "-c", script)), DOCUMENT, account, seconds=10, handed=handed) == ""
    assert at == [True]


def test_the_page_lists_every_field():
    page = (Path(__file__).parents[1] / "docs/notices.md").read_text()
    ending = Ending(result=Result.QUOTA, resets_at=1.0)
    run = run_of(ending=ending, ended_at=9.0, is_dark_news=True)
    for notice in (Notice.RUN_ENDED, Notice.AGENT_DARK):
        row = re.findall(rf"^\| `{notice}` \| (`issue`.*) \|$", page, re.MULTILINE)[0]
        told = set(json.loads(of_run(notice, run))) - {"schema", "kind", "notice", "at", "agent", "rig"}
        assert set(re.findall("`([a-z_]+)`", row)) - {"null"} == told
    row = re.findall(r"^\| `SCHEDULER_OPEN`, .* \| (.*) \|$", page, re.MULTILINE)[0]
    tally = Tally(dispatched=3)
    one = Availability(agent="a", rig="b", running=0, max_runs=1, free=1, tally=tally)
    slot = slots._document(Notice.SLOT_OPEN, SlotNotice(agent=one, notice=Notice.SLOT_OPEN, waiting=2))
    told = set(json.loads(slot)) - {"schema", "kind", "notice", "at", "agent", "rig"}
    assert set(re.findall("`([a-z_]+)`", row)) == told
