"""The sandbox of an agent program as unit properties.

A user manager has no rights of its own to mount anything: without a user namespace it takes every one of these
properties, shows it as set, and does nothing. PermissionsStartOnly keeps the sandbox to ExecStart: ExecStartPre and
ExecStopPost, the runner and the close-out, are outside. The `+` prefix would say the same, but over D-Bus only an
ExecStopPostEx can carry it, which systemd 252 does not know any more when a daemon-reload has it read its own file.
"""

from gtrun.model import Sandbox
from gtrun.systemd.bus import Property

_RECURSIVE = 0x4000
"""MS_REC of mount(2): what is mounted below comes along, as with BindPaths= in a file."""


def properties(sandbox: Sandbox) -> list[Property]:
    """The properties that ask for it; none where nothing is asked for."""
    if not sandbox.is_asked_for:
        return []
    result: list[Property] = [("PermissionsStartOnly", "b", True)]
    if sandbox != Sandbox(no_new_privileges=True):
        result.append(("PrivateUsers", "b", True))
    texts = [("ProtectSystem", sandbox.protect_system), ("ProtectHome", sandbox.protect_home)]
    result += [(name, "s", text) for name, text in texts if text is not None]
    switches = [
        ("PrivateTmp", sandbox.private_tmp),
        ("PrivateDevices", sandbox.private_devices),
        ("PrivateNetwork", sandbox.private_network),
        ("ProtectKernelTunables", sandbox.protect_kernel_tunables),
        ("ProtectControlGroups", sandbox.protect_control_groups),
        ("NoNewPrivileges", sandbox.no_new_privileges),
    ]
    result += [(name, "b", True) for name, is_on in switches if is_on]
    lists = [
        ("ReadWritePaths", sandbox.read_write_paths),
        ("ReadOnlyPaths", sandbox.read_only_paths),
        ("InaccessiblePaths", sandbox.inaccessible_paths),
    ]
    result += [(name, "as", list(paths)) for name, paths in lists if paths]
    binds = [("BindPaths", sandbox.bind_paths), ("BindReadOnlyPaths", sandbox.bind_read_only_paths)]
    for name, paths in binds:
        if paths:
            result.append((name, "a(ssbt)", [(path, path, False, _RECURSIVE) for path in paths]))
    return result
