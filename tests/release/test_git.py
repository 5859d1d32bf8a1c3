"""What git says about a clone: each state by the real git, and nothing of the repository's is executed."""

import time
from pathlib import Path

import pytest

from gtrun.process import Captured
from gtrun.release import git as module
from gtrun.release.git import GitError, State, closed, last_words, parse_state
from tests.release.conftest import commit, git


def test_states(upstream, clone, checkout):
    head = git(clone, "rev-parse", "HEAD")
    assert checkout.state() == State(head, "main", "origin/main", 0, 0)
    newer = commit(upstream, roof="new\n")
    git(upstream, "push", "--quiet")
    assert checkout.state().behind == 0  # as of the last fetch
    checkout.fetch()
    assert checkout.state() == State(head, "main", "origin/main", 0, 1)
    assert (checkout.upstream_commit(), checkout.count_behind(head), checkout.count_behind(newer)) == (newer, 1, 0)
    (clone / "untracked").touch()
    assert not checkout.state().is_dirty
    (clone / "roof").write_text("mine\n")
    assert checkout.state().is_dirty
    git(clone, "checkout", "--quiet", "--", "roof")
    git(clone, "checkout", "--quiet", "--detach")
    assert checkout.state() == State(head)
    git(clone, "checkout", "--quiet", "-b", "alone")
    assert checkout.state() == State(head, "alone")
    assert checkout.count_behind(head) == 1  # then by the remote's own branch
    git(clone, "checkout", "--quiet", "main")
    git(clone, "update-ref", "-d", "refs/remotes/origin/main")
    assert checkout.state() == State(head, "main", "origin/main")


def test_fast_forward(upstream, clone, checkout):
    newer = commit(upstream, roof="new\n", extra="theirs\n")
    git(upstream, "push", "--quiet")
    checkout.fetch()
    (clone / "extra").write_text("mine\n")
    with pytest.raises(GitError, match="untracked working tree files would be overwritten"):
        checkout.fast_forward(newer)
    assert (clone / "roof").read_text() == "old\n"
    (clone / "extra").unlink()
    checkout.fast_forward(newer)
    assert checkout.state() == State(newer, "main", "origin/main", 0, 0)
    assert (clone / "roof").read_text() == "new\n"


def test_diverged_is_told_from_rewritten(upstream, clone, checkout):
    commit(upstream, roof="new\n")
    git(upstream, "commit", "--quiet", "--amend", "--message", "other")
    git(upstream, "push", "--quiet")
    checkout.fetch()
    checkout.fast_forward("@{upstream}")
    git(upstream, "commit", "--quiet", "--amend", "--message", "again")
    git(upstream, "push", "--quiet", "--force")
    checkout.fetch()
    assert (checkout.state().ahead, checkout.state().behind) == (1, 1)
    assert checkout.was_upstream()
    commit(clone, other="mine\n")
    assert not checkout.was_upstream()


def test_nothing_of_the_repository_is_executed(upstream, clone, checkout, tmp_path):
    traces = tmp_path / "traces"
    traces.mkdir()
    for name in ("post-merge", "post-checkout", "reference-transaction", "post-index-change", "fsmonitor", "askpass"):
        hook = clone / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {traces}/{name}\n")
        hook.chmod(0o755)
    git(clone, "config", "core.fsmonitor", ".git/hooks/fsmonitor")
    git(clone, "config", "core.askPass", ".git/hooks/askpass")
    git(clone, "status")
    assert [path.name for path in traces.iterdir()] != []  # they work, and this git would execute them
    for path in traces.iterdir():
        path.unlink()
    newer = commit(upstream, roof="new\n")
    git(upstream, "push", "--quiet")
    checkout.fetch()
    checkout.state()
    checkout.fast_forward(newer)
    assert list(traces.iterdir()) == []


def test_a_remote_that_hangs(clone, checkout, monkeypatch, tmp_path):
    """The deadline ends git and what it started; an sshCommand of the repository's is the one that is used."""
    git(clone, "remote", "set-url", "origin", "ssh://nobody@example.invalid/x")
    git(clone, "config", "core.sshCommand", f"sh -c 'echo $$ >{tmp_path}/pid; exec sleep 300' ssh")
    monkeypatch.setattr(module, "FETCH_SECONDS", 3.0)
    began = time.monotonic()
    with pytest.raises(GitError, match="git fetch did not end within 3 s"):
        checkout.fetch()
    assert time.monotonic() - began < 15
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while alive(pid):
        assert time.monotonic() < deadline, "what git had started lives"


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_remote_that_is_gone(upstream, checkout):
    (upstream.parent / "remote.git").rename(upstream.parent / "moved.git")
    with pytest.raises(GitError, match="does not appear to be a git repository"):
        checkout.fetch()


def test_what_the_remotes_programs_print_is_not_told(clone, checkout, tmp_path):
    script = tmp_path / "talks"
    script.write_text("#!/bin/sh\necho error: secret >&2; echo secret >&2; exit 1\n")
    script.chmod(0o755)
    git(clone, "config", "remote.origin.uploadpack", str(script))
    with pytest.raises(GitError) as caught:
        checkout.fetch()
    assert caught.value.message == "git fetch: Could not read from remote repository."


def test_environment_is_closed():
    told = closed(
        {"HOME": "/h", "PATH": "/evil", "GIT_DIR": "/evil", "GIT_SSH_COMMAND": "evil", "PYTHONPATH": "/evil",
         "https_proxy": "http://p", "PIP_INDEX_URL": "https://i", "LANG": "de_DE.UTF-8", "SSH_AUTH_SOCK": "/s"}
    )  # fmt: skip
    assert set(told) == {"HOME", "PATH", "https_proxy", "PIP_INDEX_URL", "LC_ALL", "SSH_AUTH_SOCK"}
    assert told["PATH"].startswith("/usr/local/bin:")
    assert closed({})["HOME"].startswith("/")


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ("fatal: 'x' is no repository\nfatal: Could not read\n\nand the repository exists.\n", "'x' is no repository"),
        ("warning: a\nfatal: unable to access 'https://me:secret@h/x/'\n", "unable to access 'https://…'"),
        ("fatal: unable to access 'https://h/x?token=secret': no route\n", "unable to access 'https://…': no route"),
        ("ssh: connect to host h port 22: refused\nfatal: Could not read\n", "ssh: connect to host h port 22: refused"),
        ("something\nelse\x1b[31m\n", "else\\x1b[31m"),
        ("", "exit code 3"),
    ],
)
def test_last_words(errors, said):
    assert last_words(Captured(3, "", errors)) == said


def test_state_of_what_git_may_say_one_day():
    assert parse_state("# stash 3\n# branch.oid abc\n# branch.head main\n? x\n").is_dirty
    assert parse_state("") == State()
