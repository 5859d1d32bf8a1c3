"""What git says about the clone that a release was made from.

Every call has a deadline, no terminal, no prompt, no hook, and a closed environment. What a remote says is untrusted.
"""

import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gtrun.errors import GtrunError
from gtrun.git import ALONE, over_ssh, passed_on
from gtrun.process import PATH, Captured, finish
from gtrun.text import plain, shorten

FETCH_SECONDS = 10.0
"""What a remote has for its answer: a run waits for it."""

_SECONDS = 20.0
# whose clone it is has been looked at: `not ours to write` is an answer of its own
_SETTINGS = (*ALONE, "core.askPass=", "safe.directory=*")
_ACCOUNT = frozenset({"HOME", "USER", "LOGNAME"})
_ERROR = re.compile(r"(?:fatal|error|ssh|gtrun: this is a bug in gtrun): ", re.IGNORECASE)
_OURS = re.compile(r"(?:fatal|ssh): ", re.IGNORECASE)  # of a fetch: an error may be what the remote's programs print
_URL = re.compile(r"://[^\s']*")


class GitError(GtrunError):
    """What git could not do, in its own last words."""


@dataclass(frozen=True, slots=True)
class State:
    """Where a clone stands.

    `branch` and `upstream` are empty where there is none; `ahead` and `behind` are None if the upstream branch was
    never fetched, or is gone. `is_dirty` counts changes of files that git knows.
    """

    head: str = ""
    branch: str = ""
    upstream: str = ""
    ahead: int | None = None
    behind: int | None = None
    is_dirty: bool = False


def parse_state(output: str) -> State:
    """What `git status --porcelain=v2 --branch` printed (git-status(1))."""
    told: dict[str, str] = {}
    is_dirty = False
    for line in output.splitlines():
        mark, _, rest = line.partition(" ")
        if mark == "#":
            key, _, value = rest.partition(" ")
            told[key] = value
        elif mark:
            is_dirty = True
    branch = told.get("branch.head", "")
    distance = re.fullmatch(r"\+([0-9]+) -([0-9]+)", told.get("branch.ab", ""))
    return State(
        head=told.get("branch.oid", ""),
        branch="" if branch == "(detached)" else branch,
        upstream=told.get("branch.upstream", ""),
        ahead=int(distance[1]) if distance else None,
        behind=int(distance[2]) if distance else None,
        is_dirty=is_dirty,
    )


def closed(environment: Mapping[str, str]) -> dict[str, str]:
    """What programs that speak to a remote need of an environment."""
    ours = {name: value for name, value in environment.items() if name in _ACCOUNT or name.startswith("PIP_")}
    kept = passed_on(environment) | ours
    kept.setdefault("HOME", pwd.getpwuid(os.geteuid()).pw_dir)
    return kept | {"PATH": PATH, "LC_ALL": "C.UTF-8"}  # what they say is read by us


class Checkout:
    """A clone of gtrun's repository, by its path."""

    def __init__(self, path: str, environment: Mapping[str, str]) -> None:
        """Nothing is asked yet. `environment` is this process's, of which little is passed on."""
        self.path = Path(path)
        self._environment = closed(environment) | {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}

    def state(self) -> State:
        """Where it stands, as of the last fetch. Raises GitError."""
        return parse_state(self._git("status", "--porcelain=v2", "--branch", "--untracked-files=no"))

    def fetch(self) -> None:
        """Ask the remote of the branch that is checked out. Raises GitError, also at the deadline."""
        theirs = self._run("config", "--get", "core.sshCommand").output.strip()
        environment = {"GIT_SSH_COMMAND": over_ssh(theirs)}
        options = ("--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head")
        done = self._run("fetch", *options, environment=environment, deadline=FETCH_SECONDS)
        if done.code != 0:
            raise GitError(f"git fetch: {last_words(done, _OURS)}")

    def upstream_commit(self) -> str:
        """The commit of the upstream branch, as of the last fetch. Raises GitError."""
        return self._git("rev-parse", "--verify", "@{upstream}^{commit}").strip()

    def was_upstream(self) -> bool:
        """Whether what is checked out is something that the upstream branch once was."""
        done = self._run("merge-base", "--fork-point", "@{upstream}", "HEAD")
        return done.code == 0 and done.output.strip() == self._git("rev-parse", "HEAD").strip()

    def count_behind(self, commit: str) -> int | None:
        """By how many commits the upstream branch is ahead of a commit, as of the last fetch; None if not known."""
        for upstream in ("@{upstream}", "refs/remotes/origin/HEAD"):
            done = self._run("rev-list", "--count", f"{commit}..{upstream}", "--")
            if done.code == 0 and done.output.strip().isdecimal():
                return int(done.output)
        return None

    def export(self, commit: str, folder: str, into: Path, index: Path) -> None:
        """Write the files of a folder of a commit; `index` is a temporary file's path. Raises GitError."""
        environment = {"GIT_INDEX_FILE": str(index)}
        self._git("read-tree", f"{commit}:{folder}", environment=environment)
        self._git("checkout-index", "--all", f"--prefix={into}/", environment=environment)

    def show(self, commit: str, file: str) -> str:
        """A file of a commit. Raises GitError."""
        return self._git("cat-file", "blob", f"{commit}:{file}")

    def fast_forward(self, commit: str) -> None:
        """Move the branch and its files on to a commit. Raises GitError, with nothing moved."""
        self._git("merge", "--ff-only", "--quiet", "--no-verify", commit)

    def _git(self, *arguments: str, environment: Mapping[str, str] | None = None, deadline: float = _SECONDS) -> str:
        done = self._run(*arguments, environment=environment, deadline=deadline)
        if done.code != 0:
            raise GitError(f"git {arguments[0]}: {last_words(done)}")
        return done.output

    def _run(
        self, *arguments: str, environment: Mapping[str, str] | None = None, deadline: float = _SECONDS
    ) -> Captured:
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        argv = ["git", "-C", str(self.path), *settings, *arguments]
        try:
            return finish(argv, environment=self._environment | dict(environment or {}), deadline=deadline)
        except GtrunError:
            raise GitError(f"git {arguments[0]} did not end within {deadline:g} s") from None


def last_words(done: Captured, error: re.Pattern[str] = _ERROR) -> str:
    """Why a program failed, in one line: its first error, or what it said last. A URL may carry a login or a token."""
    lines = [line.strip() for line in (done.errors or done.output).splitlines() if line.strip()]
    errors = [line for line in lines if error.match(line)]
    said = (errors or lines[-1:] or [f"exit code {done.code}"])[0]
    return shorten(plain(_URL.sub("://…", said.removeprefix("fatal: "))), 200)
