"""An account whose gtrun is a release of a git checkout, its remote, and a trace of which code each process executes.

The checkout's commits hold the package as it is in the box (mutants too), with a tracer in it. A commit is a version:
the number that its code writes into the trace. The package's own dependencies are not installed again: the
installation's environment borrows those of /opt/gtrun, as a box has no network.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from harness.box import CHECKOUT, Box
from harness.scene import PACKAGE, Scene

TRACER = """\
import json, os, sys, time
VERSION = {version}


def tell(what):
    home = os.path.expanduser("~")
    roots = {{m.__file__.rpartition("/gtrun/")[0] for n, m in list(sys.modules.items()) if n.split(".")[0] == "gtrun"}}
    issue = os.environ.get("TRACED_ISSUE") or _issue()
    line = {{"version": VERSION, "verb": sys.argv[1], "what": what, "issue": issue, "pid": os.getpid(),
            "roots": sorted(roots)}}
    with open(f"{{home}}/trace", "a") as file:
        file.write(json.dumps(line) + "\\n")
    hold = f"{{home}}/hold-{{issue}}-{{VERSION}}-{{sys.argv[1]}}-{{what}}"
    if os.path.exists(hold):
        open(hold.replace("/hold-", "/held-"), "w").close()
        while os.path.exists(hold):
            time.sleep(0.01)


def _issue():
    from gtrun.names import decode_path
    if len(sys.argv) < 3:
        return ""
    path = decode_path(sys.argv[2])
    for path in (path, path.replace("/open/", "/closed/")):
        if os.path.exists(path):
            return json.loads(open(path).readline())["run"]["issue"]["key"]
    return ""
