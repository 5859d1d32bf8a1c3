"""Telling a notice to the command of `[notify]`: one JSON document on its standard input, and no other word.

It runs as the account that tells, in an environment and a folder that say nothing else, for so long at most; then it
is ended with all that it started. What becomes of it changes nothing but one line, which is what this returns.
"""

from collections.abc import Callable, Iterator

from gtrun import orphans
from gtrun.account import Account
from gtrun.model import Notify
from gtrun.process import PATH, converse
from gtrun.text import plain, shorten

GRACE = 2.0
"""Seconds that it has for an end in order, once its time is up."""

_PIPE = 4096  # bytes, which the kernel rounds up to one page: full until what was written is read (pipe(7))
_KEPT = 2000  # bytes of what it says
_SHOWN = 200


def hand_over(notify: Notify, document: bytes, account: Account, *, seconds: float, handed: Callable[[], None]) -> str:
    """Run the command; returns what went wrong in one line, empty for nothing.

    `handed` is called once the command has read the document, or never will: whoever is killed before that is on the
    disk tells it again. What it raises ends the command.
    """
    said = bytearray()
    is_handed = False

    def once() -> None:
        nonlocal is_handed
        if not is_handed:
            is_handed = True
            handed()

    def feed() -> Iterator[bytes]:
        yield document
        once()

    def hear(chunk: bytes) -> None:
        said.extend(chunk)
        del said[:-_KEPT]

    argv = notify.command
    grace = min(GRACE, seconds / 4)
    limit = min(notify.timeout, seconds - grace)
    problem = ""
    with orphans.ended():
        try:
            code = converse(
                argv, environment=_environment(account), deadline=limit, hear=hear, feed=feed(), folder="/",
                hears_errors=True, grace=grace, pipe_size=_PIPE,
            )  # fmt: skip
            if code:
                problem = f"exited with {code}" if code > 0 else f"was ended by signal {-code}"
        except TimeoutError:
            problem = f"did not end within {limit:.3g} s"
        except OSError as error:
            problem = f"cannot be executed: {error.strerror}"
    once()
    if not problem:
        return ""
    last = plain(said.decode("utf-8", "replace").strip().rpartition("\n")[2])
    return f"the notify command {argv[0]} {problem}" + (f": {shorten(last, _SHOWN)}" if last else "")


def _environment(account: Account) -> dict[str, str]:
    return {
        "PATH": PATH, "LANG": "C.UTF-8", "HOME": account.home, "USER": account.name, "LOGNAME": account.name,
        "XDG_RUNTIME_DIR": account.runtime,
    }  # fmt: skip
