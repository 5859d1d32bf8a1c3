#!/usr/bin/python3
"""The demo's agent program. It mends one function by trying small changes until what the issue says holds.

    agent.py NOD

No intelligence is in it, and no pretence of any. On standard input it gets the prompt that gtrun makes of the issue:
"`FUNCTION` in `FILE`", examples as in a Python session, "check: `NAME`". It changes one token of that function after
the other; the first change with which every example and the project's own check hold is committed on the branch
`issue-N` and pushed. It works in the clone that it is started in. Before it touches anything it waits for somebody to
write into the FIFO named NOD, so that a person has the time to look at a run.

Exit code 1: the issue says too little, or no change helped.
"""

import io
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from doctest import DocTestParser
from pathlib import Path

SWAPS = {
    "<": ("<=", ">"), "<=": ("<", ">="), ">": (">=", "<"), ">=": (">", "<="), "==": ("!=",), "!=": ("==",),
    "+": ("-",), "-": ("+",), "*": ("//",), "//": ("*",), "and": ("or",), "or": ("and",),
}  # fmt: skip
CHECK_SECONDS = 10.0


def main(nod: str) -> int:
    """Mend what the issue on standard input is about."""
    issue, agent = os.environ["GTRUN_ISSUE"], os.environ["GTRUN_AGENT"]
    prompt = sys.stdin.read()
    subject = re.search(r"`(\w+)` in `([\w.]+)`", prompt)
    check = re.search(r"check: `([\w.]+)`", prompt)
    examples = DocTestParser().get_examples(prompt)
    if subject is None or check is None or not examples:
        print("the issue does not say which function, which check, and what is right")
        return 1
    function, file = subject[1], Path(subject[2])
    print(f"issue {issue}: {len(examples)} examples say what {function} in {file} should do")
    print("waiting for a nod", flush=True)
    Path(nod).read_bytes()

    branch = f"issue-{issue}"
    git("fetch", "--quiet", "origin")
    git("checkout", "--quiet", "--force", "-B", branch, "origin/main")
    before = file.read_text()
    session = f">>> from {file.stem} import *\n" + "".join(f">>> {one.source}{one.want}" for one in examples)
    for line, old, new, after in changes(before, function):
        file.write_text(after)
        wrong = what_is_wrong(session, check[1])
        print(f"line {line}: {old} becomes {new}: {wrong or 'the examples hold, and so does ' + check[1]}", flush=True)
        if not wrong:
            break
    else:
        file.write_text(before)
        print("no change of one token helps")
        return 1
    who = ["-c", f"user.name={agent}", "-c", f"user.email={agent}@localhost"]
    git(*who, "commit", "--quiet", "--message", f"{file.stem}: mend {function} (issue {issue})", str(file))
    git("push", "--quiet", "--force", "origin", branch)
    print(f"pushed {branch}")
    return 0


def changes(source: str, function: str) -> Iterator[tuple[int, str, str, str]]:
    """Every change of one token in a function: its line, the old token, the new one, the whole text after it."""
    lines = source.splitlines(keepends=True)
    inside = False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.start[1] == 0 and token.type in {tokenize.NAME, tokenize.OP}:
            inside = token.line.startswith(f"def {function}(")
        if not inside:
            continue
        news: tuple[str, ...] = SWAPS.get(token.string, ())
        if token.type == tokenize.NUMBER and token.string.isdecimal():
            news = (str(int(token.string) + 1), str(int(token.string) - 1))
        row, left, right = token.start[0], token.start[1], token.end[1]
        for new in news:
            line = lines[row - 1]
            changed = [*lines[: row - 1], line[:left] + new + line[right:], *lines[row:]]
            yield row, token.string, new, "".join(changed)


def what_is_wrong(session: str, check: str) -> str:
    """What speaks against the project as it lies there; empty if nothing does."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write(session)
        text.flush()
        if not holds("doctest", text.name):
            return "an example fails"
    return "" if holds("unittest", "--quiet", check) else f"{check} fails"


def holds(module: str, *arguments: str) -> bool:
    """Whether a test module of Python's exits with 0, and in time."""
    # -B: changes of the same second and size would be mistaken for what was compiled before
    command = [sys.executable, "-B", "-m", module, *arguments]
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=CHECK_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def git(*arguments: str) -> None:
    """Run git; its failure is ours."""
    subprocess.run(["git", *arguments], stdin=subprocess.DEVNULL, check=True)  # noqa: S607


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