"""
TOLD = (
    # file, the line before which it is told, what
    ("runner/run.py", "    run_id = _invocation()\n", "begins"),
    ("runner/run.py", "        record.append(Owed(Kind.STARTED))\n", "posts"),
    ("runner/become.py", "    os.execve(program.path, program.argv, program.environment)", "becomes"),
    ("runner/closeout.py", "        _write_ending(record, os.environ, manager_wait=allowed / 2)\n", "judges"),
    ("runner/closeout.py", "    records.prune(state, resolved.keep)\n", "ends"),
    ("cli/proof.py", "    import_binding()\n", "proves"),
)  # fmt: skip
WORK = ("posts", "becomes", "judges", "ends")
"""What the run itself is, after its first step."""


@dataclass(slots=True)
class Releases:
    """One account's checkout `~/src`, its remote `~/remote.git`, a clone `~/work` that pushes there, `~/gtrun`."""

    scene: Scene
    version: int = 1
    commits: dict[int, str] = field(default_factory=dict)

    @property
    def box(self) -> Box:
        """The box that it is in."""
        return self.scene.box

    @property
    def root(self) -> str:
        """The installation, inside."""
        return f"{self.scene.home}/gtrun"

    @classmethod
    def installed(cls, scene: Scene, *, is_traced: bool = True) -> Releases:
        """Commit version 1, clone it and install it."""
        made = cls(scene)
        box, home = scene.box, scene.home
        (package,) = box.path("/").glob(PACKAGE.lstrip("/"))
        scene.sh(
            "git config --global user.name A; git config --global user.email a@example\n"
            "git config --global init.defaultBranch main; git config --global advice.detachedHead false\n"
            "git init -q --bare remote.git; git clone -q remote.git work 2>/dev/null\n"
            f"cp -r /opt/gtrun/lib/python3*/site-packages/{package.name} work/gtrun\n"
            "find work -name __pycache__ -prune -exec rm -rf {} +; mkdir work/scripts\n"
        )
        for name in ("pyproject.toml", "scripts/install"):
            mode = 0o755 if name.startswith("scripts/") else 0o644
            box.write(f"{home}/work/{name}", (CHECKOUT / name).read_text(), owner=scene.account, mode=mode)
        for file, line, what in TOLD if is_traced else ():
            indent = re.match(" *", line)[0]  # type: ignore[index]
            box.replace(
                f"{home}/work/gtrun/{file}", line, f'{indent}__import__("gtrun.trace").trace.tell("{what}")\n{line}'
            )
        made.push(1)
        scene.sh("git clone -q remote.git src")
        made.borrow(made.root, scene.account)
        scene.sh("src/scripts/install ~/gtrun")
        return made

    def borrow(self, root: str, account: str) -> None:
        """Give an installation the environment that /opt/gtrun has."""
        script = (
            "import os, sys, tomllib; from pathlib import Path; from gtrun.release.build import environment_folder\n"
            "needed = tomllib.load(open(sys.argv[2] + '/pyproject.toml', 'rb'))['project']['dependencies']\n"
            "folder = environment_folder(Path(sys.argv[1]), '/usr/bin/python3', needed)\n"
            "folder.mkdir(parents=True); (folder / 'bin').mkdir()\n"
            "(folder / 'bin/python').symlink_to('/usr/bin/python3')\n"
            "(folder / 'lib').symlink_to('/opt/gtrun/lib')\n"
            "(folder / 'pyvenv.cfg').write_text(Path('/opt/gtrun/pyvenv.cfg').read_text())\n"
            "(folder / 'complete').touch()"
        )
        self.box.run("/opt/gtrun/bin/python", "-c", script, root, f"{self.scene.home}/work", account=account)

    def push(self, version: int, change: str = ":") -> None:
        """Commit and push a version, with what a shell script changes in `~/work` besides."""
        self.box.write(
            f"{self.scene.home}/work/gtrun/trace.py", TRACER.format(version=version), owner=self.scene.account
        )
        done = self.scene.sh(
            f"cd work; {change}\ngit add -A; git commit -qm 'version {version}'; git push -q origin HEAD\n"
            "git rev-parse HEAD"
        )
        self.commits[version] = done.out.split()[-1]

    def configure(self, script: str, more: str = "", program: str = "") -> None:
        """The agent runs a shell script; its units execute this installation's gtrun, or another."""
        self.configure_command(["sh", "-c", script], more, program)

    def configure_command(self, command: list[str], more: str = "", program: str = "") -> None:
        """`configure` for any command."""
        rig = f'[rigs.here]\ngtrun = "{program or self.root + "/bin/gtrun"}"\n'
        self.scene.configure(f"[run]\ncommand = {json.dumps(command)}\n{more}\n{rig}")

    def trace(self, issue: str = "") -> list[dict[str, Any]]:
        """What was told, in order; of one issue's runs."""
        path = self.box.path(f"{self.scene.home}/trace")
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if not issue or line["issue"] == issue]

    def worked(self, issue: str) -> list[tuple[int, str]]:
        """The version that did each part of the run's work; fails if a process had modules of two releases."""
        told = self.trace(issue)
        for line in told:
            assert len(line["roots"]) == 1, f"a process of several releases: {line}"
        return [(line["version"], line["what"]) for line in told if line["what"] in WORK]

    def begun(self, issue: str) -> list[int]:
        """The versions of the runner that were executed."""
        return [line["version"] for line in self.trace(issue) if line["what"] == "begins"]

    def hold(self, issue: str, version: int, verb: str, what: str) -> None:
        """The process that comes there waits."""
        self.box.write(self._hold(issue, version, verb, what), "", owner=self.scene.account)

    def held(self, issue: str, version: int, verb: str, what: str) -> None:
        """Wait until one does."""
        self.scene.appears(self._hold(issue, version, verb, what).replace("/hold-", "/held-"), timeout=30)

    def is_held(self, issue: str, version: int, verb: str = "run", what: str = "begins") -> bool:
        """Whether one does."""
        return self.box.path(self._hold(issue, version, verb, what).replace("/hold-", "/held-")).exists()

    def installed_versions(self) -> list[int]:
        """The versions that are there as releases, or as what is left of one."""
        there = {path.name for path in self.box.path(f"{self.root}/releases").iterdir()}
        known = {commit: version for version, commit in self.commits.items()}
        return sorted(known[commit] for commit in there)

    def let_go(self, issue: str, version: int, verb: str, what: str) -> None:
        """It goes on."""
        self.box.path(self._hold(issue, version, verb, what)).unlink()

    def _hold(self, issue: str, version: int, verb: str, what: str) -> str:
        return f"{self.scene.home}/hold-{issue}-{version}-{verb}-{what}"

    def current(self) -> str:
        """The commit that `current` is."""
        return self.box.path(f"{self.root}/current").readlink().name

    def head(self) -> str:
        """The commit that the checkout is at."""
        return self.scene.sh("git -C src rev-parse HEAD").out.strip()

    def note(self, issue: str) -> str:
        """What the started marker says of the update; empty for nothing."""
        (body,) = [
            comment["body"]
            for comment in self.scene.asks("board", "show", issue)["comments"]
            if "gtrun:started" in comment["body"]
        ]
        found = re.search(r"^Note: not updated: (.*)\.$", body, re.MULTILINE)
        return found[1] if found else ""
