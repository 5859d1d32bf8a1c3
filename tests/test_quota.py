"""What a quota state says, whatever is in it."""

import re
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtrun.quota import HORIZON, DarkUntil, Quota, QuotaFile, dark_until, instant

NOW = datetime(2026, 11, 30, 18, tzinfo=UTC).timestamp()
ZONES = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))


def used_up(resets_at, source=""):
    return QuotaFile(quota=Quota(exhausted=True, resets_at=resets_at, source=source))


@pytest.mark.parametrize(
    "file",
    [
        QuotaFile(),
        QuotaFile(quota=Quota(exhausted=False)),
        QuotaFile(quota=Quota(exhausted=False, resets_at="nonsense")),
        used_up("2026-11-30T18:00:00Z"),  # this very instant
        used_up("2026-11-30T17:59:59Z"),
        used_up("2026-11-30T18:59:00+01:00"),
        used_up("0001-01-01T00:00:00+14:00"),
    ],
)
def test_the_agent_is_ready(file):
    assert dark_until(file, NOW) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-30T18:00:01Z", 1),
        ("2026-11-30T18:00:00.500000+00:00", 0.5),
        ("2026-11-30T12:30:00-06:00", 1800),
        ("2027-01-01T18:00:00Z", HORIZON),
    ],
)
def test_the_agent_is_dark(text, seconds):
    assert dark_until(used_up(text, "a run"), NOW) == DarkUntil(NOW + seconds, "a run")


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (QuotaFile(problem="cannot read it"), "cannot read it"),
        (used_up(None), "exhausted, and no resets_at"),
        (used_up(""), "exhausted, and no resets_at"),
        (used_up("1am"), "resets_at is '1am', which is no instant (RFC 3339)"),
        (used_up("x" * 5000), "resets_at is '" + "x" * 40 + "', which is no instant (RFC 3339)"),
        (used_up("2026-11-30T19:00:00"), "resets_at is '2026-11-30T19:00:00', without its zone"),
        (used_up("2027-01-01T18:00:01Z"), "resets_at is 2027-01-01T18:00:01Z, more than 32 days from now"),
        (used_up("9999-12-31T23:59:59-23:59"), "resets_at is 9999-12-31T23:59:59-23:59, more than 32 days from now"),
    ],
)
def test_it_cannot_be_told(file, why):
    with pytest.raises(ValueError, match=re.escape(why)) as caught:
        dark_until(file, NOW)
    assert str(caught.value) == why


@given(st.datetimes(timezones=ZONES), st.floats(-1e9, 1e10))
def test_an_instant_is_dark_before_it_ready_after_it_and_absurd_beyond_the_horizon(when, now):
    file, at = used_up(when.isoformat()), when.timestamp()
    if at > now + HORIZON:
        with pytest.raises(ValueError, match="more than 32 days from now"):
            dark_until(file, now)
    else:
        assert dark_until(file, now) == (DarkUntil(at, "") if at > now else None)


@given(st.datetimes())
def test_no_zone_is_no_instant(when):
    with pytest.raises(ValueError, match="without its zone"):
        instant(when.isoformat())


@given(st.text())
def test_any_text_is_an_instant_or_one_short_line(text):
    try:
        said = str(instant(text))
    except ValueError as error:
        said = str(error)
    assert len(said) < 300
    assert "\n" not in said


@given(st.builds(Quota, exhausted=st.booleans(), resets_at=st.none() | st.text(), source=st.text()))
def test_a_state_comes_back_from_its_bytes(quota):
    assert msgspec.json.decode(msgspec.json.encode(quota), type=Quota) == quota
