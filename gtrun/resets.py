"""When a used-up quota comes back, from the words of the program that met its end. Pure.

The time stands in one of many forms: `|1733000000`, `2026-10-09T14:00:00Z`, `in 3h 12m`, `resets 1am (Europe/Berlin)`,
`try again at Oct 9th, 2026 2:41 PM`, `resets Mon 12:00am`. The text is hostile: it is cut first, and no pattern here
has two ways to read the same characters more than a few dozen times.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from itertools import islice
from zoneinfo import ZoneInfo

LONGEST = 1000
"""Characters of a text that are looked at."""

_KEYWORD = re.compile(r"\b(?:resets?|try again|retry|available|resume|wait|until)\b", re.IGNORECASE)
_KEYWORDS = 20  # how many are looked behind
_LEAD = 60  # characters after a keyword within which its time begins
_TAIL = 120  # and ends

_EPOCH = re.compile(r"(?:\||\bresets?_?at\"?\s{0,2}[:=]\s{0,2}\"?)([0-9]{10})(?:[0-9]{3})?(?![0-9])", re.IGNORECASE)
_IN_SECONDS = re.compile(r"\bresets?_in_seconds\"?\s{0,2}[:=]\s{0,2}\"?([0-9]{1,9})(?![0-9])", re.IGNORECASE)

_UNITS = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "hr": 3600, "d": 86400, "w": 604800}
_UNITS |= {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_UNIT = "ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|w"
_AMOUNT = re.compile(rf"([0-9]{{1,6}}(?:\.[0-9]{{1,9}})?)\s?({_UNIT})(?![a-z])[\s,]{{0,2}}(?:and\s)?", re.IGNORECASE)
_RELATIVE = re.compile(r"[^0-9]{0,40}?\b(?:in|after|for)\s+(?=[0-9])", re.IGNORECASE)

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_CLOCKS = (
    re.compile(r"([0-9]{1,2})(?::([0-9]{2}))?(?::([0-9]{2}))?\s?([ap])\.?m\b\.?", re.IGNORECASE),
    re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?(?:\.[0-9]{1,9})?()(?![0-9:])"),
)
_DATES = (
    re.compile(r"(?P<year>[0-9]{4})-(?P<number>[0-9]{2})-(?P<day>[0-9]{2})"),
    re.compile(r"(?P<number>[0-9]{1,2})/(?P<day>[0-9]{1,2})/(?P<year>[0-9]{4})"),
    re.compile(
        rf"(?P<month>{'|'.join(_MONTHS)})[a-z]{{0,6}}\.?\s(?P<day>[0-9]{{1,2}})(?:st|nd|rd|th)?(?![0-9:])"
        r"(?:,?\s(?P<year>[0-9]{4})(?![0-9:]))?",
        re.IGNORECASE,
    ),
)
_WEEKDAY = re.compile(
    r"(mon|tue|wed|thu|fri|sat|sun)(?:day|s|sday|nesday|r|rs|rsday|urday)?\b(?!\s(?:and|to)\b)", re.IGNORECASE
)
_BETWEEN = re.compile(r"(?:T|,?\s{1,2}(?:at\s{1,2})?|,)", re.IGNORECASE)
_ZONE = re.compile(
    r"\s?(?:\((?P<name>[A-Za-z][A-Za-z0-9_+/-]{1,60})\)|(?P<utc>UTC|GMT|Z)\b|(?P<offset>[+-][0-9]{2}:?[0-9]{2})\b)"
)
_JUST_NOW = 300.0  # seconds: a clock time that has just gone by is this one, not tomorrow's


def stated(text: str, now: float, local: tzinfo | None = None) -> float | None:
    """The instant that the text names, in seconds since the epoch; None if it names none that can be told.

    `now` is when it was said; `local` is the zone of whoever said it, None for the one of this process. The instant
    may be past, and it may be absurd.
    """
    text = re.sub(r"\s+", " ", text[:LONGEST])
    for pattern, base in ((_EPOCH, 0.0), (_IN_SECONDS, now)):
        if found := pattern.search(text):
            return base + float(found[1])
    for keyword in islice(_KEYWORD.finditer(text), _KEYWORDS):
        tail = text[keyword.end() : keyword.end() + _TAIL]
        try:
            for read in (_after, _at):
                instant = read(tail, now, local)
                if instant is not None:
                    return instant
        except (ValueError, OverflowError):
            continue  # the 30th of February, or a zone that nobody knows
    return None


def _after(tail: str, now: float, _local: tzinfo | None) -> float | None:
    """`in 5 days 22 hours 11 minutes`, `after 9h29m20s`."""
    lead = _RELATIVE.match(tail)
    if lead is None:
        return None
    seconds, place, amounts = 0.0, lead.end(), 0
    while amount := _AMOUNT.match(tail, place):
        unit = amount[2].lower()
        seconds += float(amount[1]) * _UNITS[unit if unit in _UNITS else unit.removesuffix("s")]
        place, amounts = amount.end(), amounts + 1
    return now + seconds if amounts else None


def _at(tail: str, now: float, local: tzinfo | None) -> float | None:
    """`at 3:45pm (Europe/Rome)`, `Oct 9, 6pm`, `Mon 12:00am`, `2026-10-09 14:00:00`: the first that begins."""
    for place in range(min(len(tail), _LEAD)):
        if place and tail[place - 1].isalnum():
            continue  # within a word
        day, end = _first(_DATES, tail, place), place
        weekday = None if day else _WEEKDAY.match(tail, place)
        if found := day or weekday:
            end = found.end()
            gap = _BETWEEN.match(tail, end)
            clock = _first(_CLOCKS, tail, gap.end()) if gap else None
        else:
            clock = _first(_CLOCKS, tail, place)
            if clock is None:
                continue
        zone = _zone(_ZONE.match(tail, clock.end() if clock else end), local)
        at = _time(clock) if clock else time()
        if day:
            return _on_date(day, at, now, zone)
        return _next(at, now, zone, _DAYS.index(weekday[1].lower()) if weekday else None)
    return None


def _first(patterns: Iterable[re.Pattern[str]], text: str, place: int) -> re.Match[str] | None:
    return next((found for pattern in patterns if (found := pattern.match(text, place))), None)


def _time(clock: re.Match[str]) -> time:
    """A clock time, of twelve hours or of twenty-four. Raises ValueError."""
    hour, half = int(clock[1]), clock[4].lower()
    if half:
        if not 1 <= hour <= 12:
            raise ValueError(clock[0])
        hour = hour % 12 + (12 if half == "p" else 0)
    return time(hour, int(clock[2] or 0), int(clock[3] or 0))


def _zone(found: re.Match[str] | None, local: tzinfo | None) -> tzinfo | None:
    """The zone that is named; `local` if none is. Raises ValueError for one that is unknown here."""
    if found is None:
        return local
    if found["utc"] or (found["name"] or "").upper() in {"UTC", "GMT"}:
        return UTC
    if found["offset"]:
        sign, digits = found["offset"][0], found["offset"][1:].replace(":", "")
        ahead = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        return timezone(-ahead if sign == "-" else ahead)
    return named_zone(found["name"])


def zone_of(name: str) -> tzinfo | None:
    """The zone that the variable TZ names; None, for the one of this box, if it names none that is known."""
    try:
        return named_zone(name.removeprefix(":")) if name else None
    except ValueError:
        return None


def named_zone(name: str) -> tzinfo:
    """A zone of the system's time zone database. Raises ValueError."""
    try:
        return ZoneInfo(name)
    except (KeyError, OSError) as error:  # KeyError: not found; OSError: a folder of zones
        raise ValueError(f"no such zone: {name}") from error


