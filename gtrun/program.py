"""What a run executes: the agent program with its arguments, environment, folder and standard input.

Used twice: before the start, as the agent's account, so that what cannot work is refused while nothing runs yet; and
by the runner, with the run's ID, for the real thing.
"""

import os
import pwd
import stat
from collections.abc import Mapping

import msgspec

from gtrun.errors import LaunchFailed
from gtrun.model import ResolvedRun
from gtrun.names import RunId
from gtrun.placeholders import expand, fields

DEFAULT_PROMPT = """\
Work on issue {issue}: {title}

{body}

You are agent {agent}. Work in {workdir}. When you are done, commit, push a branch and open a pull request.
{previous}"""
PROMPT_PLACEHOLDERS = ("issue", "url", "run", "agent", "workdir", "title", "attempt", "body", "previous")
"""What a prompt template may contain."""

STRING_MAX = 32 * 4096 - 1  # MAX_ARG_STRLEN of execve(2), less its NUL
_ARGUMENTS_MAX = 6 << 20  # three quarters of _STK_LIM, whatever the stack limit
_ARGUMENTS_MIN = 32 * 4096
_SLACK = 4096  # room for what the kernel and the dynamic linker add
_PROMPT_MAX = 16 * 1024 * 1024
_DROPPED = ("PYTHONPATH", "PYTHONHOME")


class Program(msgspec.Struct, frozen=True):
    """Ready for execve(2). `stdin` is None for a command that names its prompt in an argument."""

    path: str
    argv: list[str]
    environment: dict[str, str]
    workdir: str
    prompt: str
    stdin: str | None
    wants_prompt_file: bool


def expand_home(path: str, home: str) -> str:
    """`~` and `~/…` as that account means them."""
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def expand_program(command: tuple[str, ...], home: str) -> tuple[str, ...]:
    """A command whose program, if it has one, is as that account means it."""
    return (expand_home(command[0], home), *command[1:]) if command else ()


def find(name: str, folders: tuple[str, ...], workdir: str) -> str:
    """The absolute path of a program: in `folders`, or relative to `workdir` if it has a slash. Raises LaunchFailed."""
    candidates = [os.path.join(workdir, name)] if "/" in name else [os.path.join(f, name) for f in folders]  # noqa: PTH118
    rejected = []
    for candidate in candidates:
        try:
            info = os.stat(candidate)  # noqa: PTH116 - a string in, a string out
        except OSError:
            continue
        if stat.S_ISREG(info.st_mode) and os.access(candidate, os.X_OK):
            return candidate
        rejected.append(candidate)
    if rejected and os.path.isdir(rejected[0]):  # noqa: PTH112
        raise LaunchFailed(f"the program {name!r} is a folder: {rejected[0]}", hint="name the program in it")
    if rejected:
        raise LaunchFailed(
            f"the program {name!r} is not executable: {rejected[0]}", hint=f"mend it with: chmod +x {rejected[0]}"
        )
    where = ", ".join(folders) if "/" not in name else candidates[0]
    raise LaunchFailed(
        f"the program {name!r} is not there: looked in {where}",
        hint="install it for the agent's account, or add its folder to [run] path",
    )


def check_strings(strings: Mapping[str, str] | list[str], what: str) -> int:
    """Refuse what execve(2) cannot take or would cut; returns the room it takes, in bytes. Raises LaunchFailed."""
    items = [f"{key}={value}" for key, value in strings.items()] if isinstance(strings, Mapping) else strings
    total = 0
    for item in items:
        if "\0" in item:
            raise LaunchFailed(f"{what} has a NUL character, which no program can be given")
        try:
            raw = item.encode()
        except UnicodeEncodeError:
            raise LaunchFailed(f"{what} is not valid UTF-8") from None
        if len(raw) > STRING_MAX:
            raise LaunchFailed(
                f"{what} has {len(raw)} bytes in one string, and the kernel takes at most {STRING_MAX}",
                hint="let the prompt go to stdin, or to a file with {prompt_file}",
            )
        total += len(raw) + 1 + 8
    return total


