"""Single values of fleet.toml: each takes what TOML holds, or raises WrongValueError."""

import re

from gtrun import measures
from gtrun.config.shapes import WrongValueError, found
from gtrun.errors import UsageError
from gtrun.model import Credential
from gtrun.names import is_plain_argument, is_repository, plugin_key
from gtrun.placeholders import fields, literal_prefix

PLACEHOLDERS = ("issue", "url", "run", "agent", "workdir", "prompt_file", "prompt", "title", "attempt")
"""What a command may contain."""

UNTRUSTED = frozenset({"prompt", "title"})
"""The placeholders whose values are written by whoever writes issues."""

RESERVED = frozenset(
    {
        "CREDENTIALS_DIRECTORY",
        "EXIT_CODE",
        "EXIT_STATUS",
        "INVOCATION_ID",
        "JOURNAL_STREAM",
        "LISTEN_FDNAMES",
        "LISTEN_FDS",
        "LISTEN_PID",
        "MAINPID",
        "MANAGERPID",
        "NOTIFY_SOCKET",
        "SERVICE_RESULT",
        "SYSTEMD_EXEC_PID",
        "WATCHDOG_PID",
        "WATCHDOG_USEC",
    }
)
"""Variables that systemd sets for a unit (systemd.exec(5)); to set them would be a lie to the program."""

_MAX_ARG_STRLEN = 131_071  # execve(2): one argument or one variable, without its final NUL
_LEAST_STOP = 5.0
_LEAST_PATTERN = 5
_MOST_PATTERN = 200
_MOST_SKILL = 44
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)
_ACCOUNT = re.compile(r"(?=.{1,32}\Z)[a-z_][a-z0-9_-]*\$?", re.ASCII)
_HOST = re.compile(r"(?!.*@\Z)[A-Za-z0-9_][A-Za-z0-9_.:@%-]{0,252}", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_CREDENTIAL = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.-]{1,255}", re.ASCII)
_BRANCH = re.compile(r"(?!.*(?:\.\.|//|/\.|\.lock(?:/|\Z)))\w[\w./+#@=,-]{0,199}(?<![/.])")
_SLICE = re.compile(r"(?=.{7,200}\Z)[A-Za-z0-9_.]+(?:-[A-Za-z0-9_.]+)*\.slice", re.ASCII)
_API = re.compile(
    r"https://[A-Za-z0-9.-]+(?::[0-9]+)?(?:/[A-Za-z0-9._-]+)*|http://(?:127\.0\.0\.1|localhost):[0-9]+", re.ASCII
)
_LOGIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})(?:\[bot\])?", re.ASCII)
_ASSOCIATIONS = ("OWNER", "MEMBER", "COLLABORATOR", "CONTRIBUTOR")
_SHELL = re.compile(r"(?:.*/)?(?:ba|da|z|k|mk|fi|tc|c|a)?sh", re.DOTALL)


def text(value: object) -> str:
    """Any text that a program can be given."""
    if not isinstance(value, str):
        raise WrongValueError(f"expected a text, found {found(value)}")
    if "\0" in value:
        raise WrongValueError(f"expected a text without NUL, found {found(value)}")
    if len(value.encode()) > _MAX_ARG_STRLEN:
        raise WrongValueError(f"expected at most {_MAX_ARG_STRLEN} bytes (execve(2)), found {len(value.encode())}")
    return value


def line(value: object) -> str:
    """A text that can be shown in one line."""
    if not text(value).isprintable():
        raise WrongValueError(f"expected one line of text without control characters, found {found(value)}")
    return text(value)


def word(value: object) -> str:
    """One line that says something."""
    if not line(value).strip():
        raise WrongValueError("expected a text that is not empty")
    return line(value)


def words(value: object) -> tuple[str, ...]:
    """A list of `word`, possibly empty."""
    return tuple(word(item) for item in _list(value, '["done", "wontfix"]'))


