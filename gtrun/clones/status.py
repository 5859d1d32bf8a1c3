"""What git says about the files of a clone, parsed; nothing here asks anybody."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from gtrun.errors import GtrunError

_GONE = b"000000"
_HIDDEN = re.compile(rb"(?:\A|\0)[Sa-z] [^\t]*\t([^\0]*)")


class Untouchable(GtrunError):
    """Why a clone is left as it is, as a clause: `a rebase is in progress`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as git keeps it: its mode (`100644`, `100755`, `120000`) and its object."""

    mode: bytes
    oid: bytes


@dataclass(frozen=True, slots=True)
class Change:
    """A file that git knows and that differs: in the index from HEAD (staged), on the disk from the index (changed).

    `index` is None if it is not in the index; `is_gone` says that it is not on the disk.
    """

    path: bytes
    index: Entry | None
    is_staged: bool
    is_changed: bool
    is_gone: bool


@dataclass(frozen=True, slots=True)
class Status:
    """Where HEAD is, and all that differs from it. `branch` is empty if HEAD is detached."""

    head: str
    branch: str
    changes: list[Change] = field(default_factory=list)
    untracked: list[bytes] = field(default_factory=list)


def parse_status(output: bytes) -> Status:
    """`git status --porcelain=v2 -z --branch --no-renames` (git-status(1)). Raises Untouchable."""
    told: dict[bytes, bytes] = {}
    changes, untracked = [], []
    for line in filter(None, output.split(b"\0")):
        mark, _, rest = line.partition(b" ")
        if mark == b"#":
            key, _, value = rest.partition(b" ")
            told[key] = value
        elif mark == b"1":
            changes.append(_change(rest))
        elif mark == b"?":
            if rest.endswith(b"/"):
                raise Untouchable("there is another repository or worktree in it")
            untracked.append(rest)
        elif mark == b"u":
            raise Untouchable("there is a merge conflict in it")
        else:
            raise Untouchable("git describes it in a way that is not known here")
    head, branch = told.get(b"branch.oid", b""), told.get(b"branch.head", b"")
    if not re.fullmatch(rb"[0-9a-f]{40,64}", head):
        raise Untouchable("its branch has no commit yet")
    name = "" if branch == b"(detached)" else os.fsdecode(branch)
    return Status(head.decode(), name, changes, untracked)


def _change(line: bytes) -> Change:
    states, submodule, _, mode, on_disk, _, oid, path = line.split(b" ", 7)
    if submodule.startswith(b"S"):
        raise Untouchable("a submodule in it is not as it was committed")
    return Change(
        path=path,
        index=None if mode == _GONE else Entry(mode, oid),
        is_staged=states[:1] != b".",
        is_changed=states[1:] != b".",
        is_gone=on_disk == _GONE,
    )


def parse_entries(output: bytes) -> dict[bytes, Entry]:
    """`git ls-files -v -s -z` (git-ls-files(1)) or `git ls-tree -r -z`, which has the type in the second place."""
    found = {}
    for line in filter(None, output.split(b"\0")):
        about, _, path = line.partition(b"\t")
        words = about.split(b" ")
        mode, oid = (words[1], words[2]) if len(words) == 4 else (words[0], words[2])
        found[path] = Entry(mode, oid)
    return found


def hidden(output: bytes) -> Iterator[bytes]:
    """The files of `git ls-files -v -s -z` that git was told not to look at: assume-unchanged, skip-worktree."""
    for match in _HIDDEN.finditer(output):
        yield match[1]


def parse_config(output: bytes) -> dict[str, list[str]]:
    """`git config --list -z`: the values of each key, the one that counts last. A key without value is true."""
    found: dict[str, list[str]] = {}
    for item in filter(None, output.split(b"\0")):
        key, separator, value = os.fsdecode(item).partition("\n")
        found.setdefault(key, []).append(value if separator else "true")
    return found


def quoted(path: bytes) -> bytes:
    """A path as git-fast-import(1) reads any path at all."""
    return b'"' + b"".join(b"%c" % c if 0x20 < c < 0x7F and c not in b'"\\' else b"\\%03o" % c for c in path) + b'"'
