"""The run record: facts in their order, torn, damaged and unknown ones, and what becomes of old files."""

import errno
import fcntl
import os
import stat
import threading
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtrun.errors import StateError
from gtrun.markers import Kind
from gtrun.model import Ending, Issue, Limits, Notice, ResolvedRun, Result, Usage
from gtrun.names import IssueKey, RunId, Token, UnitName
from gtrun.state import record as records
from gtrun.state.facts import (
    Begun,
    Disposed,
    Ended,
    Fact,
    GaveUp,
    HandedOver,
    Noted,
    Noticed,
    Owed,
    Posted,
    Resolved,
    StopAsked,
    Told,
    Updated,
)
from gtrun.state.record import CorruptRecord, Record

RUN = RunId("0123456789abcdef" * 2)


def resolved(token: str = "a" * 32, **changes) -> ResolvedRun:
    run = ResolvedRun(
        token=Token(token), agent="me", rig="here", issue=Issue(key=IssueKey("7"), title="Mend the roof 🏠"),
        unit=UnitName("task-7.service"), identifier="task-7.aaaaaaaa", board="/b/board.db", terminal_labels=("done",),
        terminal_glyphs=("✅",), backend="sh", command=("sh", "-c", "true\n"), prompt="Do it\n\n", workdir="/",
        environment={"A": "b\nc"}, path=("/bin",), time_limit=None, stop_timeout=30.0, limits=Limits(),
        keep=1000.0, dispatched_at=1.5, dispatched_by="alice",
    )  # fmt: skip
    return msgspec.structs.replace(run, **changes)


ENDING = Ending(result=Result.FAILED, exit_code=3, duration=1.25, usage=Usage(cpu=0.5))
TOLD = Noticed(Notice.RUN_ENDED)
WHOLE: list[Fact] = [
    Begun(RUN, 2.0), Noted("the board was not asked"), Owed(Kind.STARTED), Posted(Kind.STARTED),
    StopAsked("gtrun stop (bob)"), Ended(ENDING, 3.0), Posted(Kind.FINISHED), TOLD,
]  # fmt: skip


@pytest.fixture
def state(tmp_path):
    return str(tmp_path / "state")


@pytest.fixture
def record(state):
    with records.create(state, resolved()) as made:
        yield made


def lines(facts: list[Fact]) -> bytes:
    return b"".join(msgspec.json.encode(fact) + b"\n" for fact in facts)


def fold(data: bytes) -> Told:
    return records.fold(Path("x.jsonl"), data)


# Folding

facts = st.one_of(
    st.builds(Begun, st.just(RUN), st.floats(0, 2e9)),
    st.builds(Noted, st.text()),
    st.builds(GaveUp, st.text()),
    st.builds(Disposed, st.text()),
    st.builds(StopAsked, st.text()),
    st.builds(Owed, st.sampled_from(Kind)),
    st.builds(Posted, st.sampled_from(Kind)),
    st.builds(Noticed, st.sampled_from(Notice)),
    st.builds(Ended, st.just(ENDING), st.floats(0, 2e9)),
)


@given(st.lists(facts, max_size=8), st.integers(0, 5))
def test_every_prefix_of_facts_is_a_state(some, blank):
    told = Told(fold(lines([Resolved(resolved())])).run)
    for count in range(len(some) + 1):
        assert fold(lines([Resolved(resolved()), *some[:count]]) + b"\n" * blank) == told
        if count < len(some):
            told.learn(some[count])


@given(st.lists(facts, min_size=1, max_size=4), st.data())
@settings(max_examples=50)
def test_torn_tail_never_became_true(some, data):
    whole = lines([Resolved(resolved()), *some])
    last = len(lines(some[-1:]))
    kept = data.draw(st.integers(0, last - 2))
    torn = whole[: len(whole) - last + kept]
    assert fold(torn + b"\n" * 10) == fold(lines([Resolved(resolved()), *some[:-1]]))


def test_every_byte_of_a_torn_tail(record):
    """The next fact after each possible tear is read, and so is each one before."""
    record.append(*WHOLE[:5])
    before = record.path.read_bytes()
    record.append(WHOLE[5])
    after = record.path.read_bytes()
    start, end = len(before.rstrip(b"\n")) + 1, len(after.rstrip(b"\n"))
    record.close()
    for kept in range(start, end):
        record.path.write_bytes(after[:kept] + before[kept:])
        with Record(record.path) as again:
            assert again.run.ending is None
            assert again.run.stop_asked_by == "gtrun stop (bob)"
            again.append(WHOLE[5])
        assert records.read(record.path).ending == ENDING


