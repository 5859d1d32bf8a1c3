"""When a quota comes back, as the programs of this field say it, whatever else is in the text."""

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtrun.resets import stated, zone_of

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 10, 5, 23, 0, tzinfo=BERLIN)  # a Monday
HOSTILE = [
    "reset " * 200_000, "resets in 1 " * 100_000, "(reset at (A/" * 60_000, "until 11111111111111" * 9000,
    "resets " + "1" * 1_000_000, "resets " + "mon " * 300_000, "resets_at=" * 100_000, "retry in " + "1h1" * 300_000,
]  # fmt: skip


def at(text, now=NOW, zone=BERLIN):
    instant = stated(text, now.timestamp(), zone)
    return None if instant is None else datetime.fromtimestamp(instant, zone).replace(tzinfo=None).isoformat(" ")


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("Claude AI usage limit reached|1791234000", "2026-10-05 23:00:00"),
        ("Claude AI usage limit reached|1791234000000", "2026-10-05 23:00:00"),
        ('"resets_at":1791234000,"resets_in_seconds":602705', "2026-10-05 23:00:00"),
        ('{"resets_in_seconds": 60}', "2026-10-05 23:01:00"),
        ("resets at 2026-10-09T14:00:00Z", "2026-10-09 16:00:00"),
        ("resets at 2026-10-09T14:00:00.123+02:00", "2026-10-09 14:00:00"),
        ("Your limit will reset at 2026-10-21 18:55:29", "2026-10-21 18:55:29"),
        ("try again in 5 days 22 hours 11 minutes.", "2026-10-11 21:11:00"),
        ("try again in 1 hour and 5 minutes", "2026-10-06 00:05:00"),
        ("try again in 20 minutes", "2026-10-05 23:20:00"),
        ("resets in 3h 12m", "2026-10-06 02:12:00"),
        ("Your quota will reset after 9h29m20s.", "2026-10-06 08:29:20"),
        ("resets 1am", "2026-10-06 01:00:00"),
        ("resets 1am (Europe/Berlin)", "2026-10-06 01:00:00"),
        ("resets 4:50AM (America/New_York)", "2026-10-06 10:50:00"),
        ("resets 11pm (Etc/GMT+5)", "2026-10-06 06:00:00"),
        ("resets 11:30 p.m. (UTC)", "2026-10-06 01:30:00"),
        ("resets 12am", "2026-10-06 00:00:00"),
        ("resets 12pm", "2026-10-06 12:00:00"),
        ("Limits will reset at 9:30 AM.", "2026-10-06 09:30:00"),
        ("try again at 18:30", "2026-10-06 18:30:00"),
        ("resets 11pm", "2026-10-05 23:00:00"),
        ("resets 10:58pm", "2026-10-05 22:58:00"),  # it has only just gone by
        ("resets 10:50pm", "2026-10-06 22:50:00"),
        ("resets Oct 9 at 2pm", "2026-10-09 14:00:00"),
        ("resets Oct 9, 6pm (America/Toronto)", "2026-10-10 00:00:00"),
        ("resets Oct 9", "2026-10-09 00:00:00"),
        ("try again at Oct 27th, 2026 4:59 AM.", "2026-10-27 04:59:00"),
        ("Try again Jan 2, 9am", "2027-01-02 09:00:00"),
        ("Usage will reset when your monthly cycle ends on 10/23/2026.", "2026-10-23 00:00:00"),
        ("resets Mon 12:00am", "2026-10-12 00:00:00"),
        ("resets Wednesday at 3pm", "2026-10-07 15:00:00"),
        ("resets Sun", "2026-10-11 00:00:00"),
        ("wait for the reset\n at  3pm", "2026-10-06 15:00:00"),
    ],
)
def test_table(text, when):
    assert at(text) == when


@pytest.mark.parametrize(
    "text",
    [
        "", "hit your limit", "3pm", "resets", "resets soon", "resets 25:00", "resets 13pm", "resets 0am", "resets 3",
        "resets Feb 30", "resets 3pm (Nowhere/Land)", "resets 3pm (Europe)",
        "try again in 20 parsecs", "try again in", "resets 2026-13-40 10:00", "line 12:30 of the file", "resets 12:99",
    ],
)  # fmt: skip
def test_what_states_nothing(text):
    assert at(text) is None


