"""Barriers: places in the product's source where a process of a box waits until a scenario lets it go on.

A race that is not forced lets a mutant live by luck. A barrier is an edit of the box's own copy of the product; it
holds a process only while a scenario has closed it for that account.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.control import Edit
from harness.scene import Scene

_CODE = (
    "import os as _o, time as _t; "
    "_f = lambda: {held}_o.path.exists(_o.path.expanduser('~/{name}.closed')); "
    "_f() and open(_o.path.expanduser(f'~/{name}.at.{{_o.getpid()}}'), 'w').close(); "
    "[_t.sleep(0.01) for _ in iter(_f, False)]"
)


@dataclass(frozen=True, slots=True)
class Barrier:
    """Before the line `line` of a file of the package; `line` with its indentation, as often as an Edit wants it.

    With a `variable` it holds only processes that have that one in their environment.
    """

    name: str
    file: str
    line: str
    variable: str = ""

    @property
    def edit(self) -> Edit:
        """The edit that puts it in."""
        indent = self.line[: len(self.line) - len(self.line.lstrip())]
        held = f"'{self.variable}' in _o.environ and " if self.variable else ""
        # from the line's very beginning: within one that is indented further this would be another program
        return Edit(self.file, f"\n{self.line}", f"\n{indent}{_CODE.format(name=self.name, held=held)}\n{self.line}")

    def close(self, scene: Scene) -> None:
        """From now on the scene's account is held here."""
        scene.box.write(f"{scene.home}/{self.name}.closed", "", owner=scene.account)

    def open(self, scene: Scene) -> None:
        """Let everyone go on, and forget who was here."""
        for path in scene.box.path(scene.home).glob(f"{self.name}.*"):
            path.unlink()

    def held(self, scene: Scene) -> list[int]:
        """The processes, by their numbers in the box, that have come here since it was closed."""
        return [int(path.suffix[1:]) for path in scene.box.path(scene.home).glob(f"{self.name}.at.*")]

    def wait_for(self, scene: Scene, count: int = 1, *, timeout: float = 20.0) -> list[int]:
        """Wait until so many processes have come here."""
        return scene.box.wait_for(
            f"{count} processes at {self.name}",
            lambda: found if len(found := self.held(scene)) >= count else None,
            timeout=timeout,
        )
