"""What a new release is asked before it is taken: can it import what a run needs?"""

import importlib
import pkgutil
from pathlib import Path

import gtrun
from gtrun.release.installation import proven
from gtrun.systemd import import_binding

_ROOMS = ("runner", "clones", "reach", "board", "state")
"""What is executed as a run, of which some is imported only when it is needed."""


def prove() -> int:
    """Import it all and say so; the release before this one has asked. Returns an exit code."""
    package = Path(gtrun.__file__).parent
    import_binding()
    for room in _ROOMS:
        for module in pkgutil.walk_packages([str(package / room)], f"gtrun.{room}."):
            importlib.import_module(module.name)
    print(proven(package.parent), end="")
    return 0
