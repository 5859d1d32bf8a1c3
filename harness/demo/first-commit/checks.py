"""What when.py promises. Run it with: python3 -m unittest checks."""

import unittest
from datetime import date

from when import age, is_leap, quarter


class Age(unittest.TestCase):
    def test_grows_on_the_birthday(self) -> None:
        born = date(1990, 5, 17)
        days = [date(2020, 5, 16), date(2020, 5, 17), date(2020, 5, 18), date(2021, 1, 1)]
        assert [age(born, day) for day in days] == [29, 30, 30, 30]


class Leap(unittest.TestCase):
    def test_the_gregorian_rule(self) -> None:
        assert [year for year in (1900, 1996, 1999, 2000, 2004, 2100) if is_leap(year)] == [1996, 2000, 2004]


class Quarter(unittest.TestCase):
    def test_every_month(self) -> None:
        assert [quarter(month) for month in range(1, 13)] == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
