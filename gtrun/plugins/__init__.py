"""Plugins: another kind of payload for a run. A WebAssembly module, which wasmtime runs, or an executable file."""

from gtrun.model import ResolvedRun


def folder(run: ResolvedRun) -> str | None:
    """The unit's folder, below the account's runtime folder, that a plugin works in; None for an agent program."""
    return f"gtrun-plugin.{run.identifier}" if run.plugin is not None else None