def glyphs(value: object) -> tuple[str, ...]:
    """What a comment begins with that says the issue is no work; gtrun's own comments must not begin so."""
    result = words(value)
    for glyph in result:
        if "gtrun:".startswith(glyph) or glyph.startswith("gtrun:"):
            raise WrongValueError(f"expected no beginning of gtrun's own comments ('gtrun: …'), found {found(glyph)}")
    return result


def patterns(value: object) -> tuple[str, ...]:
    """Texts that a line of output is searched for; `*` stands for anything, so it cannot be all."""
    result = tuple(word(item) for item in _list(value, '["credits used up", "limit * reached"]'))
    for pattern in result:
        if len(pattern.replace("*", "").strip()) < _LEAST_PATTERN or len(pattern) > _MOST_PATTERN:
            raise WrongValueError(
                f"expected a text of {_LEAST_PATTERN} to {_MOST_PATTERN} characters besides *, found {found(pattern)}"
            )
    return result


def exit_codes(value: object) -> tuple[int, ...]:
    """Exit codes of a program that failed."""
    return tuple(_whole(item, 1, 255) for item in _list(value, "[75]"))


def name(value: str) -> None:
    """Checks the name of an agent or a rig."""
    if not _NAME.fullmatch(value):
        raise WrongValueError(
            "expected a name of at most 32 characters of a-z, 0-9, - and _, not beginning with - or _"
        )


def plugin(value: str) -> None:
    """Checks the name of a plugin."""
    try:
        plugin_key(value)
    except UsageError as error:
        raise WrongValueError(f"expected {error.hint}") from None


def reference(value: object) -> str:
    """The name of an agent or rig as a value."""
    name(text(value))
    return text(value)


def account(value: object) -> str:
    """The name of a unix account; whether it exists is asked by whoever needs it (`account.named`)."""
    if not _ACCOUNT.fullmatch(text(value)):
        raise WrongValueError(f"expected the name of a unix account, found {found(value)}")
    return text(value)


def reach(value: object) -> str:
    """How another account of this box is reached."""
    return _one_of(value, "ssh", "sudo")


def host(value: object) -> str:
    """A host as ssh takes it; it cannot be taken for an option."""
    if not _HOST.fullmatch(text(value)):
        raise WrongValueError(f"expected a host like box2.example or user@box2.example, found {found(value)}")
    return text(value)


def destination(value: object) -> str:
    """An account and a host as ssh takes them."""
    name, at, there = text(value).partition("@")
    if not (at and _ACCOUNT.fullmatch(name) and _HOST.fullmatch(there) and "@" not in there):
        raise WrongValueError(f"expected an account and a host like ops@box1, found {found(value)}")
    return text(value)


def machine_id(value: object) -> str:
    """What /etc/machine-id of a box says (machine-id(5))."""
    if not re.fullmatch(r"[0-9a-f]{32}", text(value), re.ASCII):
        raise WrongValueError(f"expected the 32 characters of /etc/machine-id there, found {found(value)}")
    return text(value)


def kind(value: object) -> str:
    """The kind of the board."""
    return _one_of(value, "local", "github")


def repository(value: object) -> str:
    """A repository as GitHub names it, in small letters: its case counts for nothing there."""
    if not is_repository(text(value)):
        raise WrongValueError(f'expected a repository like "owner/name", found {found(value)}')
    return text(value).lower()


def api(value: object) -> str:
    """The root of a REST API, without a slash at its end. A token goes there: in the clear to no other box."""
    address = text(value).rstrip("/")
    if not _API.fullmatch(address):
        raise WrongValueError(
            'expected an address like "https://github.example.com/api/v3" (http:// only for 127.0.0.1 and localhost),'
            f" found {found(value)}"
        )
    return address


