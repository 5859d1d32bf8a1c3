"""What was set aside or kept, as records in the account's state: one private file each.

A record is there before what it names can be lost anywhere else, and is removed only when that is provably nothing.
"""

import contextlib
import os
from pathlib import Path

import msgspec

from gtrun.errors import StateError
from gtrun.files import describe, ensure_private_folder, open_private, publish, sync_folder
from gtrun.model import Issue, ResolvedRun
from gtrun.names import IssueKey, RunId, Token

_LARGEST = 1 << 20


class Stash(msgspec.Struct, frozen=True, kw_only=True):
    """Work of a clone that was set aside before a run, or a worktree that was made for one (`folder`, `is_made`).

    `at` is in seconds since the epoch; `what` says how much it is; `command` brings it back, as the agent's account.
    `ref` is where git keeps it, `commit` what that names.
    """

    clone: str
    agent: str
    run: RunId
    token: Token
    issue: IssueKey
    board: str
    at: float
    what: str
    command: tuple[str, ...]
    ref: str = ""
    commit: str = ""
    folder: str = ""
    is_made: bool = True
    board_identity: str = ""


def of_run(run: ResolvedRun, run_id: RunId, clone: str, at: float, what: str, command: tuple[str, ...]) -> Stash:
    """A record of what a run found in a clone, or made of it."""
    issue: Issue = run.issue
    return Stash(
        clone=clone, agent=run.agent, run=run_id, token=run.token, issue=issue.key, board=run.board, at=at, what=what,
        command=command, board_identity=run.board_identity,
    )  # fmt: skip


def _folder(state: str) -> Path:
    return Path(state, "stashes")


def place(state: str, run: RunId) -> Path:
    """Where the records of a run lie: this, and `.PART.json`."""
    return _folder(state) / run


def write(state: str, name: str, stash: Stash) -> Path:
    """Make the record durable. Raises StateError."""
    folder = _folder(state)
    ensure_private_folder(folder)
    path = folder / f"{name}.json"
    try:
        publish(path, msgspec.json.encode(stash) + b"\n")
    except OSError as error:
        raise StateError(f"cannot write {path}: {describe(error)}") from error
    return path


def forget(path: Path) -> None:
    """Remove the record of what is not there any more."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        sync_folder(path.parent)


def read_all(state: str) -> tuple[list[tuple[Path, Stash]], list[str]]:
    """Every record, oldest first, and the paths of those that are damaged."""
    found, damaged = [], []
    for path in _folder(state).glob("*.json"):
        try:
            with os.fdopen(open_private(path, os.O_RDONLY), "rb") as file:
                found.append((path, msgspec.json.decode(file.read(_LARGEST), type=Stash)))
        except FileNotFoundError:
            continue
        except (OSError, msgspec.MsgspecError, RecursionError):
            damaged.append(str(path))
    return sorted(found, key=lambda one: one[1].at), sorted(damaged)
