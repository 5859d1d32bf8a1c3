"""Setting aside what is in a clone, so that it is proven to be kept before anything of it is touched.

What is uncommitted becomes a commit of the form that git-stash(1) makes: its tree is the files that git knows, its
parents are HEAD, the index and the untracked files. git-fast-import(1) writes it from the bytes on the disk: no filter,
no hook, not the user's index. Then all of it is read back and compared, and only then are the files touched.
"""

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gtrun.clones.clone import Clone, Seen, Start
from gtrun.clones.status import Change, Entry, Untouchable, parse_entries, quoted
from gtrun.git import CHECKOUT, GitFailed
from gtrun.measures import human_bytes

_CHUNK = 1 << 20
_PRIVATE = 0o077
_ROOM = 1 << 20  # bytes that a pack has beside its objects
_ATTRIBUTES = ("filter", "ident", "working-tree-encoding", "eol")
_PLAIN = {b"unspecified", b"unset", b"lf"}  # what such an attribute says of a file that is written as it is kept


@dataclass(frozen=True, slots=True)
class Work:
    """What is in a clone that the remote has not; `files` and `untracked` are as they are on the disk, None for gone.

    `commits` counts those of HEAD that no remote-tracking branch has.
    """

    seen: Seen
    files: Mapping[bytes, Entry | None]
    untracked: Mapping[bytes, Entry]
    commits: int

    @property
    def is_uncommitted(self) -> bool:
        """Whether anything of it is in no commit."""
        return bool(self.files or self.untracked or any(one.is_staged for one in self.seen.status.changes))

    def described(self) -> str:
        """How much it is: `2 changed files, 1 untracked file and 3 unpushed commits`."""
        changed = {*self.files, *(one.path for one in self.seen.status.changes if one.is_staged)}
        counts = (
            (len(changed), "changed file"), (len(self.untracked), "untracked file"), (self.commits, "unpushed commit"),
        )  # fmt: skip
        parts = [f"{count} {what}{'s' if count > 1 else ''}" for count, what in counts if count]
        return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def find_work(clone: Clone, *, most: int, pushed: str = "") -> Work:
    """What has to be set aside before the clone is reset. Raises Untouchable, also above `most` bytes, GitFailed.

    `pushed` is a commit that the remote has.
    """
    seen = clone.look()
    status = seen.status
    paths = [one.path for one in status.changes if one.is_changed and not one.is_gone] + status.untracked
    _check_size(clone, paths, most)
    files = {one.path: _on_disk(clone, one) for one in status.changes if one.is_changed}
    # a line end that git would convert is no change
    files = {one.path: files[one.path] for one in status.changes if one.is_changed and files[one.path] != one.index}
    untracked = {path: _entry(clone, path) for path in status.untracked}
    _check_bytes(clone, [*files, *untracked])
    is_pushed = status.head == pushed
    commits = 0 if is_pushed else int(clone.git.run("rev-list", "--count", "HEAD", "--not", "--remotes"))
    return Work(seen, files, untracked, commits)


def set_aside(clone: Clone, work: Work, ref: str, run: str) -> str:
    """Keep the work under a ref of its own; returns the commit. Raises Untouchable, GitFailed: nothing is kept then."""
    head = work.seen.status.head
    try:
        if work.is_uncommitted:
            commit = _write(clone, work, ref, run)
        else:
            clone.git.run("update-ref", ref, head, "")
            commit = head
        prove(clone, work, ref)
    except (Untouchable, GitFailed):
        with contextlib.suppress(GitFailed):
            clone.git.run("update-ref", "-d", ref)
        raise
    return commit


def prove(clone: Clone, work: Work, ref: str) -> None:
    """Read back what is kept and compare it with what is there now. Raises Untouchable, GitFailed."""
    if work.commits:
        clone.git.run("rev-list", "--quiet", "--objects", ref, "--not", "--remotes")
    if work.is_uncommitted:
        _prove_trees(clone, work, ref)
        kept = {entry.oid for entry in (*work.files.values(), *work.untracked.values()) if entry}
        staged = {one.index.oid for one in work.seen.status.changes if one.is_staged and one.index}
        _prove_objects(clone, [*(kept | staged)], _hash_name(work.seen.status.head))
    elif os.fsdecode(clone.git.run("rev-parse", ref)).strip() != work.seen.status.head:
        raise Untouchable("what was kept of it is not what is there")
    check_unchanged(clone, work)


