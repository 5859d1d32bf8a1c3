"""A module within its bounds: run by a process of its own, as in a unit, since it has this one's standard output."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from wasmtime import wat2wasm

import gtrun
from gtrun.errors import LaunchFailed
from gtrun.plugins import wasi

EXAMPLE = Path(gtrun.__file__).parent / "plugins/examples/stale.wat"
WASI = '(import "wasi_snapshot_preview1"'
EXITS = f'(module {WASI} "proc_exit" (func $exit (param i32))) (memory (export "memory") 1)'
RUN = """
import json, sys
from gtrun.plugins import wasi
told = json.loads(sys.argv[1])
outcome = wasi.execute(sys.stdin.buffer.read(), **told)
print(json.dumps([outcome.code, outcome.reason, outcome.result]), file=sys.stderr)
"""


def execute(text, *, seconds=20.0, **more):
    """What it printed, its exit code, the reason and the result."""
    told = {"arguments": ["x"], "environment": {}, "folders": [], "memory_max": 16 << 20, "fuel": None, **more}
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps({**told, "seconds": seconds})],
        input=bytes(wat2wasm(text)), capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout.decode(), *json.loads(done.stderr.decode().splitlines()[-1])


def starts(code, more=""):
    return f'{EXITS} {more} (func (export "_start") {code}))'


def test_its_exit_code_is_its_own():
    assert execute(starts("")) == ("", 0, "", None)
    assert execute(starts("(call $exit (i32.const 3))")) == ("", 3, "", None)


def test_an_exit_code_that_there_is_not():
    _, code, reason, result = execute(starts("(call $exit (i32.const 300))"))
    assert (code, result) == (wasi.TRAPPED, "failed")
    assert "invalid exit status" in reason


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("unreachable", "trap: wasm `unreachable` instruction executed"),
        ("(drop (i32.div_u (i32.const 1) (i32.const 0)))", "trap: integer divide by zero"),
        ("(drop (i32.load (i32.const 9999999)))", "trap: out of bounds memory access"),
        ("(call $again)", "trap: call stack exhausted"),
    ],
)
def test_a_trap_is_said_by_its_name(code, said):
    printed, status, reason, result = execute(starts(code, "(func $again (call $again))"))
    assert (printed, status, result) == ("", wasi.TRAPPED, "failed")
    assert reason == f"{said}, with 64K of memory, of 16M that it may have"


def test_the_epoch_ends_what_never_ends_by_itself():
    _, code, reason, result = execute(starts("(loop $again (br $again))"), seconds=0.3)
    assert (code, result) == (wasi.TIMED_OUT, "timeout")
    assert reason.startswith("time limit reached")


def test_the_time_may_be_up_before_it_is_compiled():
    text = starts("(loop $again (br $again))", f"(func (local i32) {'(local.set 0 (i32.const 7))' * 50_000})")
    assert execute(text, seconds=0.01)[1:] == (
        wasi.TIMED_OUT,
        "time limit reached, with 64K of memory, of 16M that it may have",
        "timeout",
    )


def test_a_start_function_is_bounded_as_well():
    text = '(module (func $f (loop $again (br $again))) (start $f) (func (export "_start")))'
    _, code, reason, result = execute(text, seconds=0.3)
    assert (code, result) == (wasi.TIMED_OUT, "timeout")
    assert reason.startswith("time limit reached")


def test_fuel_is_the_same_each_time():
    text = starts("(loop $again (br $again))")
    told = [execute(text, fuel=10_000) for _ in range(2)]
    assert told[0] == told[1]
    assert told[0][2].startswith("it used up its fuel of 10000")
    assert execute(starts(""), fuel=10_000)[1] == 0


def test_memory_does_not_grow_beyond_what_it_may_have():
    grows = "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))"
    _, code, reason, _ = execute(starts(f"{grows} (call $exit (i32.const 7))"))
    assert (code, reason) == (7, "with 16M of memory, of 16M that it may have")
    _, code, reason, result = execute('(module (memory 257) (func (export "_start")))')
    assert (code, result) == (wasi.TRAPPED, "failed")
    assert reason.startswith("memory minimum size of 257 pages exceeds memory limits")


def test_tables_are_no_way_around_that():
    grows = "(loop $again (br_if $again (i32.ne (table.grow 0 (ref.null func) (i32.const 4096)) (i32.const -1))))"
    ends = f"{grows} (call $exit (i32.eq (table.size 0) (i32.const 262144)))"
    assert execute(starts(ends, "(table 0 funcref)"))[1] == 1
    _, code, reason, result = execute(starts("", "(table 0 funcref)" * 5))
    assert (code, result) == (wasi.TRAPPED, "failed")
    assert reason.startswith("resource limit exceeded: table count too high at 5")


def test_the_example_names_what_is_stale_and_nothing_else(tmp_path):
    for number in range(1600):  # more than one reading of the folder
        (tmp_path / f"a file with a name of some length {number}").touch()
        if number % 2:
            os.utime(tmp_path / f"a file with a name of some length {number}", (0, 0))
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/etc/hostname")
    os.utime(tmp_path / "folder", (0, 0))
    text, place = EXAMPLE.read_text(), [[str(tmp_path), "/in", False]]
    printed, code, reason, _ = execute(text, arguments=["stale", "30"], folders=place)
    assert (code, reason) == (1, "")
    expected = {f"/in/a file with a name of some length {number}" for number in range(1, 1600, 2)}
    assert sorted(printed.splitlines()) == sorted(expected)
    assert execute(text, arguments=["stale"], folders=place)[:2] == (printed, 1)
    (tmp_path / "new").mkdir()
    assert execute(text, folders=[[str(tmp_path / "new"), "/in", False]])[:2] == ("", 0)
    for days in ("", "x", "-1", "1e3", "99999999"):
        assert execute(text, arguments=["stale", days], folders=place)[:2] == ("", 2), days


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(module)", "no function _start"),
        ('(module (memory (export "_start") 1))', "no function _start"),
        ('(module (func (export "_start") (param i32)))', "no function _start"),
        ('(module (func (export "_start") (result i32) (i32.const 1)))', "no function _start"),
        ('(module (import "env" "f\\1b" (func)) (func (export "_start")))', r"imports env\.f\\x1b, and only"),
        ('(module (import "wasi_unstable" "f" (func)) (func (export "_start")))', r"imports wasi_unstable\.f"),
        (f'(module {WASI} "f" (func)) (func (export "_start")))', "cannot be linked: unknown import"),
        (f'(module {WASI} "proc_exit" (func)) (func (export "_start")))', "cannot be linked: types incompatible"),
        ('(module (memory 1 1 shared) (func (export "_start")))', "no valid WebAssembly module"),
    ],
)
def test_what_cannot_be_run_is_refused(text, why):
    with pytest.raises(LaunchFailed, match=why):
        wasi.check(bytes(wat2wasm(text)))


def test_every_truncation_of_a_module_is_refused():
    data = bytes(wat2wasm(EXAMPLE.read_text()))
    wasi.check(data)
    for length in (*range(8, 200, 7), *range(200, len(data) - 40, 97)):
        with pytest.raises(LaunchFailed):
            wasi.check(data[:length])
