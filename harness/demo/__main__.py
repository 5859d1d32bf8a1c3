"""`python -m harness.demo [--here]`: show the main job, and check all that is shown. `scripts/demo` does the set-up."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import textwrap
import time
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from harness.box import Box, BoxError, NeedsRoot
from harness.demo.stage import BoxStage, DemoFailed, HereStage, Stage, has_user_manager, wait_for
from harness.scene import MACHINE_LINE

WIDTH = 100


class Show:
    """Prints commands as a person types them, with their real output, and stops where that is not what it should be."""

    def __init__(self, stage: Stage, *, colour: bool) -> None:
        """A show on a stage."""
        self.stage = stage
        self.colour = colour
        self.shown = 0

    def paint(self, code: str, text: str) -> str:
        """The text in a colour, where colours are wanted."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text

    def heading(self, text: str) -> None:
        """A new chapter."""
        print(self.paint("1", f"── {text} " + "─" * (WIDTH - 4 - len(text))))

    def tell(self, text: str) -> None:
        """Plain words."""
        print(textwrap.fill(" ".join(text.split()), WIDTH), flush=True)

    def type(self, why: str, command: str, account: str = "", *, code: int = 0, shows: str = "") -> str:
        """Type a command as an account (the operator), with `why` before it.

        It must end with `code`, and its output must match `shows`. Raises DemoFailed.
        """
        who = account or self.stage.operator
        self.tell(why)
        print(self.paint("1;32", f"{who} $ {command}"), flush=True)
        got, output = self.stage.run(command, who)
        for line in output.rstrip("\n").split("\n") if output else []:
            print(f"  {line}")
        if code and got == code:
            print(self.paint("2", f"  (exit code {got})"))
        if got != code:
            raise DemoFailed(f"`{command}` ended with {got}, and should have with {code}")
        if not re.search(shows, output, re.MULTILINE):
            raise DemoFailed(f"`{command}` should have shown /{shows}/")
        print(flush=True)
        self.shown += 1
        return output

    def ask(self, command: str, account: str = "") -> str:
        """The output of a command that is not shown."""
        return self.stage.run(command, account or self.stage.operator)[1]

    def check_markers(self, issue: int, kinds: list[str]) -> None:
        """The issue has these markers and no others, those of one run with one ID. Raises DemoFailed."""
        comments = json.loads(self.ask(f"gtrun board show {issue} --json"))["comments"]
        markers = [found for comment in comments for found in MACHINE_LINE.findall(comment["body"])]
        runs = list(dict.fromkeys(run for _, run in markers))
        if [kind for kind, _ in markers] != kinds or len(runs) * 2 != len(kinds):
            raise DemoFailed(f"issue {issue} has the markers {markers}, and should have {kinds}, two for each run")

    def wait_until_gone(self, unit: str, account: str) -> None:
        """Wait until a unit is collected: its close-out has run. Raises DemoFailed."""
        command = f"systemctl --user show --property=LoadState --value {unit}"
        wait_for(f"{unit} gone", lambda: self.ask(command, account).strip() == "not-found")


def play(show: Show) -> None:
    """The demo, from the first look at the board to the history of a killed run. Raises DemoFailed."""
    first, second = show.stage.agents
    look, remote = show.stage.look, show.stage.remote

    show.heading("What there is")
    show.type("A board with three issues.", "gtrun board list", shows=r"^1 +P1 +open")
    show.type(
        "A repository whose tests fail: three functions, one fault in each.",
        "cd when && python3 -m unittest --quiet checks 2>&1 | tail -n 1",
        first.account,
        shows=r"^FAILED \(failures=3\)$",
    )

    show.heading("One issue, one agent, one unit")
    show.type(
        f"Give issue 1 to {first.name}. The command returns once systemd has started the run.",
        f"gtrun dispatch {first.name} 1",
        shows=rf"^started task-1\.service on {first.name}, run [0-9a-f]{{32}}$",
    )
    show.type(
        "The run is a systemd unit, and its name is the lock. Nothing of gtrun's own stays running.",
        "systemctl --user --no-legend list-units 'task-*'",
        first.account,
        shows=rf"task-1\.service +loaded active running {first.name}: issue 1: The year 1900",
    )
    show.type("The same, for the whole fleet.", "gtrun ps", shows=rf"^{first.name} +1 +task-1\.service +active/running")

    show.heading("Exactly once")
    show.type(
        "The same issue again is refused, since the run is live: exit code 11.",
        f"gtrun dispatch {first.name} 1",
        code=11,
        shows=r"^gtrun: refused: .*task-1\.service",
    )

    show.heading("The work")
    show.type(
        "The agent is a small script that tries one-token changes until the examples in the issue hold. So"
        " far it waited for a nod, so that it was still live for the commands above.",
        f"echo go > {first.nod}",
    )
    show.type("What it does, until it ends.", "gtrun logs -f 1", shows=r"pushed issue-1$")
    show.check_markers(1, ["started", "finished"])
    show.type(
        "The issue says what happened: two markers, posted by gtrun, whatever the agent does.",
        "gtrun board show 1 | grep 'gtrun: '",
        shows=r"\*\*finished\*\* by agent `\w+` on rig `here`: success, exit code 0",
    )
    show.type(
        "The branch is in the bare repository: one changed line.",
        f"git -C {remote} diff --unified=0 main issue-1 | tail -n 2",
        shows=r"^\+.*year % 4 == 0 and year % 100 != 0",
    )
    show.type(
        "On that branch the test passes.",
        f"cd {look} && git pull --quiet {remote} issue-1 && python3 -m unittest --quiet checks.Leap 2>&1 | tail -n 1",
        shows=r"^OK$",
    )

    show.heading("Killed, and still closed out")
    show.type(f"Give issue 2 to {second.name}.", f"gtrun dispatch {second.name} 2", shows=r"^started task-2")
    wait_for("the agent program waits", lambda: "waiting for a nod" in show.ask("gtrun logs 2"))
    show.type(
        "SIGKILL to every process of the run, from outside.",
        "systemctl --user kill --signal=KILL task-2.service",
        second.account,
    )
    show.wait_until_gone("task-2.service", second.account)
    show.check_markers(2, ["started", "finished"])
    show.type(
        "The issue knows: systemd runs the close-out when the run cannot.",
        "gtrun board show 2 | grep finished",
        shows=r"\*\*finished\*\* .*: killed, signal KILL \(from outside\)",
    )
    show.type(
        "The name is free again, and the issue is still open: once more, now with the nod.",
        f"gtrun dispatch {second.name} 2 && echo go > {second.nod}",
        shows=r"^started task-2\.service",
    )
    show.wait_until_gone("task-2.service", second.account)
    show.check_markers(2, ["started", "finished"] * 2)
    if "issue-2" not in show.ask(f"git -C {remote} branch --list issue-2"):
        raise DemoFailed("the second run of issue 2 should have pushed its branch")
    show.type(
        "Both runs are history, with what became of each.",
        "gtrun show 2",
        shows=r"killed, signal KILL \(from outside\)(.|\n)*success, exit code 0",
    )