def check_unchanged(clone: Clone, work: Work) -> None:
    """Nobody has changed anything since the work was found. Raises Untouchable, GitFailed."""
    now = clone.look()
    files = {one.path: _on_disk(clone, one) for one in now.status.changes if one.path in work.files}
    untracked = {path: _entry(clone, path) for path in now.status.untracked}
    if now != work.seen or files != work.files or untracked != work.untracked:
        raise Untouchable("it changes while it is looked at")


def clear(clone: Clone, work: Work) -> None:
    """Remove the untracked files that are kept, and the folders which that leaves empty. Raises Untouchable."""
    check_unchanged(clone, work)
    for path, entry in work.untracked.items():
        if _entry(clone, path) != entry:
            raise Untouchable("it changes while it is cleared")
        full = _full(clone, path)
        try:
            os.unlink(full)  # noqa: PTH108 - bytes
        except OSError as error:
            raise Untouchable(f"its untracked files cannot be removed: {error.strerror}") from None
        with contextlib.suppress(OSError):  # not empty
            folder = os.path.dirname(path)  # noqa: PTH120
            while folder:
                os.rmdir(_full(clone, folder))  # noqa: PTH106
                folder = os.path.dirname(folder)  # noqa: PTH120


def keep_branch(clone: Clone, start: Start, ref: str) -> int:
    """Keep what the local branch has and the remote has not under a ref of its own; gives the number of its commits.

    Raises Untouchable, GitFailed.
    """
    count = 0
    if start.tip not in {"", start.commit}:
        count = int(clone.git.run("rev-list", "--count", start.tip, "--not", "--remotes"))
    if count:
        clone.git.run("update-ref", ref, start.tip, "")
        clone.git.run("rev-list", "--quiet", "--objects", ref, "--not", "--remotes")
        if clone.git.run("rev-parse", ref).decode().strip() != start.tip:
            raise Untouchable("what was kept of it is not what is there")
    return count


def move_branch(clone: Clone, start: Start) -> None:
    """Bring the local branch, which the clone is not on, to the commit, unless it has moved. Raises GitFailed."""
    reason = ("-m", f"gtrun: reset to {start.name}")
    clone.git.run("update-ref", *reason, f"refs/heads/{start.branch}", start.commit, start.tip)
    if not clone.value(f"branch.{start.branch}.merge"):
        clone.git.run("branch", "--quiet", f"--set-upstream-to={start.ref}", start.branch)


def check_out(clone: Clone, start: Start) -> None:
    """Bring the clone to the commit, on its branch. Raises GitFailed."""
    on = ("--no-track", "-B", start.branch) if start.branch else ("--detach",)
    clone.writing.run("checkout", "--force", "--quiet", *on, start.commit, "--", deadline=CHECKOUT)
    head = clone.git.run("rev-parse", "HEAD").decode().strip()
    if (head, clone.branch()) != (start.commit, start.branch):
        raise GitFailed("git checkout did not do what it said")


def check_overwritten(clone: Clone, work: Work, commit: str) -> None:
    """Nothing but what is kept is in the way of a reset: it does not spare ignored files. Raises Untouchable."""
    told = clone.git.run(
        "diff-index", "--cached", "--raw", "-z", "--no-renames", "--ignore-submodules=none", "--no-abbrev", commit
    )
    fields = iter(told.split(b"\0"))
    written = set(work.files)
    for about in fields:
        if about:
            mode, _, _, _, _ = about.removeprefix(b":").split(b" ")
            path = next(fields)
            if mode not in {b"000000", b"160000"}:
                written.add(path)
    known = {*parse_entries(work.seen.listing), *work.untracked}
    for path in written:
        for there in _in_the_way(clone, path):
            if there not in known:
                raise Untouchable("an ignored file in it is where the remote has one of its own")


def _in_the_way(clone: Clone, path: bytes) -> Iterator[bytes]:
    """The files that are lost when this one is written."""
    parts = path.split(b"/")
    for count in range(1, len(parts) + 1):
        place = b"/".join(parts[:count])
        full = _full(clone, place)
        if not os.path.lexists(full):
            return
        if os.path.islink(full) or not os.path.isdir(full):  # noqa: PTH112, PTH114
            yield place
            return
    for folder, folders, files in os.walk(_full(clone, path)):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]  # noqa: PTH114, PTH118
        yield from (
            os.path.relpath(os.path.join(folder, name), _full(clone, b""))  # noqa: PTH118
            for name in (*files, *links)
        )


def _full(clone: Clone, path: bytes) -> bytes:
    return os.path.join(os.fsencode(clone.folder), path)  # noqa: PTH118


