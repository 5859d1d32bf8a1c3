"""What a new release is asked before it is taken: can it import what a run needs?"""

import importlib
from pathlib import Path

import gtrun
from gtrun.release.installation import proven
from gtrun.systemd import import_binding

_NEEDED = ("gtrun.runner.run", "gtrun.runner.closeout", "gtrun.reach.worker", "gtrun.reach.operations")


def prove() -> int:
    """Import it all and say so; the release before this one has asked. Returns an exit code."""
    for module in _NEEDED:
        importlib.import_module(module)
    import_binding()
    print(proven(Path(gtrun.__file__).parent.parent), end="")
    return 0