@pytest.mark.parametrize(
    ("now", "text", "utc"),
    [
        # summer time ends on 2026-10-25 at 3am, begins on 2027-03-28 at 2am
        ((2026, 10, 24, 23), "resets 4am", (2026, 10, 25, 3)),
        ((2026, 10, 24, 23), "resets 2:30am", (2026, 10, 25, 0, 30)),
        ((2027, 3, 27, 23), "resets 4am", (2027, 3, 28, 2)),
        ((2027, 3, 27, 23), "resets 2:30am", (2027, 3, 28, 1, 30)),  # there is no such time: it is an hour later then
        ((2027, 3, 27, 23), "resets in 12h", (2027, 3, 28, 10)),
    ],
)
def test_summer_time(now, text, utc):
    instant = stated(text, datetime(*now, tzinfo=BERLIN).timestamp(), BERLIN)
    assert datetime.fromtimestamp(instant, UTC) == datetime(*utc, tzinfo=UTC)


def test_the_second_of_two_equal_times_is_the_next_one():
    now = datetime(2026, 10, 25, 2, 45, tzinfo=BERLIN)
    assert stated("resets 2:30am", now.timestamp(), BERLIN) == now.replace(minute=30, fold=1).timestamp()


def test_without_a_zone_it_is_that_of_this_process(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        tokyo = datetime(2026, 10, 5, 23, 0, tzinfo=ZoneInfo("Asia/Tokyo"))
        assert stated("resets 1am", tokyo.timestamp()) == tokyo.timestamp() + 7200
        assert stated("resets Oct 9 at 2pm", tokyo.timestamp()) == tokyo.replace(day=9, hour=14).timestamp()
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_zone_of_the_program():
    assert zone_of("Europe/Berlin") == zone_of(":Europe/Berlin") == BERLIN
    assert (zone_of(""), zone_of("Nowhere"), zone_of("CET-1CEST,M3.5.0,M10.5.0/3")) == (None, None, None)


instants = st.integers(1_700_000_000, 1_900_000_000)
zones = st.sampled_from(sorted(name for name in available_timezones() if "/" in name)).map(ZoneInfo)


@given(instants, st.integers(10, 23 * 60), zones)
def test_a_clock_time_with_its_zone_is_read_back(now, minutes, zone):
    due = datetime.fromtimestamp(now + minutes * 60, zone).replace(second=0, microsecond=0)
    text = f"You've hit your limit · resets {due:%I:%M%p} ({zone.key})"
    read = datetime.fromtimestamp(stated(text, now), zone)
    assert (read.hour, read.minute) == (due.hour, due.minute) or read.utcoffset() != due.utcoffset()
    assert now - 300 < read.timestamp() <= due.timestamp()  # the first of two in the hour that comes twice


@given(instants, st.integers(1, 300), zones)
def test_a_date_with_its_zone_is_read_back(now, hours, zone):
    due = datetime.fromtimestamp(now, zone).replace(second=0, microsecond=0, minute=0, fold=0) + timedelta(hours=hours)
    for text in (f"resets {due:%b} {due.day} at {due:%I%p} ({zone.key})", f"resets {due:%Y-%m-%d %H:%M} ({zone.key})"):
        read = stated(text, now)
        assert abs(read - due.timestamp()) <= 3600, text  # 3600: a time that summer time makes twice, or leaves out


@given(st.integers(0, 400), st.integers(0, 23), st.integers(1, 59))
def test_a_duration_is_read_back(days, hours, minutes):
    seconds = days * 86400 + hours * 3600 + minutes * 60
    for text in (
        f"{days} days {hours} hours {minutes} minutes",
        f"{days}d{hours}h{minutes}m",
    ):
        assert stated(f"or try again in {text}.", 1e9) == 1e9 + seconds


VOCABULARY = "resets reset try again in at after on Oct Feb 9 30 31 2026 mon sun 12:30 3pm am ( ) UTC / | - : Z"
words = st.sampled_from(VOCABULARY.split())


@given(st.one_of(st.text(), st.lists(words).map(" ".join), st.lists(words).map("".join)), instants)
def test_no_text_is_an_error(text, now):
    assert stated(text, now, BERLIN) is None or isinstance(stated(text, now, BERLIN), float)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_takes_long(text):
    before = time.process_time()
    stated(text, NOW.timestamp(), BERLIN)
    assert time.process_time() - before < 0.5  # measured: 2 ms
