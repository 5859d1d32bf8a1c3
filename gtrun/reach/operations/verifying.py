"""Verifying: the units of an account as systemd's own tools judge them, also those that exist only while they run."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gtrun import credentials
from gtrun.model import ResolvedRun
from gtrun.names import encode_path
from gtrun.program import expand_home
from gtrun.reach.operations import confinement
from gtrun.reach.operations.session import Session
from gtrun.reach.operations.starting import runtime_folders
from gtrun.reach.route import this_installation
from gtrun.state import record as records
from gtrun.systemd import transient, unit_file

if TYPE_CHECKING:
    from gtrun.process import Captured

_SECONDS = 20.0


class ToVerify(msgspec.Struct, frozen=True):
    """A run that the agent could be given, if it has a command, and the rig's own gtrun (empty: this installation)."""

    run: ResolvedRun | None
    gtrun: list[str]


class VerifiedUnit(msgspec.Struct, frozen=True, kw_only=True):
    """One unit: its text, what is wrong with it, what is laid over it, and how exposed systemd finds it (0 to 10).

    `exposure` is None where systemd-analyze(1) has no judgement. `file` is empty for a unit that exists while it runs.
    """

    name: str
    file: str = ""
    text: str
    problems: list[str]
    drop_ins: list[str] = []
    exposure: float | None = None


def verify(session: Session, arguments: ToVerify) -> list[VerifiedUnit]:
    """The agent's run as a unit file, and the account's units of gtrun's. Raises NoManager, GtrunError."""
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - 5 ms that no dispatch pays

    account = session.account
    found = []
    environment = {
        "HOME": account.home, "XDG_RUNTIME_DIR": account.runtime, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8",
        "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0", "SYSTEMD_LOG_LEVEL": "warning",
    }  # fmt: skip
    if arguments.run is not None:
        run = _resolved(arguments.run, account.home)
        record = records.open_folder(account.state) / f"{run.token}.jsonl"
        command = arguments.gtrun or this_installation()
        folders = runtime_folders(run)
        wanted = transient.properties(run, command, encode_path(str(record)), folders=folders)
        text = unit_file.rendered(wanted)
        with TemporaryDirectory(prefix="gtrun-verify-", dir=account.runtime) as folder:
            path = Path(folder, run.unit)
            path.write_text(text)
            found.append(
                VerifiedUnit(
                    name=run.unit,
                    text=text,
                    problems=_problems(path, environment),
                    drop_ins=confinement.laid_over_runs(session),
                    exposure=_exposure(path, environment),
                )
            )
    for path in confinement.unit_files(session, ("gtrun*.service", "gtrun*.timer")):
        text = path.read_text(errors="replace")
        problems = _problems(path, environment)
        found.append(VerifiedUnit(name=path.name, file=str(path), text=text, problems=problems))
    return found


def _resolved(run: ResolvedRun, home: str) -> ResolvedRun:
    """With the paths that stand in the unit."""
    return msgspec.structs.replace(
        run,
        workdir=expand_home(run.workdir, home),
        credentials=credentials.expanded(run.credentials, home),
        sandbox=confinement.settled(run.sandbox, home),
    )


def _problems(path: Path, environment: Mapping[str, str]) -> list[str]:
    """What systemd-analyze(1) has to say of a unit file. Its exit code is 0 for a key that it does not know."""
    done = _analyze(["verify", "--man=no", str(path)], environment)
    said = [line.replace(f"{path.parent}/", "") for line in done.errors.splitlines()]
    of_it = [line for line in said if path.name in line]
    return of_it or ([line for line in said if line] or [f"exit code {done.code}"] if done.code else [])


def _exposure(path: Path, environment: Mapping[str, str]) -> float | None:
    done = _analyze(["security", "--offline=true", "--no-pager", str(path)], environment)
    judged = re.search(r"Overall exposure level for \S+: ([0-9.]+) ", done.output)
    return float(judged[1]) if judged else None


def _analyze(arguments: list[str], environment: Mapping[str, str]) -> "Captured":
    from gtrun.process import finish  # noqa: PLC0415 - 3 ms that no dispatch pays

    return finish(["systemd-analyze", "--user", *arguments], environment=environment, deadline=_SECONDS)
