"""Durations and sizes are read as systemd reads them, and what cannot be meant is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtrun.measures import human_bytes, human_seconds, left_of, seconds, size


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("90s", 90), ("20m", 1200), ("20min", 1200), ("2h", 7200), ("30d", 2_592_000), ("250ms", 0.25)),
        *(
            ("1h 30m", 5400),
            ("1h30m", 5400),
            ("1.5h", 5400),
            ("1m 1m", 120),
            ("0.5s", 0.5),
            ("1d 2h 3m 4s 5ms", 93784.005),
        ),
    ],
)
def test_durations(text, value):
    assert seconds(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "90",
            "s",
            "0s",
            "0h 0m",
            "-1s",
            "+1s",
            "1 0s",
            "1h 3 0m",
            "1h30",
            "90S",
            "2 hours",
            "1w",
            "1e3s",
            "infinity",
        ),
        *(
            "1,5h",
            ".5h",
            "1.h",
            "1..5h",
            "1h;",
            "1h\0",
            "\uff19\uff10s",
            "90\uff53",
            "9" * 400 + "d",
            "99999999999999999999h",
            "2h!",
        ),
    ],
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="expected a duration"):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(
            ("1", 1),
            ("812K", 812 * 1024),
            ("512M", 512 << 20),
            ("4G", 4 << 30),
            ("1.5G", 3 << 29),
            ("2T", 2 << 40),
        ),
        ("0.5K", 512),
    ],
)
def test_sizes(text, value):
    assert size(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "G", "0", "0G", "0.5", "-1G", "4GB", "4GiB", "4g", "4 G", " 4G", "4G\n", "1e9", "\uff14G", "50%",
     "infinity", "9" * 400, "9" * 5000, "9999999999T"],
)  # fmt: skip
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="expected a size"):
        size(text)


@given(st.integers(1, 10**6), st.sampled_from(["ms", "s", "m", "min", "h", "d"]))
def test_a_duration_is_read_the_same_with_spaces(count, unit):
    assert seconds(f"{count}{unit} {count}{unit}") == seconds(f"{count}{unit}{count}{unit}")


@given(st.text(st.sampled_from("0123456789.smhdin KMGT\n")))
def test_any_text_gives_a_positive_value_or_a_value_error(text):
    for read in seconds, size:
        try:
            value = read(text)
        except ValueError:
            continue
        assert value > 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *(
            (0, "0s"),
            (0.424, "0.42s"),
            (2, "2s"),
            (12.4, "12s"),
            (59.6, "1m 0s"),
            (200, "3m 20s"),
            (3599.6, "1h 0m"),
        ),
        *((7500, "2h 5m"), (86400, "1d 0h"), (90_000, "1d 1h")),
    ],
)
def test_durations_for_people(value, text):
    assert human_seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0B"),
        (812, "812B"),
        (812 << 10, "812K"),
        (1434 << 20, "1.4G"),
        (5 << 40, "5.0T"),
        (1 << 20, "1.0M"),
    ],
)
def test_sizes_for_people(value, text):
    assert human_bytes(value) == text


@pytest.mark.parametrize(("ago", "left"), [(0, 10), (4, 6), (10, 0), (11, 0), (-3, 10), (-10, 10), (-11, 0), (-1e9, 0)])
def test_what_is_left_of_a_wait(ago, left):
    assert left_of(10.0, 1000.0 - ago, 1000.0) == left


@given(st.floats(0.001, 1e6), st.floats(-1e7, 1e7))
def test_nobody_waits_for_longer_than_a_wait_however_wrong_the_clock_was(wait, since):
    left = left_of(wait, since, 0.0)
    assert 0 <= left <= wait
    assert not left or -wait < since <= wait
