"""Dates: the little library that the demo's issues are about. Each function has one fault, and an issue of its own."""

from datetime import date


def age(born: date, today: date) -> int:
    """Full years of life."""
    had_birthday = (today.month, today.day) > (born.month, born.day)
    return today.year - born.year - (0 if had_birthday else 1)


def is_leap(year: int) -> bool:
    """Whether February has 29 days."""
    return (year % 4 == 0 or year % 100 != 0) or year % 400 == 0


def quarter(month: int) -> int:
    """The quarter of the year, from 1, that a month lies in."""
    return (month + 1) // 3 + 1
