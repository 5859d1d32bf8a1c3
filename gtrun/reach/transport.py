"""How a command is run as another account: argument lists for ssh(1) and sudo(8). Pure.

The user's ssh_config counts (ProxyJump, ports, keys, a ControlMaster that is there already), except for what safety
needs: nothing asks for anything, no agent, port or X11 is forwarded, no terminal is made, nothing local is run, and we
become nobody's master. Host keys are checked as that configuration says; in batch mode an unknown one is an error.
"""

import shlex
from collections.abc import Sequence

_SSH = (
    "ssh", "-T", "-x", "-a",
    "-oBatchMode=yes",
    "-oClearAllForwardings=yes",
    "-oControlMaster=no",
    "-oForwardAgent=no",
    "-oPermitLocalCommand=no",
    "-oRequestTTY=no",
    "-oEscapeChar=none",
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=3",
)  # fmt: skip


def over_ssh(destination: str, command: Sequence[str], *, connect_timeout: int) -> list[str]:
    """The argument list that runs `command` at `user@host`, each argument as it is, in a POSIX shell there.

    `connect_timeout` is in seconds. Arguments of plain characters pass any other shell as well.
    """
    return [*_SSH, f"-oConnectTimeout={connect_timeout}", "--", destination, shlex.join(command)]


def by_sudo(account: str, command: Sequence[str]) -> list[str]:
    """The argument list that runs `command` as an account of this box, by a rule that asks for no password."""
    return ["sudo", "--non-interactive", "--user", account, "--set-home", "--", *command]
