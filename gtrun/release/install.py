"""`scripts/install`: make the release of a checkout's commit, and make it current. Standard library only."""

import os
import sys
from pathlib import Path

from gtrun.errors import GtrunError
from gtrun.exits import Exit
from gtrun.files import describe
from gtrun.release.build import build, locked, make_current, point
from gtrun.release.git import Checkout
from gtrun.release.installation import Release


def install(root: Path, checkout: Path, python: str) -> Release:
    """Install what the checkout is at; a second call for the same commit only turns `current`.

    Raises GtrunError, OSError.
    """
    clone = Checkout(str(checkout), os.environ)
    state = clone.state()
    if state.is_dirty:
        print("install: changes that are not committed are left out", file=sys.stderr)
    for folder in (root, root / "releases", root / "environments", root / "bin"):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    with locked(root):
        release = build(root, clone, state.head, python, os.environ)
        make_current(release)
        point(root / "bin/gtrun", Path("../current/bin/gtrun"))
    return release


def main() -> int:
    """DIR and the checkout as arguments; returns an exit code."""
    root, checkout = (Path(argument) for argument in sys.argv[1:])
    try:
        release = install(root, checkout, sys.executable)
    except GtrunError as error:
        print(f"install: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"install: hint: {error.hint}", file=sys.stderr)
        return Exit.FAILED
    except OSError as error:
        print(f"install: {describe(error)}", file=sys.stderr)
        return Exit.FAILED
    print(f"{release.root}/bin/gtrun is commit {release.commit}")
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(main())