def authors(value: object) -> tuple[str, ...]:
    """Whose comments count: words of GitHub's `author_association` in capitals, and logins."""
    result = words(value)
    for author in result:
        if author.isupper() and author not in _ASSOCIATIONS:
            raise WrongValueError(f"expected a login, or one of {', '.join(_ASSOCIATIONS)}, found {found(author)}")
        if not author.isupper() and not _LOGIN.fullmatch(author):
            raise WrongValueError(f'expected a login like "octocat" or "my-app[bot]", found {found(author)}')
    return result


def path(value: object) -> str:
    """A path that depends on no working directory."""
    if not text(value).startswith(("/", "~/")):
        raise WrongValueError(f"expected an absolute path or one beginning with ~/, found {found(value)}")
    return text(value)


def folder(value: object) -> str:
    """A `path`, or the home itself."""
    return "~" if value == "~" else path(value)


def folders(value: object) -> tuple[str, ...]:
    """Folders that a plugin sees, each under its own name."""
    return tuple(path(item) for item in _list(value, '["~/reports"]'))


def arguments(value: object) -> tuple[str, ...]:
    """The arguments of a plugin, as they are."""
    return tuple(text(item) for item in _list(value, '["--older-than", "30"]'))


def fuel(value: object) -> int:
    """How many steps a module may take."""
    return _whole(value, 1, (1 << 63) - 1)


def clones(value: object) -> tuple[str, ...]:
    """The clones that a run works in."""
    result = tuple(path(item) for item in _list(value, '["~/src/app"]'))
    for number, each in enumerate(result):
        if each in result[:number]:
            raise WrongValueError(f"expected each clone once, found {found(each)} again")
    return result


def worktree(value: object) -> str:
    """Whether a run works in its clones or in worktrees of its own."""
    return _one_of(value, "clone", "fresh")


def branch(value: object) -> str:
    """A branch of a remote (git-check-ref-format(1))."""
    if not _BRANCH.fullmatch(text(value)) or value == "HEAD":
        raise WrongValueError(f'expected the name of a branch like "main", found {found(value)}')
    return str(value)


def program_path(value: object) -> str:
    """A path that the unit's command line can carry."""
    if not text(value).startswith("/") or not is_plain_argument(text(value)):
        raise WrongValueError(f"expected an absolute path of A-Z a-z 0-9 _ . / = - only, found {found(value)}")
    return text(value)


def search_path(value: object) -> tuple[str, ...]:
    """The folders of PATH."""
    result = tuple(folder(item) for item in _list(value, '["~/.local/bin", "/usr/bin"]'))
    if not result:
        raise WrongValueError("expected at least one folder, found an empty list")
    for each in result:
        if ":" in each:
            raise WrongValueError(f"expected a folder without a colon, found {found(each)}")
    return result


def duration(value: object) -> float:
    """A duration in seconds."""
    if not isinstance(value, str):
        raise WrongValueError(f'expected a duration in quotes like "90s", "20m" or "2h", found {found(value)}')
    return measures.seconds(value)


def duration_or_none(value: object) -> float:
    """A duration in seconds, or "0s" for none."""
    return 0.0 if value == "0s" else duration(value)


def count(value: object) -> int:
    """How many of something, at least one."""
    return _whole(value, 1, 10_000)


def skills(value: object) -> tuple[str, ...]:
    """What an agent is good at; compared without case, as labels are."""
    result = tuple(word(item).strip().casefold() for item in _list(value, '["go", "sql"]'))
    for each in result:
        if len(each) > _MOST_SKILL:
            raise WrongValueError(
                f"expected at most {_MOST_SKILL} characters, so that a label can name it, found {found(each)}"
            )
    return result


def idle_limit(value: object) -> float:
    """A duration in seconds in which a program can do something that counts."""
    result = duration(value)
    if result < 1:
        raise WrongValueError(f"expected at least 1s, found {found(value)}")
    return result