def test_whole_life(record):
    for fact in WHOLE:
        record.append(fact)
    run = record.run
    assert (run.run, run.begun_at, run.notes, run.stop_asked_by) == (
        RUN,
        2.0,
        ("the board was not asked",),
        "gtrun stop (bob)",
    )
    assert (run.ending, run.ended_at, run.owed, run.posted) == (
        ENDING,
        3.0,
        ("started", "finished"),
        ("started", "finished"),
    )
    assert record.is_settled
    assert records.read(record.path) == run


def test_finished_is_owed_exactly_if_started_is():
    assert fold(lines([Resolved(resolved()), Begun(RUN, 1), Ended(ENDING, 2)])).run.owed == ()
    owed = fold(lines([Resolved(resolved()), Begun(RUN, 1), Owed(Kind.STARTED), Ended(ENDING, 2)])).run.owed
    assert owed == ("started", "finished")


def test_fact_of_a_newer_gtrun_is_passed_over(record):
    record.append(Begun(RUN, 2.0))
    record.close()
    data = record.path.read_bytes()
    newer = b'{"type":"quota-noted","until":"2026-12-01"}\n'
    end = len(data.rstrip(b"\n")) + 1
    record.path.write_bytes(data[:end] + newer + data[end + len(newer) :])
    with Record(record.path) as again:
        assert again.run.begun_at == 2.0
        again.append(Ended(ENDING, 3.0))
    assert records.read(record.path).ending == ENDING
    assert newer in record.path.read_bytes()


