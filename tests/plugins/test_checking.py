"""A module is checked within bounds, whatever it does to the compiler."""

import time

import pytest

from gtrun.errors import LaunchFailed
from gtrun.plugins import checking


def number(value):
    """An unsigned number as a module has it (LEB128)."""
    *low, last = [value >> shift & 0x7F for shift in range(0, max(1, value.bit_length()), 7)]
    return bytes([*(each | 0x80 for each in low), last])


def module(*bodies):
    """A module of functions without parameters, of which the first is _start."""
    functions = number(len(bodies)) + bytes(len(bodies))
    code = number(len(bodies)) + b"".join(number(len(each)) + each for each in bodies)
    sections = [(1, b"\1\x60\0\0"), (3, functions), (7, b"\1\6_start\0\0"), (10, code)]
    return b"\0asm\1\0\0\0" + b"".join(bytes([kind]) + number(len(each)) + each for kind, each in sections)


EMPTY = b"\0\x0b"
ADDS = b"\1\1\x7f" + b"\x20\0\x41\x4d\x6a\x21\0" * 400_000 + b"\x0b"


def test_what_can_be_run_passes():
    checking.check(module(EMPTY, EMPTY))


def test_what_is_wrong_with_it_is_told_as_by_the_check_itself():
    with pytest.raises(LaunchFailed, match="no valid WebAssembly module") as raised:
        checking.check(module(EMPTY)[:-1])
    with pytest.raises(LaunchFailed, match="no function _start") as raised:
        checking.check(b"\0asm\1\0\0\0")
    assert raised.value.hint == "build a command, not a library"


def test_one_that_takes_much_memory_to_compile_is_refused():
    with pytest.raises(LaunchFailed, match="takes more than 200 MiB of memory to compile"):
        checking.check(module(*[EMPTY] * 200_000), memory=200 << 20)


@pytest.mark.parametrize("bound", ["_CPU", "_WAIT"])
def test_one_that_takes_long_to_compile_is_refused(monkeypatch, bound):
    monkeypatch.setattr(checking, bound, (1, 1 << 30))
    began = time.process_time()
    with pytest.raises(LaunchFailed, match="takes too long to compile: more than "):
        checking.check(module(*[ADDS] * 5))
    assert time.process_time() - began < 1