def _check_size(clone: Clone, paths: list[bytes], most: int) -> None:
    total = 0
    for path in paths:
        with contextlib.suppress(OSError):
            total += os.lstat(_full(clone, path)).st_size
    if total > most:
        raise Untouchable(f"what is uncommitted in it takes {human_bytes(total)}, and stash_max is {human_bytes(most)}")
    if total:
        room = os.statvfs(clone.git_folder)
        if room.f_bavail * room.f_frsize < total + _ROOM:
            raise Untouchable("there is no room to set aside what is in it")


def _check_bytes(clone: Clone, paths: list[bytes]) -> None:
    """git writes these files as it keeps them. Raises Untouchable."""
    if not paths:
        return
    if any(os.path.basename(path) == b".gitattributes" for path in paths):  # noqa: PTH119
        raise Untouchable("its .gitattributes are changed, by which git alters bytes")
    if clone.value("core.autocrlf") == "true" or clone.value("core.eol") == "crlf":
        raise Untouchable("git converts its line ends")
    if clone.value("core.symlinks") == "false":
        raise Untouchable("git writes its symbolic links as files")
    told = clone.git.run("check-attr", "-z", "--stdin", *_ATTRIBUTES, feed=(path + b"\0" for path in paths))
    fields = told.split(b"\0")
    if len(fields) != 3 * len(_ATTRIBUTES) * len(paths) + 1:
        raise Untouchable("git does not say how it writes its files")
    for name, value in zip(fields[1::3], fields[2::3], strict=True):
        if value not in _PLAIN:
            raise Untouchable(f"git alters the bytes of a file in it (the attribute {os.fsdecode(name)})")


def _on_disk(clone: Clone, change: Change) -> Entry | None:
    """The file as it is; git says whether it is one, since a symbolic link may be on the way to it."""
    return None if change.is_gone else _entry(clone, change.path)


def _entry(clone: Clone, path: bytes) -> Entry:
    digest, size = hashlib.new(_hash_name_of(clone)), 0
    mode, length, chunks = _open(clone, path)
    digest.update(b"blob %d\0" % length)
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
    if size != length:
        raise Untouchable("it changes while it is looked at")
    return Entry(mode, digest.hexdigest().encode())


def _open(clone: Clone, path: bytes) -> tuple[bytes, int, Iterator[bytes]]:
    """The mode, length and bytes of a file or symbolic link. Raises Untouchable."""
    full = _full(clone, path)
    try:
        info = os.lstat(full)
        if stat.S_ISLNK(info.st_mode):
            target = os.readlink(full)  # noqa: PTH115 - bytes
            return b"120000", len(target), iter([target])
        if not stat.S_ISREG(info.st_mode):
            raise Untouchable("there is something in it that is no file")
        descriptor = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Untouchable(f"a file in it cannot be read: {error.strerror}") from None
    return b"100755" if info.st_mode & stat.S_IXUSR else b"100644", info.st_size, _chunks(descriptor)


def _chunks(descriptor: int) -> Iterator[bytes]:
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        try:
            while chunk := file.read(_CHUNK):
                yield chunk
        except OSError as error:
            raise Untouchable(f"a file in it cannot be read: {error.strerror}") from None


def _hash_name(oid: str) -> str:
    return "sha1" if len(oid) == 40 else "sha256"


def _hash_name_of(clone: Clone) -> str:
    return "sha256" if clone.value("extensions.objectformat") == "sha256" else "sha1"


def _write(clone: Clone, work: Work, ref: str, run: str) -> str:
    before = _crash_reports(clone)
    git = clone.git.given("fastimport.unpackLimit=1")
    try:
        # a pack of its own that nobody else can read: a file that is private here stays so
        git.run(
            "fast-import", "--quiet", "--done", feed=_stream(clone, work, ref, run), deadline=CHECKOUT, umask=_PRIVATE
        )
    finally:
        for report in _crash_reports(clone) - before:  # it names the files
            report.unlink(missing_ok=True)
    return clone.git.run("rev-parse", "--verify", ref).decode().strip()


def _crash_reports(clone: Clone) -> set[Path]:
    return set(Path(clone.git_folder).glob("fast_import_crash_*"))


