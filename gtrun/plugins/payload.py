"""The bytes of a plugin: read once, told by their digest, and executed from memory that nobody can change any more.

Whoever dispatches reads the file. From then on only these bytes travel, with their digest in the resolved run: to the
claim host, to the agent's account, and into its run. What is executed is a sealed copy in memory of what has just been
found to have that digest, so there is no moment between check and execution in which they could become others.
"""

import fcntl
import os
import stat
import struct
import sys
from hashlib import sha256
from pathlib import Path

from gtrun.config import PluginProfile
from gtrun.errors import ConfigError, LaunchFailed, UsageError
from gtrun.model import Plugin
from gtrun.names import IssueKey, plugin_key, plugin_name

MOST = 16 << 20
"""Bytes of a plugin."""

WASI, EXECUTABLE = "wasi", "executable"
"""The kinds."""

_MEMORY = 256 << 20  # bytes, for a module whose profile does not say

_WASM = b"\0asm"
_MODULE, _COMPONENT = 1, 0xD  # version and layer, 16 bits each, little-endian
_ELF = b"\x7fELF"
_ELF_TYPES = (2, 3)  # ET_EXEC and ET_DYN of elf(5)
_ELFCLASS64, _PT_INTERP = 2, 3
_SHEBANG_MAX = 255  # execve(2)
_MFD_EXEC = 0x10  # memfd_create(2), Linux 6.3: executable also where vm.memfd_noexec has turned the default
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


def key_of(file: str) -> IssueKey:
    """The key of the plugin in a file, by the file's name without its ending. Raises UsageError."""
    try:
        return plugin_key(Path(file).stem)
    except UsageError as error:
        raise UsageError(
            f"{error.message}, and a plugin has the name of its file", hint=f"rename the file: {error.hint}"
        ) from None


def read(file: str) -> bytes:
    """All of a file, if it is one that ends and is not too large. Raises LaunchFailed."""
    try:
        # O_NONBLOCK: a FIFO must not hang us
        with open(file, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise LaunchFailed(f"the plugin {file} is not a regular file")
            data = opened.read(MOST + 1)
    except OSError as error:
        raise LaunchFailed(f"cannot read the plugin {file}: {error.strerror}") from error
    if len(data) > MOST:
        raise LaunchFailed(f"the plugin {file} has more than {MOST >> 20} MiB")
    return data


def digest_of(data: bytes) -> str:
    """The SHA-256 of a plugin, in hexadecimal."""
    return sha256(data).hexdigest()


def refuse_changed(data: bytes, digest: str) -> None:
    """Raises LaunchFailed unless these are the bytes with that digest."""
    found = digest_of(data)
    if found != digest:
        raise LaunchFailed(f"the plugin is not the one that was checked: its digest is {found}, and it was {digest}")


def kind_of(data: bytes) -> str:
    """What these bytes are, by how they begin. Raises LaunchFailed for what is no plugin."""
    if data.startswith(_WASM):
        version = int.from_bytes(data[4:8].ljust(4, b"\0"), "little")
        if version & 0xFFFF == _COMPONENT and version >> 16:
            hint = "build it for WASI preview 1, as for the target wasm32-wasip1"
            raise LaunchFailed("the plugin is a WebAssembly component, and a module is needed", hint=hint)
        if version != _MODULE or len(data) < 8:
            raise LaunchFailed("the plugin begins as a WebAssembly module and is none: it is cut off, or damaged")
        return WASI
    if data.startswith((_ELF, b"#!")):
        return EXECUTABLE
    raise LaunchFailed(
        "the plugin is neither a WebAssembly module nor an executable file",
        hint="a script begins with a line like #!/bin/sh; the text of a module is assembled first: docs/plugins.md",
    )


def described(key: IssueKey, data: bytes, profile: PluginProfile, *, source: str) -> Plugin:
    """The plugin that these bytes are, within the bounds of its profile, which `source` has.

    Raises LaunchFailed for what is none, ConfigError for a setting that its kind does not know.
    """
    name, kind = str(plugin_name(key)), kind_of(data)
    if kind == EXECUTABLE:
        for setting in ("fuel", "directories", "writable_directories"):
            if getattr(profile, setting):
                raise ConfigError(
                    f"{source}: plugins.{name}.{setting}: it bounds modules alone, and {name} is an executable",
                    hint="take it out; what an executable may do is said by limits and sandbox of its agent",
                )
    return Plugin(
        name=name,
        kind=kind,
        digest=digest_of(data),
        size=len(data),
        arguments=profile.arguments,
        memory_max=profile.memory_max or _MEMORY,
        fuel=profile.fuel,
        directories=profile.directories,
        writable_directories=profile.writable_directories,
    )


def refuse_unusable(data: bytes) -> None:
    """Raises LaunchFailed for an executable that the kernel would not take here."""
    if data.startswith(b"#!"):
        _check_script(data)
    else:
        _check_elf(data)


def _check_script(data: bytes) -> None:
    line = data[: _SHEBANG_MAX + 1].split(b"\n", 1)
    if len(line) < 2:
        raise LaunchFailed(f"the first line of the plugin does not end, or has more than {_SHEBANG_MAX} bytes")
    interpreter = line[0][2:].strip(b" \t").split(b" ")[0].split(b"\t")[0]
    if interpreter.endswith(b"\r"):
        raise LaunchFailed("the lines of the plugin end as on Windows", hint="convert it: sed -i 's/\\r$//' FILE")
    _check_interpreter(interpreter, "its first line")


def _check_elf(data: bytes) -> None:
    """Its class, machine and type, by the header of elf(5): those of this very interpreter, which does run here."""
    with open(sys.executable, "rb") as ours:
        here = ours.read(20)
    if len(data) >= 64 and (data[4:6], data[18:20]) != (here[4:6], here[18:20]):
        raise LaunchFailed("the plugin is a program for another kind of machine")
    if len(data) < 64 or struct.unpack_from("=H", data, 16)[0] not in _ELF_TYPES:
        raise LaunchFailed("the plugin is no program: it is cut off, or an object file")
    is_wide = data[4] == _ELFCLASS64
    place, size, count = struct.unpack_from("=Q14xHH", data, 32) if is_wide else struct.unpack_from("=I10xHH", data, 28)
    header = struct.Struct("=I4xQ16xQ" if is_wide else "=II8xI")
    for number in range(count):
        try:
            kind, begin, length = header.unpack_from(data, place + number * size)
        except struct.error:
            raise LaunchFailed("the plugin is no program: it is cut off") from None
        if kind == _PT_INTERP:
            _check_interpreter(data[begin : begin + length].removesuffix(b"\0"), "its header")


def _check_interpreter(name: bytes, where: str) -> None:
    if not name.startswith(b"/") or b"\0" in name or not os.access(name, os.X_OK) or os.path.isdir(name):  # noqa: PTH112
        raise LaunchFailed(
            f"the interpreter that the plugin names in {where} is not to be executed: {os.fsdecode(name)!r}"
        )


def sealed(data: bytes, name: str, *, is_inherited: bool) -> int:
    """A descriptor of the bytes in memory, which nobody can change, not even this account (memfd_create(2)).

    It stays open across execve(2) if it `is_inherited`. Raises OSError.
    """
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        descriptor = os.memfd_create(name, flags | _MFD_EXEC)
    except OSError:  # an older kernel
        descriptor = os.memfd_create(name, flags)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.set_inheritable(descriptor, is_inherited)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