def play_in_box(*, colour: bool) -> None:
    """The whole demo. Raises DemoFailed, BoxError."""
    began = time.monotonic()
    with Box(accounts=["alice", "bob"], group="fleet") as box:
        show = Show(BoxStage(box), colour=colour)
        version = show.ask("systemctl --version").split()[1]
        show.tell(
            f"A throwaway machine with a systemd of its own ({version}), booted in {box.boot_seconds:.1f} s: two"
            " agents, alice and bob, which are unix accounts with a user manager each; root dispatches for both."
        )
        print()
        play(show)
        left = box.leftovers()
        if left:
            raise DemoFailed("left behind in the machine: " + "; ".join(left))
    show.heading("That was it")
    show.tell(
        f"{show.shown} commands, each checked, in {time.monotonic() - began:.0f} s. No unit, process, cgroup or file"
        " of a run was left in the machine, and the machine is gone."
    )
    print("Next:  scripts/test                                   the proof: every test and scenario")
    root = "sudo " if "SUDO_USER" in os.environ else ""
    print(f"       {root + '.venv/bin/python -m harness.box':45} a machine like this, for you alone")
    print("       less README.md                                 install it and dispatch your own agent")


def play_here(*, colour: bool) -> None:
    """The demo with one agent, on the person's own manager. Raises DemoFailed."""
    began = time.monotonic()
    with HereStage() as stage:
        show = Show(stage, colour=colour)
        show.tell(
            f"On your own user manager, with one agent, which is you. All files are in {stage.folder}, which goes at"
            " the end; of your account it touches the units task-1 and task-2, and your journal keeps their lines."
        )
        print()
        taken = show.ask("systemctl --user --all --plain --no-legend list-units task-1.service task-2.service")
        if taken:
            raise DemoFailed(f"your user manager has a unit of that name already: {taken.split()[0]}; try again later")
        play(show)
    show.heading("That was it")
    show.tell(f"{show.shown} commands, each checked, in {time.monotonic() - began:.0f} s, and the folder is gone.")
    print("Next:  sudo scripts/demo                              the same with two accounts, in a throwaway machine")
    print("       sudo scripts/test                              the proof: every test and scenario")
    print("       less README.md                                 install it and dispatch your own agent")


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - signal(2)'s own signature
    raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    """Play the demo; 0, 1 for one that failed, 78 where it cannot be played, 130 for one that was interrupted."""
    parser = argparse.ArgumentParser("scripts/demo", description="Show what gtrun does, and check it.")
    parser.add_argument("--here", action="store_true", help="on your own user manager, with one agent")
    here = parser.parse_args(arguments).here
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup(1)
            signal.signal(number, _interrupt)
    try:
        if here and not has_user_manager():
            print("demo: no user manager answers here; type: sudo scripts/demo", file=sys.stderr)
            return 78
        (play_here if here else play_in_box)(colour=colour)
    except NeedsRoot:
        print("demo: a throwaway machine needs root; type: sudo scripts/demo", file=sys.stderr)
        return 78
    except (DemoFailed, BoxError) as error:
        print(f"demo: FAILED: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; nothing is left of it", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
