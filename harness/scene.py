"""What scenarios do in a box: configure an account, put issues on its board, dispatch, and read what came of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.box import Box, Completed

MACHINE_LINE = re.compile(r"^<!-- gtrun:(started|finished) run=([0-9a-f]{32})(?: result=[a-z-]+)? -->$", re.MULTILINE)
PACKAGE = "/opt/gtrun/lib/python3*/site-packages/gtrun"
"""Where the package is in a box, as a pattern for `Box.replace`."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One account of a box that uses gtrun as a person would. By default its one agent is `me`, on its own board."""

    box: Box
    account: str = "alice"

    @property
    def home(self) -> str:
        """The account's home, inside."""
        return self.box.account(self.account).home

    @property
    def state(self) -> str:
        """Its state folder, inside."""
        return f"{self.home}/.local/state/gtrun"

    def gtrun(self, *argv: str, check: int | None = 0, env: Mapping[str, str] | None = None) -> Completed:
        """Run gtrun; `check` is the one exit code that is expected, None for any."""
        return self.box.run("gtrun", *argv, account=self.account, check=check, env=env)

    def sh(self, script: str, *, check: int | None = 0) -> Completed:
        """Run a shell script as the account, for set-up."""
        return self.box.run("bash", "-euc", script, account=self.account, check=check)

    def configure(self, toml: str) -> None:
        """Write the account's fleet.toml."""
        folder = f"{self.home}/.config/gtrun"
        self.box.run("mkdir", "-p", folder, account=self.account)
        self.box.write(f"{folder}/fleet.toml", toml, owner=self.account, mode=0o600)

    def runs_shell(self, script: str, more: str = "") -> None:
        """Configure agent `me` to run a shell script. `more` is further TOML inside [run]."""
        self.configure(f"[run]\ncommand = {json.dumps(['sh', '-c', script])}\n{more}\n")

    def issue(self, title: str = "Mend the roof", *options: str) -> str:
        """Put an issue on the board; returns its number."""
        return self.gtrun("board", "add", *options, "--", title).out.strip()

    def asks(self, *argv: str, check: int | None = 0) -> dict[str, Any]:
        """The document of a command with `--json`."""
        document: dict[str, Any] = json.loads(self.gtrun(*argv, "--json", check=check).out)
        return document

    def markers(self, issue: str) -> list[tuple[str, str]]:
        """The markers on an issue, in their order: (kind, run ID)."""
        comments = self.asks("board", "show", issue)["comments"]
        return [(match[1], match[2]) for comment in comments for match in MACHINE_LINE.finditer(comment["body"])]

    def kinds(self, issue: str) -> list[str]:
        """The kinds of the markers on an issue, in their order."""
        return [kind for kind, _ in self.markers(issue)]

    def runs(self, issue: str) -> list[dict[str, Any]]:
        """The runs of an issue as `gtrun show --json` tells them, oldest first."""
        runs: list[dict[str, Any]] = self.asks("show", issue, check=None)["runs"]
        return runs

    def results(self, issue: str) -> list[str | None]:
        """How the runs of an issue ended, oldest first; None for one that has not."""
        return [run["ending"]["result"] if run["ending"] else None for run in self.runs(issue)]

    def units(self) -> list[str]:
        """Every unit of a run that the account's manager has loaded, whatever its state."""
        listed = self.box.run(
            "systemctl", "--user", "list-units", "--all", "--plain", "--no-legend", "task-*", "plugin-*",
            account=self.account,
        )  # fmt: skip
        return [line.split()[0] for line in listed.out.splitlines()]

    def ends(self, issue: str, *, timeout: float = 20.0) -> None:
        """Wait until the issue's unit is not live any more; it may still be loaded."""
        unit = f"task-{issue}.service"

        def is_over() -> bool:
            return self.properties(unit, "ActiveState")["ActiveState"] in {"inactive", "failed"}

        self.box.wait_for(f"the end of {unit}", is_over, timeout=timeout)

    def open_records(self) -> list[str]:
        """The run records with something left to happen."""
        return sorted(path.name for path in self.box.path(f"{self.state}/runs/open").glob("*.jsonl"))

    def attempts(self, issue: str) -> list[tuple[str | None, int | None, str]]:
        """The attempts at an issue, oldest first: outcome, exit code, reason."""
        told = self.asks("show", issue)["attempts"]
        return [(attempt["outcome"], attempt["code"], attempt["reason"]) for attempt in told]

    def idle(self, *, timeout: float = 15.0) -> None:
        """Wait until no unit of a run is left in the account's manager."""
        self.box.wait_for("no unit of a run", lambda: not self.units(), timeout=timeout)

    def appears(self, inside: str, *, timeout: float = 10.0) -> str:
        """Wait for a file that the agent program writes; returns its text."""
        path = self.box.path(inside)
        return self.box.wait_for(inside, lambda: path.read_text() if path.exists() else None, timeout=timeout)

    def properties(self, unit: str, *names: str) -> dict[str, str]:
        """Properties of a unit as systemctl shows them."""
        shown = self.box.run("systemctl", "--user", "show", unit, "-p", ",".join(names), account=self.account)
        return dict(line.split("=", 1) for line in shown.out.splitlines())
