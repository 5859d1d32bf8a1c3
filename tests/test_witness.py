"""The messages of a dispatch: what is written, what is read, and that any text survives both."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gtrun import witness
from gtrun.witness import DispatchAttempt, DispatchFail, DispatchOk, WrongMessageError

# every code point there is, surrogates too, and what the format itself is made of more often than chance has it
ANY = st.text(
    st.one_of(st.characters(), st.characters(categories=["Cs"]), st.sampled_from("\\xuUe0a :\n\r\t\x85\u2028"))
)
MESSAGES = st.one_of(
    st.builds(DispatchAttempt, ANY, ANY), st.builds(DispatchOk, ANY, ANY), st.builds(DispatchFail, ANY, ANY, ANY)
)


def test_what_is_written():
    fail = DispatchFail("alice", "octo/app#142", "refused: \x1b[31m\nBead: 7")
    assert witness.subject_of(DispatchAttempt("alice", "142")) == "DISPATCH_ATTEMPT alice"
    assert witness.body_of(DispatchAttempt("alice", "142")) == "Bead: 142"
    assert witness.subject_of(DispatchOk("alice", "142")) == "DISPATCH_OK alice"
    assert witness.body_of(DispatchOk("alice", "142")) == "Bead: 142"
    assert witness.subject_of(fail) == "DISPATCH_FAIL alice"
    assert witness.body_of(fail) == "Bead: octo/app#142\nReason: refused: \\x1b[31m\\x0aBead: 7"


@given(MESSAGES)
@example(DispatchFail("", "", ""))
@example(DispatchFail("\\e", "\\", "\\x0a"))
@example(DispatchFail(" a b ", "\u3000", "\ud800"))
@example(DispatchOk("a\nBead: 2", "1\nBead: 2"))
def test_any_content_comes_back(message):
    subject, body = witness.subject_of(message), witness.body_of(message)
    assert witness.parse(subject, body) == message
    # as a mail or a terminal may hand it on
    assert witness.parse(f"  {subject}\r\n", body.replace("\n", " \r\n") + "\r\n") == message
    assert len(subject.splitlines()) == 1
    assert len(body.splitlines()) == (2 if isinstance(message, DispatchFail) else 1)
    f"{subject}{body}".encode()  # no surrogate is left


@given(MESSAGES)
def test_each_parser_takes_its_own_kind_alone(message):
    parsers = {
        DispatchAttempt: witness.parse_dispatch_attempt,
        DispatchOk: witness.parse_dispatch_ok,
        DispatchFail: witness.parse_dispatch_fail,
    }
    subject, body = witness.subject_of(message), witness.body_of(message)
    assert parsers.pop(type(message))(subject, body) == message
    for parser in parsers.values():
        with pytest.raises(WrongMessageError, match="expected a subject like 'DISPATCH_"):
            parser(subject, body)


def test_what_a_hand_wrote():
    body = "Seen: by me\nBead: 7\n\nBead:142 \nReason: no\nReason:  C:\\path is full \nnot a field\nbead: 8"
    assert witness.parse("DISPATCH_FAIL\talice", body) == DispatchFail("alice", "142", "C:\\path is full")
    assert witness.parse("DISPATCH_FAIL alice", "Bead: 1") == DispatchFail("alice", "1", "")
    assert witness.parse("DISPATCH_OK alice", "Bead: 1\nReason: none") == DispatchOk("alice", "1")
    assert witness.parse("DISPATCH_OK alice", "Bead: \\UFFFFFFFF\\q\\") == DispatchOk("alice", "\\UFFFFFFFF\\q\\")


@pytest.mark.parametrize("body", ["", "Bead:", "Bead: \t", "Reason: Bead: 1", "bead: 1", "Bead 1", "Bead: 1\nBead:"])
def test_without_a_bead_it_is_no_message(body):
    with pytest.raises(WrongMessageError, match="expected a line 'Bead: ISSUE' in the body of DISPATCH_OK"):
        witness.parse("DISPATCH_OK alice", body)


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "DISPATCH_OK",
        "DISPATCH_OK ",
        "DISPATCH_OK a b",
        "dispatch_ok a",
        "DISPATCH_OKAY a",
        "DISPATCH a",
        "x \x1b[m",
    ],
)
def test_a_bad_subject_is_no_message(subject):
    with pytest.raises(WrongMessageError, match="expected a subject like 'DISPATCH_OK AGENT', found") as caught:
        witness.parse(subject, "Bead: 1")
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Dispatched 0 of 0 planned\n", 0),
        ("started task-1.service on me, run abc\nDispatched 12 of 13 planned; 1 more ready, which wait\n", 12),
        ("Dispatched 5 of 5 planned\nDispatched 2 of 2 planned", 2),
        ("\u2713 Dispatched 2, failed 0", 2),
        ("Dispatched 1 of 1 planned\ngtrun: outbox: a word\n\n", 1),
        ("", 0),
        ("Dispatched none", 0),
        (f"Dispatched {'9' * 5000}", 0),
        ("issue 4 Dispatched 9 was not", 0),
    ],
)
def test_how_many_a_sweep_started(text, count):
    assert witness.parse_scheduler_run_dispatched(text) == count
