"""Conversations with one systemd manager. The only package that imports pystemd.

Everything here may hang when the manager does (the binding holds the interpreter's lock while it waits), so it is
called in a process that a deadline can end: see `gtrun.reach`.
"""


def import_binding() -> None:
    """Import pystemd now (26 ms), in a process that has time for it: afterwards `Bus` finds it ready."""
    import pystemd.dbuslib  # noqa: F401, PLC0415
