"""What is on the demo's board: title, body and further options of `gtrun board add`, in the order of their numbers."""

ISSUES = [
    (
        "The year 1900 was no leap year",
        """\
`is_leap` in `when.py` says yes too often.

    >>> is_leap(1900)
    False
    >>> is_leap(1999)
    False
    >>> is_leap(2000)
    True

check: `checks.Leap`
""",
        ["--priority=1", "--label=bug"],
    ),
    (
        "On a birthday, people are a year too young",
        """\
`age` in `when.py` counts one day late.

    >>> age(date(1990, 5, 17), date(2020, 5, 16))
    29
    >>> age(date(1990, 5, 17), date(2020, 5, 17))
    30

check: `checks.Age`
""",
        ["--priority=2", "--label=bug"],
    ),
    (
        "The year has no fifth quarter",
        """\
`quarter` in `when.py` is wrong for most months.

    >>> quarter(1)
    1
    >>> quarter(12)
    4

check: `checks.Quarter`
""",
        ["--priority=2", "--label=bug"],
    ),
]