def stop_timeout(value: object) -> float:
    """A duration in seconds within which the close-out can do its work."""
    result = duration(value)
    if result < _LEAST_STOP:
        raise WrongValueError(
            f"expected at least {_LEAST_STOP:g}s, as the close-out works within it, found {found(value)}"
        )
    return result


def size(value: object) -> int:
    """A size in bytes."""
    if not isinstance(value, str):
        raise WrongValueError(f'expected a size in quotes like "512M" or "4G", found {found(value)}')
    return measures.size(value)


def switch(value: object) -> bool:
    """On or off."""
    if not isinstance(value, bool):
        raise WrongValueError(f"expected true or false, found {found(value)}")
    return value


def size_or_none(value: object) -> int:
    """A size in bytes, or "0" for nothing at all."""
    return 0 if value == "0" else size(value)


def tasks(value: object) -> int:
    """A number of processes and threads."""
    return _whole(value, 1, 1 << 22)  # PID_MAX_LIMIT of Linux


def weight(value: object) -> int:
    """A share of the CPU or of the disks (systemd.resource-control(5))."""
    return _whole(value, 1, 10_000)


def descriptors(value: object) -> int:
    """A number of open files."""
    return _whole(value, 64, 1 << 30)  # a Python that imports anything needs some; NR_OPEN_MAX of Linux is above


def oom_policy(value: object) -> str:
    """What happens to the run when the kernel kills one of its processes for memory (systemd.service(5))."""
    return _one_of(value, "stop", "kill", "continue")


def protect_system(value: object) -> str | None:
    """systemd's word for how much of the system is read-only (systemd.exec(5)); None for nothing."""
    return _switch_or(value, "full", "strict")


def protect_home(value: object) -> str | None:
    """systemd's word for what is done to the homes (systemd.exec(5)); None for nothing."""
    return _switch_or(value, "read-only", "tmpfs")


def _switch_or(value: object, *words: str) -> str | None:
    if isinstance(value, bool):
        return "yes" if value else None
    if value not in words:
        raise WrongValueError(f"expected true, false, {_listed(words)}, found {found(value)}")
    return str(value)


def _one_of(value: object, *words: str) -> str:
    if value not in words:
        raise WrongValueError(f"expected {_listed(words)}, found {found(value)}")
    return str(value)


def _listed(words: tuple[str, ...]) -> str:
    quoted = [f'"{word}"' for word in words]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def slice_name(value: object) -> str:
    """The name of a slice unit (systemd.slice(5)): a dash is one level of the tree."""
    if not _SLICE.fullmatch(text(value)):
        raise WrongValueError(f'expected the name of a slice like "agents.slice", found {found(value)}')
    return text(value)


def plain_paths(value: object) -> tuple[str, ...]:
    """Paths that a unit's file can carry, each a `folder`."""
    result = tuple(folder(item) for item in _list(value, '["~/src"]'))
    for each in result:
        if not is_plain_argument(each.removeprefix("~")) and each != "~":
            raise WrongValueError(f"expected a path of A-Z a-z 0-9 _ . / = - only, found {found(each)}")
        if ".." in each.split("/"):
            raise WrongValueError(f"expected a path without .., found {found(each)}")
    return result


def per_cent(value: object) -> int:
    """Per cent of one CPU; more than 100 is more than one CPU."""
    match = re.fullmatch(r"([1-9][0-9]{0,5})%", value, re.ASCII) if isinstance(value, str) else None
    if not match:
        raise WrongValueError(f'expected whole per cents in quotes like "150%", found {found(value)}')
    return int(match[1])


def variable(value: str) -> None:
    """Checks the name of an environment variable of the agent program."""
    if not _VARIABLE.fullmatch(value):
        raise WrongValueError("expected the name of a variable, of A-Z a-z 0-9 _ and not beginning with a digit")
    if value in RESERVED or value.startswith("GTRUN_"):
        raise WrongValueError(f"reserved: {'gtrun' if value.startswith('GTRUN_') else 'systemd'} sets it")
    if value == "PATH":
        raise WrongValueError("reserved: it is made from the key path of [run]")


