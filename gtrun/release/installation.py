"""Where this very gtrun lies, and what a release says of itself."""

import os
import sys
from pathlib import Path
from typing import NamedTuple

import gtrun
from gtrun.errors import StateError
from gtrun.files import describe, publish

MANIFEST = "release.json"
"""Written last: a folder without it is what an installation that was killed has left."""

PROOF = "imports"
"""What the program of a new release is asked, by the release before it, so that this must stay the same for ever."""


def proven(folder: Path) -> str:
    """The answer of a release that can import all that runner, close-out and worker need."""
    return f"gtrun imports from {folder}\n"


class Release(NamedTuple):
    """One release.

    `folder` is ROOT/releases/COMMIT; `checkout` is the clone that it was made from; `environment` holds the packages
    of others, and `python` is what that was made with.
    """

    folder: Path
    commit: str
    checkout: str
    environment: str
    python: str

    @property
    def root(self) -> Path:
        """The installation that it belongs to."""
        return self.folder.parent.parent

    @property
    def program(self) -> Path:
        """What is executed."""
        return program_of(self.folder)

    def publish(self) -> None:
        """Write its manifest, which is what makes a release of the folder. Raises OSError."""
        import json  # noqa: PLC0415 - 1 ms that no dispatch pays

        told = {name: value for name, value in self._asdict().items() if name != "folder"}
        manifest = self.folder / MANIFEST
        publish(manifest, json.dumps(told).encode() + b"\n")
        manifest.chmod(0o644)  # other accounts ask for it to see what they execute


def program_of(folder: Path) -> Path:
    """What is executed of the release in a folder."""
    return folder / "bin/gtrun"


def is_release(folder: Path) -> bool:
    """Whether a folder holds a whole release."""
    return os.path.exists(folder / MANIFEST)  # noqa: PTH110 - False also for what cannot be looked at


def read(folder: Path) -> Release:
    """The release in a folder. Raises StateError."""
    import json  # noqa: PLC0415

    manifest = folder / MANIFEST
    try:
        told = json.loads(manifest.read_bytes())
        values = {name: told[name] for name in ("commit", "checkout", "environment", "python")}
    except OSError as error:
        raise StateError(f"cannot read what this release is: {describe(error)}") from error
    except (ValueError, TypeError, KeyError):
        raise StateError(f"{manifest} is damaged", hint="install anew: scripts/install") from None
    return Release(folder, **{name: str(value) for name, value in values.items()})


def this_folder() -> Path | None:
    """The folder of the release that this process executes; None for an installation of another kind."""
    folder = Path(gtrun.__file__).parent.parent
    return folder if is_release(folder) else None


def pinned(program: str) -> str:
    """The same program, of one release for good, if the path leads to one by way of `current`."""
    real = Path(os.path.realpath(program))
    folder = real.parent.parent
    return str(real) if real == program_of(folder) and is_release(folder) else program


def executed() -> list[Path]:
    """Where everything lies that this process executes: the interpreter, what was typed, and all that it can import."""
    typed = [sys.argv[0]] if "/" in sys.argv[0] else []
    return [Path(path) for path in dict.fromkeys([sys.executable, *typed, *sys.path])]