def check_workdir(workdir: str) -> None:
    """Raises LaunchFailed unless the folder is there and can be entered."""
    if not os.path.isdir(workdir):  # noqa: PTH112
        what = "is not a folder" if os.path.lexists(workdir) else "is not there"
        raise LaunchFailed(f"the workdir {workdir} {what}", hint="create it, or set [run] workdir")
    if not os.access(workdir, os.X_OK):
        raise LaunchFailed(f"the workdir {workdir} cannot be entered by this account")


def read_prompt(path: str) -> str:
    """A prompt template from its file. Raises LaunchFailed."""
    try:
        # O_NONBLOCK: a FIFO must not hang us, and a device has no end
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise LaunchFailed(f"the prompt {path} is not a regular file")
            data = file.read(_PROMPT_MAX + 1)
    except OSError as error:
        raise LaunchFailed(
            f"cannot read the prompt {path}: {error.strerror}",
            hint="let the agent's account read it, or set [run] prompt; without that the prompt is gtrun's own",
        ) from error
    if len(data) > _PROMPT_MAX:
        raise LaunchFailed(f"the prompt {path} has more than {_PROMPT_MAX} bytes")
    try:
        template = data.decode()
    except UnicodeDecodeError:
        raise LaunchFailed(f"the prompt {path} is not UTF-8") from None
    try:
        expand(template, dict.fromkeys(PROMPT_PLACEHOLDERS, ""))
    except ValueError as error:
        raise LaunchFailed(f"the prompt {path} is not usable: {error}") from error
    return template


def argument_space(stack: int) -> int:
    """The bytes that arguments and environment may take together under a stack limit in bytes (execve(2))."""
    return max(min(stack // 4, _ARGUMENTS_MAX), _ARGUMENTS_MIN) - _SLACK


def environment_of(run: ResolvedRun, inherited: Mapping[str, str]) -> dict[str, str]:
    """What the manager gives its units, with what the profile says; a home, also where that has none."""
    environment = {"HOME": pwd.getpwuid(os.geteuid()).pw_dir} if "HOME" not in inherited else {}
    environment |= {key: value for key, value in inherited.items() if key not in _DROPPED}
    return environment | {"PATH": ":".join(run.path)} | run.environment


def resolve(
    run: ResolvedRun,
    run_id: RunId,
    prompt_file: str,
    *,
    inherited: Mapping[str, str],
    secrets: Mapping[str, str],
    stack: int,
) -> Program:
    """Everything that execve(2) needs. Raises LaunchFailed.

    `inherited` and `stack` are what the manager gives its units: the environment, and the stack limit in bytes.
    `secrets` are the variables that credentials make.
    """
    check_workdir(run.workdir)
    values = {
        "issue": run.issue.key,
        "url": run.issue.url,
        "run": run_id,
        "agent": run.agent,
        "workdir": run.workdir,
        "title": run.issue.title,
        "attempt": str(run.attempt),
    }
    try:
        prompt = expand(run.prompt, {**values, "body": run.issue.body, "previous": run.previous})
    except ValueError as error:
        raise LaunchFailed(f"the prompt template is not usable: {error}") from error
    if "\0" in prompt:
        raise LaunchFailed("the prompt has a NUL character")
    values |= {"prompt": prompt, "prompt_file": prompt_file}
    argv = [expand(argument, values) for argument in run.command]
    named = {field for argument in run.command for field in fields(argument)}
    path = find(argv[0], run.path, run.workdir)
    environment = environment_of(run, inherited) | dict(secrets)
    environment |= {
        "GTRUN_AGENT": run.agent,
        "GTRUN_BACKEND": run.backend,
        "GTRUN_ISSUE": run.issue.key,
        "GTRUN_RUN": run_id,
    }
    room = check_strings(argv, "an argument of the command") + check_strings(environment, "the environment")
    most = argument_space(stack)
    if room > most:
        raise LaunchFailed(
            f"arguments and environment take {room} bytes, and the kernel takes at most {most}",
            hint="let the prompt go to stdin, or to a file with {prompt_file}",
        )
    return Program(
        path=path,
        argv=argv,
        environment=environment,
        workdir=run.workdir,
        prompt=prompt,
        stdin=None if named & {"prompt", "prompt_file"} else prompt,
        wants_prompt_file="prompt_file" in named,
    )