def credential_name(value: str) -> None:
    """Checks the name of a credential, which is a file's. systemd allows more, and then cannot start the unit."""
    if not _CREDENTIAL.fullmatch(value):
        raise WrongValueError("expected a name of at most 255 characters of A-Z a-z 0-9 _ . -, as a file may have it")


def credential_reference(value: object) -> str:
    """The name of a credential as a value."""
    credential_name(text(value))
    return text(value)


def credential(value: object) -> Credential:
    """Where a credential comes from: a path, `{ encrypted = PATH }`, or `{ command = [PROGRAM, …] }`."""
    match value:
        case str():
            return Credential(path=path(value))
        case {"encrypted": file, **rest} if not rest:
            return Credential(path=path(file), encrypted=True)
        case {"command": words, **rest} if not rest:
            arguments = tuple(text(item) for item in _list(words, '["pass", "show", "github"]'))
            if not arguments or not arguments[0]:
                raise WrongValueError("expected the name of a program as the first element of the command")
            return Credential(command=arguments)
    raise WrongValueError(
        'expected a path, { encrypted = "PATH" } or { command = ["PROGRAM", "ARGUMENT"] }, '
        f"found {'another table' if isinstance(value, dict) else found(value)}"
    )


def command(value: object) -> tuple[str, ...]:
    """The argument vector of the agent program, with its placeholders."""
    arguments = tuple(text(item) for item in _list(value, '["claude", "-p"]'))
    if not arguments or not arguments[0]:
        raise WrongValueError("expected the name of a program as the first element")
    for number, argument in enumerate(arguments):
        used = _placeholders(argument)
        if used and number == 0:
            raise WrongValueError(f"expected the name of a program as the first element, found {found(argument)}")
        if UNTRUSTED.intersection(used):
            _refuse_untrusted(arguments, number)
    return arguments


def absolute_command(value: object) -> tuple[str, ...]:
    """An argument vector without placeholders, whose program is found without a PATH."""
    arguments = tuple(text(item) for item in _list(value, '["/usr/local/bin/tell-me"]'))
    if not arguments:
        raise WrongValueError("expected a program as the first element, found an empty list")
    return (path(arguments[0]), *arguments[1:])


def _placeholders(argument: str) -> list[str]:
    try:
        used = fields(argument)
    except ValueError as error:
        raise WrongValueError(f"in {found(argument)}: {error}") from None
    for placeholder in used:
        if placeholder not in PLACEHOLDERS:
            known = " ".join(f"{{{each}}}" for each in PLACEHOLDERS)
            raise WrongValueError(f"unknown placeholder {{{placeholder}}} in {found(argument)}; known here: {known}")
    return used


def _refuse_untrusted(arguments: tuple[str, ...], number: int) -> None:
    """Text of an issue must be neither an option nor a program for a shell."""
    argument, before = arguments[number], arguments[:number]
    if before[-1].startswith("-") and before[-1].endswith("c") and any(_SHELL.fullmatch(each) for each in before):
        raise WrongValueError(
            f"{found(argument)} would have a shell run what an issue says:"
            " let the program read it on standard input or from {prompt_file}"
        )
    if "--" not in before and not literal_prefix(argument).strip("-"):
        raise WrongValueError(
            f"{found(argument)} begins with the text of an issue, which could be an option:"
            f' put "--" before it (["tool", "--", "{argument}"]),'
            f' or join it to an option (["tool", "--prompt={argument}"])'
        )


def _list(value: object, example: str) -> list[object]:
    if not isinstance(value, list):
        raise WrongValueError(f"expected a list like {example}, found {found(value)}")
    return value


def _whole(value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise WrongValueError(f"expected a whole number from {least} to {most}, found {found(value)}")
    return value
