"""Killing a sync before any one of the calls by which it changes a folder, be they git's or ours.

They are counted as they are made, in every process of the sync: nothing is listed by hand.
"""

import fcntl
import mmap
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

from tests.clones.place import Place

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct shared { int count, at, signal, sync; char names[1 << 16]; } *shared;

static __attribute__((constructor)) void begin(void)
{
    int file = getenv("KILLING") ? open(getenv("KILLING"), O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    flock(file, LOCK_SH); /* until this process is gone */
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}

static void step(const char *call, const char *path)
{
    int saved = errno;
    char line[300];
    /* an object is there or not, and nothing refers to it yet */
    if (strstr(path, "/objects/") || !strncmp(path, "objects/", 8) || !strncmp(path, "/dev/", 5))
        return;
    if (!shared || !shared->sync)
        return;
    if (__sync_add_and_fetch(&shared->count, 1) == shared->at) {
        kill(shared->sync, shared->signal);
        if (getpid() != shared->sync)
            kill(0, shared->signal); /* git has a session of its own */
        if (shared->signal == SIGKILL)
            for (;;)
                pause();
    }
    if (!shared->at) {
        snprintf(line, sizeof line, "%s %s\n", call, path);
        strncat(shared->names, line, sizeof shared->names - strlen(shared->names) - 1);
    }
    errno = saved;
}

static int is_there(const char *path) { struct stat info; return lstat(path, &info) == 0; }

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define ONE(name) int name(const char *path) \
{ REAL(name); if (is_there(path)) step(#name, path); return real(path); }
#define TWO(name) int name(const char *from, const char *to) { REAL(name); step(#name, to); return real(from, to); }
#define OPEN(name) int name(const char *path, int flags, ...) \
{ \
    va_list more; va_start(more, flags); mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0; va_end(more); \
    REAL(name); if (flags & (O_CREAT | O_TRUNC)) step(#name, path); return real(path, flags, mode); \
}
#define FOPEN(name) FILE *name(const char *path, const char *mode) \
{ REAL(name); if (*mode != 'r') step(#name, path); return real(path, mode); }
ONE(unlink) ONE(rmdir) TWO(rename) TWO(link) TWO(symlink) OPEN(open) OPEN(open64) FOPEN(fopen) FOPEN(fopen64)
int mkdir(const char *path, mode_t mode)
{
    REAL(mkdir); if (!is_there(path)) step("mkdir", path); return real(path, mode);
}
"""
_SIZE = 16 + (1 << 16)


class Killing:
    """A library that kills, and a git that runs with it."""

    def __init__(self, folder: Path) -> None:
        source = folder / "killing.c"
        source.write_text(_SOURCE)
        self.library, self._shared, self.bin = folder / "killing.so", folder / "shared", folder / "bin"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", self.library, source, "-ldl"], check=True, timeout=60)  # noqa: S607
        self.bin.mkdir()
        git = self.bin / "git"
        git.write_text(f'#!/bin/sh\nLD_PRELOAD={self.library} KILLING={self._shared} exec /usr/bin/git "$@"\n')
        git.chmod(0o755)

    def sync(
        self, place: Place, *, at: int = 0, by: signal.Signals = signal.SIGKILL, worktree: str = "clone"
    ) -> tuple[int, list[str]]:
        """Sync in a process of its own, killed before call number `at`; gives its exit code, and with 0 all calls."""
        self._shared.write_bytes(struct.pack("4i", 0, at, by, 0).ljust(_SIZE, b"\0"))
        argv = [sys.executable, "-m", "tests.clones.killing", place.root, self.bin, self._shared, worktree]
        environment = {**os.environ, "LD_PRELOAD": str(self.library), "KILLING": str(self._shared)}
        done = subprocess.run(argv, env=environment, check=False, capture_output=True, timeout=120)
        with self._shared.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # a git outlives it for a moment
        return done.returncode, self._shared.read_bytes()[16:].rstrip(b"\0").decode().splitlines()


if __name__ == "__main__":
    # from here on the calls of this process and of its git count
    with open(sys.argv[3], "r+b") as file, mmap.mmap(file.fileno(), _SIZE) as memory:
        memory[12:16] = struct.pack("i", os.getpid())
    Place(Path(sys.argv[1])).sync(programs=[sys.argv[2]], worktree=sys.argv[4])
