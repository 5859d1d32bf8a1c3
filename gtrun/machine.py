"""Which box this is."""

from pathlib import Path


def machine_id() -> str:
    """What identifies this installation (machine-id(5)); empty if nothing does."""
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return ""