def _on_date(day: re.Match[str], at: time, now: float, zone: tzinfo | None) -> float:
    """On that date; of a date without its year the next one. Raises ValueError."""
    groups = day.groupdict()
    month = int(groups["number"]) if groups.get("number") else _MONTHS.index(groups["month"].lower()) + 1
    if groups["year"]:
        return _instant(date(int(groups["year"]), month, int(groups["day"])), at, zone)
    this_year = datetime.fromtimestamp(now - _JUST_NOW, zone).year
    instants = (_instant(date(year, month, int(groups["day"])), at, zone) for year in (this_year, this_year + 1))
    return _upcoming(instants, now)


def _next(at: time, now: float, zone: tzinfo | None, weekday: int | None) -> float:
    """The next time that the clock says so there, on that weekday if one is named (0 is Monday)."""
    today = datetime.fromtimestamp(now - _JUST_NOW, zone).date()
    days = (today + timedelta(days=ahead) for ahead in range(9))
    wanted = (day for day in days if weekday is None or day.weekday() == weekday)
    return _upcoming((_instant(day, at, zone, fold=fold) for day in wanted for fold in (0, 1)), now)


def _upcoming(instants: Iterator[float], now: float) -> float:
    """The first that is still to come, or has only just gone by. Raises ValueError."""
    for instant in instants:
        if instant > now - _JUST_NOW:
            return instant
    raise ValueError("none of them is to come")


def _instant(day: date, at: time, zone: tzinfo | None, *, fold: int = 0) -> float:
    """A wall-clock time as an instant. A naive one is local, with its own summer time (datetime.timestamp)."""
    return datetime.combine(day, at.replace(fold=fold), zone).timestamp()