def _stream(clone: Clone, work: Work, ref: str, run: str) -> Iterator[bytes]:
    """What git-fast-import(1) reads. Later commits of the one ref replace the earlier as its value."""
    marks: dict[bytes, int] = {}
    for path, entry in (*work.files.items(), *work.untracked.items()):
        if entry and entry.oid not in marks:
            marks[entry.oid] = len(marks) + 10
            yield from _blob(clone, path, marks[entry.oid])

    def put(path: bytes, entry: Entry) -> bytes:
        kept = b":%d" % marks[entry.oid] if entry.oid in marks else entry.oid
        return b"M %b %b %b\n" % (entry.mode, kept, quoted(path))

    def commit(mark: int, what: str) -> bytes:
        message = f"gtrun: {what} set aside before run {run}".encode()
        who = b"committer gtrun <gtrun@localhost> %d +0000" % time.time()
        return b"commit %b\nmark :%d\n%b\ndata %d\n%b\n" % (ref.encode(), mark, who, len(message), message)

    base = b"from %b\n" % work.seen.status.head.encode()
    staged = [one for one in work.seen.status.changes if one.is_staged]
    index = [b"D %b\n" % quoted(one.path) for one in staged if one.index is None]
    index += [put(one.path, one.index) for one in staged if one.index is not None]
    yield from (commit(1, "the index"), base, *index)
    forget = b"reset %b\n\n" % ref.encode()
    if work.untracked:
        yield from (forget, commit(2, "untracked files"), *(put(*each) for each in work.untracked.items()))
    yield from (forget, commit(3, "uncommitted work"), base, b"merge :1\n", b"merge :2\n" if work.untracked else b"")
    yield from index
    yield from (b"D %b\n" % quoted(path) for path, entry in work.files.items() if entry is None)
    yield from (put(path, entry) for path, entry in work.files.items() if entry is not None)
    yield b"done\n"


def _blob(clone: Clone, path: bytes, mark: int) -> Iterator[bytes]:
    _, length, chunks = _open(clone, path)
    yield b"blob\nmark :%d\ndata %d\n" % (mark, length)
    for chunk in chunks:
        length -= len(chunk)
        if length < 0:
            break
        yield chunk
    if length:
        raise Untouchable("it changes while it is read")
    yield b"\n"


def _prove_trees(clone: Clone, work: Work, ref: str) -> None:
    """The commit's trees are the index and the files, each with mode and object, and no other. Raises Untouchable."""
    index = parse_entries(work.seen.listing)
    for one in work.seen.status.changes:
        if one.index is None:
            index.pop(one.path, None)  # `git add --intent-to-add`: listed, and not in the index
    files = {path: entry for path, entry in {**index, **work.files}.items() if entry}
    wanted = {f"{ref}^{{tree}}": files, f"{ref}^2^{{tree}}": index}
    if work.untracked:
        wanted[f"{ref}^3^{{tree}}"] = dict(work.untracked)
    same = all(
        parse_entries(clone.git.run("ls-tree", "-r", "-z", "--full-tree", tree)) == kept
        for tree, kept in wanted.items()
    )
    parents = clone.git.run("rev-parse", f"{ref}^1", f"{ref}^2^1").decode().split()
    if not same or parents != [work.seen.status.head] * 2:
        raise Untouchable("what was kept of it is not what is there")


def _prove_objects(clone: Clone, oids: list[bytes], algorithm: str) -> None:
    """Each object can be read, and is what its name says. Raises Untouchable, GitFailed."""
    reader = _Batch(algorithm)
    clone.git.stream("cat-file", "--batch", hear=reader.hear, feed=(oid + b"\n" for oid in oids), deadline=CHECKOUT)
    if reader.read != oids:
        raise Untouchable("what was kept of it cannot be read back")


class _Batch:
    """Reads `git cat-file --batch`: a line `OID blob SIZE`, so many bytes, a line end."""

    def __init__(self, algorithm: str) -> None:
        self.read: list[bytes] = []
        self._algorithm = algorithm
        self._rest, self._left = b"", -1
        self._digest = hashlib.new(algorithm)

    def hear(self, chunk: bytes) -> None:
        """More of it. Raises Untouchable."""
        self._rest += chunk
        while self._rest:
            if self._left < 0:
                line, end, rest = self._rest.partition(b"\n")
                if not end:
                    return
                words = line.split(b" ")
                if len(words) != 3 or words[1] != b"blob":
                    raise Untouchable("an object of it is not there")
                self._rest, self._left = rest, int(words[2])
                self._digest = hashlib.new(self._algorithm, b"blob %b\0" % words[2])
            part = self._rest[: self._left]
            self._digest.update(part)
            self._rest, self._left = self._rest[len(part) :], self._left - len(part)
            if self._left == 0 and self._rest:
                self.read.append(self._digest.hexdigest().encode())
                self._rest, self._left = self._rest[1:], -1