DAMAGED = [
    b"", b"\n" * 100, b"\0" * 100, b"garbage\n", b"{}\n", lines([Begun(RUN, 1.0)]),
    lines([Resolved(resolved())])[:-20], b"\xff\xfe" + lines([Resolved(resolved())]), b"[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("data", DAMAGED, ids=lambda data: repr(data[:12]))
def test_damaged_record_is_set_aside_with_its_bytes(data, record):
    record.close()
    record.path.write_bytes(data)
    with pytest.raises(CorruptRecord, match=r"the run record .*\.jsonl is damaged") as damage:
        Record(record.path)
    descriptor = os.open(record.path, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the one who found out holds no lock any more
    os.close(descriptor)
    said = records.set_aside(record.path, damage.value)
    assert Path(said.partition("; its bytes are kept in ")[2]).read_bytes() == data
    assert not record.path.exists()
    assert records.open_records(str(record.path.parents[2])) == []


def test_what_is_set_aside_never_overwrites(record):
    record.close()
    for data in (b"first", b"second"):
        record.path.write_bytes(data)
        records.set_aside(record.path, CorruptRecord("damaged"))
    said = records.set_aside(record.path, CorruptRecord("damaged"))  # another one was faster
    assert said == "damaged and cannot be moved out of the way: No such file or directory"
    kept = sorted(path.read_bytes() for path in record.path.parent.iterdir())
    assert kept == [b"first", b"second"]


# Writing


def test_record_is_private_and_has_its_reserve(record):
    assert stat.S_IMODE(record.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.path.parent.stat().st_mode) == 0o700
    size = record.path.stat().st_size
    assert size == len(lines([Resolved(resolved())])) + records.RESERVE
    blocks = record.path.stat().st_blocks * 512
    assert blocks >= size
    record.append(*WHOLE)
    assert record.path.stat().st_size == size
    assert [path.name for path in record.path.parent.iterdir()] == [record.path.name]


def test_facts_beyond_the_reserve_are_written_as_well(record):
    for number in range(records.RESERVE // 1000 + 5):
        record.append(Noted(f"{number} " + "x" * 1000))
    assert records.read(record.path).notes[-1].startswith(f"{records.RESERVE // 1000 + 4} ")


def test_append_that_fails_changes_nothing(record, monkeypatch):
    record.append(Begun(RUN, 2.0))
    real = os.pwrite

    def full(descriptor, data, offset):
        if len(data) > 10:
            return real(descriptor, data[:10], offset)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StateError, match="No space left on device"):
        record.append(Ended(ENDING, 3.0))
    monkeypatch.undo()
    assert record.run.ending is None
    assert records.read(record.path).ending is None
    record.append(Owed(Kind.STARTED))
    assert (records.read(record.path).owed, records.read(record.path).ending) == (("started",), None)


def test_record_is_locked_from_its_birth(record):
    descriptor = os.open(record.path, os.O_RDWR)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        record.close()
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)


def test_link_is_not_followed(record, tmp_path):
    record.close()
    elsewhere = tmp_path / "elsewhere"
    record.path.rename(elsewhere)
    record.path.symlink_to(elsewhere)
    with pytest.raises(StateError, match="cannot open the run record"):
        Record(record.path)
    with pytest.raises(StateError, match="cannot read the run record"):
        records.read(record.path)


# History


def test_only_what_is_settled_is_history(record):
    for fact in WHOLE:
        assert not record.close_if_settled()
        record.append(fact)
    prompt = records.prompt_file(record.path)
    prompt.write_text("Do it")
    assert record.close_if_settled()
    assert not prompt.exists()
    assert not record.path.exists()
    assert record.close_if_settled()  # twice is harmless


def old(path: Path, seconds: float) -> None:
    past = time.time() - seconds
    os.utime(path, (past, past))


def test_only_old_history_is_pruned(state):
    kept, gone = [], []
    for number, (is_settled, age) in enumerate([(True, 2000), (True, 500), (False, 2000), (False, 500)]):
        with records.create(state, resolved(token=f"{number:032x}")) as one:
            one.append(*(WHOLE if is_settled else WHOLE[:-1]))
            old(one.path, age)
            one.close_if_settled()
        (gone if is_settled and age > 1000 else kept).append(one.path.name)
    folder = records.open_folder(state)
    aside = folder / "x.jsonl.corrupt-1"
    aside.write_text("kept")
    old(aside, 10_000)
    for name, age in ((".b.jsonl.77.tmp", 2000), (".c.jsonl.78.tmp", 5)):
        (folder / name).write_text("half")
        old(folder / name, age)
    records.prune(state, 1000)
    left = {path.name for path in [*folder.iterdir(), *records.closed_folder(state).iterdir()]}
    assert left == {*kept, "x.jsonl.corrupt-1", ".c.jsonl.78.tmp"}
    assert len(gone) == 1


def test_a_plugins_bytes_lie_beside_its_record_as_long_as_that_is_open(state):
    with records.create(state, resolved()) as record:
        records.keep_payload(record, b"\0asm")
        payload = records.payload_file(record.path)
        assert payload.stat().st_mode & 0o777 == 0o400
        assert records.read_payload(record.path) == b"\0asm"
        assert records.open_records(state) == [record.path]
        record.append(*WHOLE)
        assert record.close_if_settled()
    assert not payload.exists()
    with pytest.raises(StateError, match="cannot read the plugin"):
        records.read_payload(record.path)


def test_a_plugins_bytes_go_with_a_record_that_is_taken_back(state, record):
    records.keep_payload(record, b"\0asm")
    record.discard()
    assert list(records.open_folder(state).iterdir()) == []


def test_a_link_in_the_place_of_a_plugin_is_not_followed(record, tmp_path):
    (tmp_path / "other").write_bytes(b"other")
    records.payload_file(record.path).symlink_to(tmp_path / "other")
    with pytest.raises(StateError, match="cannot read the plugin"):
        records.read_payload(record.path)
    records.keep_payload(record, b"\0asm")
    assert (tmp_path / "other").read_bytes() == b"other"


def test_a_plugins_bytes_without_a_record_are_pruned_once_they_are_old(state, record):
    records.keep_payload(record, b"x")
    folder = records.open_folder(state)
    for name, age in ((records.payload_file(record.path).name, 2000), ("b.plugin", 2000), ("c.plugin", 5)):
        (folder / name).touch()
        old(folder / name, age)
    records.prune(state, 1000)
    assert {path.name for path in folder.glob("*.plugin")} == {records.payload_file(record.path).name, "c.plugin"}


def test_runs_of_one_issue_oldest_first(state):
    for number in range(3):
        run = resolved(token=f"{number:032x}", issue=Issue(key=IssueKey("7" if number else "8"), title="x"))
        with records.create(state, run) as one:
            old(one.path, 100 - number)
    damaged = records.open_folder(state) / ("f" * 32 + ".jsonl")
    damaged.write_text("garbage\n")
    found = list(records.runs(state, IssueKey("7")))
    tokens = [run.resolved.token for _, run in found if not isinstance(run, CorruptRecord)]
    assert tokens == [f"{1:032x}", f"{2:032x}"]
    assert [path for path, run in found if isinstance(run, CorruptRecord)] == [damaged]


def test_of_other_issues_only_the_head_is_read(state, monkeypatch):
    """Also if an issue's text looks like a head, and if one key is the beginning or the end of another."""
    keys = ["7", "77", "8", "owner/repo#7"]
    for number, key in enumerate(keys):
        title = '"issue":{"key":"7"'
        records.create(state, resolved(f"{number:032x}", issue=Issue(key=IssueKey(key), title=title))).close()
    odd = resolved("e" * 32, agent='a "quoted" one', issue=Issue(key=IssueKey("8"), title="x"))
    records.create(state, odd).close()  # its head does not tell, so all of it is read
    fifo = records.open_folder(state) / ("f" * 32 + ".jsonl")
    os.mkfifo(fifo, 0o600)
    opened = []
    reads = records.read
    monkeypatch.setattr(records, "read", lambda path: opened.append(path.stem[0:1] + path.stem[-1:]) or reads(path))
    for number, key in enumerate(keys):
        opened.clear()
        told = {path.stem: run for path, run in records.runs(state, IssueKey(key))}
        assert sorted(opened) == sorted([f"0{number}", "ee", "ff"])
        damaged = told.pop(fifo.stem)
        assert "not a regular file" in str(damaged)
        wanted = {f"{number:032x}", "e" * 32} if key == "8" else {f"{number:032x}"}
        assert set(told) == wanted


def test_no_records_at_all(state):
    assert records.open_records(state) == []
    assert list(records.runs(state)) == []
    records.prune(state, 0)


def test_a_record_that_is_closed_while_others_are_read_is_told(state):
    for token in ("a" * 32, "b" * 32):
        with records.create(state, resolved(token)) as made:
            made.append(Begun(RUN, 2.0), Ended(ENDING, 3.0), TOLD)
    told = records.runs(state)
    first, _ = next(told)
    (other,) = {path for path in records.open_records(state) if path != first}
    with Record(other) as record:
        assert record.close_if_settled()
    assert [path.name for path, _ in told] == [other.name]


@pytest.mark.parametrize("gone", ["discarded", "closed"])
def test_a_record_that_goes_while_its_lock_is_waited_for_is_not_there(state, gone):
    """Who waited for it would write about a run that was never started, or that is history."""
    made = records.create(state, resolved())
    made.append(Ended(ENDING, 3.0), TOLD)
    answers = []

    def wait() -> None:
        with pytest.raises(FileNotFoundError) as raised:
            Record(made.path)
        answers.append(raised)

    waiting = threading.Thread(target=wait)
    waiting.start()
    inode = made.path.stat().st_ino
    deadline = time.monotonic() + 20
    while not any(
        " -> FLOCK" in line and f":{inode} " in line for line in Path("/proc/locks").read_text().splitlines()
    ):
        assert time.monotonic() < deadline, "nobody waits for the lock"
    if gone == "discarded":
        made.discard()
    else:
        made.close_if_settled()
        made.close()
    waiting.join(20)
    assert answers


def test_a_record_in_use_is_not_waited_for(record):
    with pytest.raises(records.RecordInUse):
        Record(record.path, wait=False)


def test_facts_that_are_nested_too_deeply_are_none(record):
    deep = b'{"type":"noted","text":"x","more":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with record.path.open("ab") as file:
        file.write(deep + b"\n")
    assert records.read(record.path).notes == ()
    record.path.write_bytes(deep)
    with pytest.raises(CorruptRecord):
        records.read(record.path)


def test_one_run_of_two_releases(state):
    with records.create(state, resolved()) as record:
        record.append(Begun(RUN, 2.0, "/g/releases/a"))
        assert (record.run.begun_in, record.run.release, record.updated_in) == ("/g/releases/a", "/g/releases/a", None)
        record.append(Updated(RUN, "/g/releases/b"), HandedOver(RUN))
        assert (record.run.begun_in, record.run.release) == ("/g/releases/a", "/g/releases/b")
        assert (record.updated_in, record.handed_over_in) == (RUN, RUN)


def test_a_record_of_the_first_version_is_read(tmp_path):
    """What an older dispatcher wrote before a field was there, and what a newer release will write one day."""
    run = msgspec.to_builtins(resolved())
    first = {key: run[key] for key in (
        "token", "agent", "rig", "issue", "unit", "identifier", "board", "terminal_labels", "terminal_glyphs",
        "backend", "command", "prompt", "workdir", "environment", "path", "time_limit", "stop_timeout", "limits",
        "keep", "dispatched_at", "dispatched_by",
    )}  # fmt: skip
    facts = [
        {"type": "resolved", "run": first}, {"type": "begun", "run": RUN, "at": 2.0},
        {"type": "unheard-of", "x": 1}, {"type": "noted", "text": "a", "more": 1},
    ]  # fmt: skip
    told = records.fold(tmp_path, b"".join(msgspec.json.encode(fact) + b"\n" for fact in facts))
    assert (told.run.resolved, told.run.begun_at, told.run.notes) == (resolved(), 2.0, ("a",))
