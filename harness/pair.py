"""Two boxes on one cable: two machines, each with its own init, machine ID, accounts, sshd and state.

The cable is a veth(4) pair between their network namespaces, made inside the first one: the host never has either end,
and the kernel takes both away with whichever box ends first, however that happens.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.box import Box

ADDRESSES = {"box1": "192.0.2.1", "box2": "192.0.2.2"}  # of TEST-NET-1: RFC 5737
OPTIONS: tuple[dict[str, Any], ...] = (
    {"hostname": "box1", "accounts": ("ops", "alice"), "group": "gtrun"},
    {"hostname": "box2", "accounts": ("ops", "bob"), "group": "gtrun"},
)
"""Of the boxes of a fleet: the claim account exists in both, and each has an agent."""
CABLE = "cable"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two boxes that reach each other by the names box1 and box2, and know each other's host keys."""

    box1: Box
    box2: Box

    def replace(self, inside: str, old: str, new: str) -> None:
        """Change a file in both, as `Box.replace`."""
        for box in (self.box1, self.box2):
            box.replace(inside, old, new)

    def unplug(self) -> None:
        """From now on nothing gets through, in either direction, and nobody is told."""
        _network(self.box2, "link", "set", CABLE, "down")

    def plug(self) -> None:
        """Undo `unplug`."""
        _network(self.box2, "link", "set", CABLE, "up")


def connect(box1: Box, box2: Box) -> Pair:
    """Lay the cable between two boxes that are up, and introduce them to each other."""
    _network(box1, "link", "add", CABLE, "type", "veth", "peer", "name", CABLE, "netns", str(box2.leader))
    for box, other in ((box1, box2), (box2, box1)):
        _network(box, "address", "add", f"{ADDRESSES[box.hostname]}/24", "dev", CABLE)
        _network(box, "link", "set", CABLE, "up")
        address = ADDRESSES[other.hostname]
        key = other.path("/etc/ssh/ssh_host_ed25519_key.pub").read_text()
        _append(box, "/etc/hosts", f"{address} {other.hostname}\n")
        _append(box, "/etc/ssh/ssh_known_hosts", f"{other.hostname},{address} {key}")
    return Pair(box1, box2)


@contextlib.contextmanager
def booted() -> Iterator[Pair]:
    """Such a pair, for a mutation control."""
    with contextlib.ExitStack() as stack:
        yield connect(*(stack.enter_context(Box(**options)) for options in OPTIONS))


def _network(box: Box, *arguments: str) -> None:
    """ip(8) in a box's network namespace, with the host's numbers of processes."""
    command = ["nsenter", f"--target={box.leader}", "--net", "--", "ip", *arguments]
    subprocess.run(command, check=True)


def _append(box: Box, path: str, text: str) -> None:
    box.write(path, box.path(path).read_text() + text)
