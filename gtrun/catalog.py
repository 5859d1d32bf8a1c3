"""The explanations of gtrun's journal entries, put where `journalctl -x` finds them: that takes root."""

import os
from collections.abc import Iterator
from pathlib import Path

import gtrun
from gtrun.errors import GtrunError
from gtrun.files import describe
from gtrun.process import capture

PLACE = Path("/usr/local/lib/systemd/catalog/gtrun.catalog")
"""The folder for what no package has brought; journalctl(1) compiles it together with the packages' own."""

_PACKAGED = Path("/usr/lib/systemd/catalog/gtrun.catalog")
_UPDATE = ("journalctl", "--update-catalog")


def shipped() -> Path:
    """The catalog of this installation."""
    return Path(gtrun.__file__).with_name("gtrun.catalog")


def install(*, rehearse: bool = False) -> Iterator[str]:
    """Put it in its place as root, say how as anybody else; yields what is done, one line each. Raises GtrunError."""
    text = shipped().read_bytes()
    found = [place for place in (PLACE, _PACKAGED) if _read(place) == text]
    if found:
        yield f"{found[0]} is as it should be"
    elif os.geteuid() != 0:
        how = f"sudo install -D -m 644 {shipped()} {PLACE} && sudo {' '.join(_UPDATE)}"
        yield f"journalctl -x does not explain gtrun's entries here; mend it with: {how}"
    elif rehearse:
        yield f"would write {PLACE}"
    else:
        try:
            PLACE.parent.mkdir(parents=True, exist_ok=True)
            temporary = PLACE.with_name(f".{PLACE.name}.{os.getpid()}")
            temporary.write_bytes(text)
            temporary.chmod(0o644)
            temporary.rename(PLACE)
        except OSError as error:
            raise GtrunError(f"cannot write {PLACE}: {describe(error)}") from error
        yield f"wrote {PLACE}"
        yield from _update()


def uninstall() -> Iterator[str]:
    """Take it out again as root; yields what is done, one line each. Raises GtrunError."""
    if os.geteuid() != 0 or not PLACE.exists():
        return
    try:
        PLACE.unlink()
    except OSError as error:
        raise GtrunError(f"cannot remove {PLACE}: {describe(error)}") from error
    yield f"removed {PLACE}"
    yield from _update()


def _update() -> Iterator[str]:
    done = capture(_UPDATE)
    if done.code:
        last = done.errors.strip().rpartition("\n")[2]
        yield f"{' '.join(_UPDATE)} failed, so journalctl -x does not know of it yet: {last}"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
