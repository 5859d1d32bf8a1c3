"""What a plugin is, told from its bytes, and that these stay what they were."""

import os
import subprocess
from pathlib import Path

import pytest

from gtrun.config import PluginProfile
from gtrun.errors import ConfigError, LaunchFailed, UsageError
from gtrun.names import IssueKey
from gtrun.plugins import payload

MODULE = b"\0asm\1\0\0\0"
SCRIPT = b"#!/bin/sh\nexit 0\n"
TRUE = Path("/bin/true").read_bytes()
DISK = IssueKey("plugin:disk")


def described(data, **settings):
    return payload.described(DISK, data, PluginProfile(**settings), source="fleet.toml")


@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("disk.wasm", "plugin:disk"),
        ("/a/b c/disk-2_x.sh", "plugin:disk-2_x"),
        ("disk", "plugin:disk"),
        ("-x/0", "plugin:0"),
    ],
)
def test_it_goes_by_its_files_name(file, key):
    assert payload.key_of(file) == key


@pytest.mark.parametrize(
    "file", ["Disk.wasm", "a b.sh", "disk.tar.gz", "-x.sh", "_x", "é.sh", "x-dup1.sh", "a" * 33, "", "/"]
)
def test_a_name_that_no_unit_should_have_is_a_usage_error(file):
    with pytest.raises(UsageError, match="is no name of a plugin"):
        payload.key_of(file)


def test_a_file_is_read_whole(tmp_path):
    (tmp_path / "a").write_bytes(bytes(range(256)) * 5000)
    assert payload.read(str(tmp_path / "a")) == bytes(range(256)) * 5000


def test_the_largest_file_is_read_and_a_larger_one_refused(tmp_path):
    (tmp_path / "a").write_bytes(bytes(payload.MOST))
    assert len(payload.read(str(tmp_path / "a"))) == payload.MOST
    (tmp_path / "a").write_bytes(bytes(payload.MOST + 1))
    with pytest.raises(LaunchFailed, match="has more than 16 MiB"):
        payload.read(str(tmp_path / "a"))


def test_what_does_not_end_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for file in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(LaunchFailed, match="is not a regular file"):
            payload.read(file)


@pytest.mark.parametrize(
    ("data", "kind"), [(MODULE, "wasi"), (SCRIPT, "executable"), (b"\x7fELF", "executable"), (b"#!", "executable")]
)
def test_kinds(data, kind):
    assert payload.kind_of(data) == kind


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "neither"),
        (b"exit 0\n", "neither"),
        (b"\xef\xbb\xbf#!/bin/sh\n", "neither"),
        (b"\0asm", "cut off"),
        (b"\0asm\1\0", "cut off"),
        (b"\0asm\2\0\0\0", "cut off, or damaged"),
        (b"\0asm\x0d\0\1\0", "a WebAssembly component"),
    ],
)
def test_what_is_no_plugin(data, why):
    with pytest.raises(LaunchFailed, match=why):
        payload.kind_of(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"#!/bin/sh", "does not end"),
        (b"#!/bin/sh " + b"x" * 300 + b"\n", "does not end, or has more than 255 bytes"),
        (b"#!\n", "not to be executed: ''"),
        (b"#!sh\n", "not to be executed: 'sh'"),
        (b"#!/etc\n", "not to be executed: '/etc'"),
        (b"#!/etc/passwd\n", "not to be executed"),
        (b"#!/bin/sh\r\n", "as on Windows"),
        (b"#!/bin/sh\0\n", r"not to be executed: '/bin/sh\\x00'"),
        (b"#!/bin/\xff\n", r"not to be executed: '/bin/\\udcff'"),
        (b"\x7fELF" + bytes(30), "no program"),
        (b"\x7fELF" + bytes(200), "another kind of machine"),
        (TRUE[:64], "it is cut off"),
        (TRUE.replace(b"/ld-", b"/no-"), "names in its header is not to be executed: '/lib.*/no-"),
    ],
)
def test_what_the_kernel_would_not_take(data, why):
    with pytest.raises(LaunchFailed, match=why):
        payload.refuse_unusable(data)


def test_what_the_kernel_takes():
    for data in (SCRIPT, b"#! /usr/bin/env -S sh -e\n", b"#!\t/bin/sh\t-e\n", TRUE):
        payload.refuse_unusable(data)


def test_a_program_for_another_machine_is_refused():
    data = bytearray(TRUE)
    data[18:20] = (0xF7).to_bytes(2, "little")  # EM_BPF: for the kernel's own
    with pytest.raises(LaunchFailed, match="for another kind of machine"):
        payload.refuse_unusable(bytes(data))


def test_a_plugin_has_the_bounds_of_its_profile():
    plugin = described(MODULE, fuel=7, directories=("~/in",), arguments=("a",))
    assert (plugin.name, plugin.kind, plugin.size, plugin.fuel) == ("disk", "wasi", 8, 7)
    assert plugin.memory_max == 256 << 20
    assert described(MODULE, memory_max=1 << 20).memory_max == 1 << 20


@pytest.mark.parametrize("setting", [{"fuel": 1}, {"directories": ("/a",)}, {"writable_directories": ("/a",)}])
def test_what_would_not_bound_an_executable_is_no_setting_for_it(setting):
    with pytest.raises(ConfigError, match=rf"fleet.toml: plugins.disk.{next(iter(setting))}: "):
        described(SCRIPT, **setting)
    assert described(SCRIPT, memory_max=1 << 20, arguments=("a",)).kind == "executable"


def test_other_bytes_are_refused_by_their_digest():
    payload.refuse_changed(SCRIPT, described(SCRIPT).digest)
    with pytest.raises(LaunchFailed, match="is not the one that was checked"):
        payload.refuse_changed(SCRIPT + b"\n", described(SCRIPT).digest)


def test_a_sealed_copy_is_executed_and_cannot_be_changed_by_anybody():
    descriptor = payload.sealed(b"#!/bin/sh\necho $1\n", "x", is_inherited=True)
    try:
        for attempt in (lambda: os.write(descriptor, b"x"), lambda: os.ftruncate(descriptor, 0)):
            with pytest.raises(PermissionError):
                attempt()
        other = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
        with pytest.raises(PermissionError):
            os.pwrite(other, b"x", 0)
        os.close(other)
        path = f"/proc/self/fd/{descriptor}"
        done = subprocess.run([path, "hello"], pass_fds=[descriptor], capture_output=True, text=True, check=True)
        assert done.stdout == "hello\n"
    finally:
        os.close(descriptor)
