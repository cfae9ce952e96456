"""Finds the time window that a question is about, by rules over its dates: "two weeks ago", "in May", "between 1 April and 9
April 2020". It reads the question and the day on which it is asked, never a key.

It replaces the model that predicts the window in "Memory-T1: Reinforcement Learning for Temporal Reasoning in Multi-session
Agents" (arXiv 2512.20092): rules read the written dates, and give nothing where there is none.
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from keepworth.memory.patterns import Patterns, read_numbers

DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)
_WORDS = Patterns("times")


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A closed interval of time. An open start is `datetime.min`; an open end is the time of asking."""

    start: datetime
    end: datetime

    def __str__(self) -> str:
        return "/".join(end.isoformat(timespec="minutes") for end in (self.start, self.end))

    @property
    def days(self) -> float:
        """Returns its length in days."""
        return (self.end - self.start) / DAY

    def gap(self, when: datetime) -> float:
        """Returns days from the window to `when`: 0 inside, negative before, positive after."""
        return (when - self.start) / DAY if when < self.start else max(0.0, (when - self.end) / DAY)


def window_of(question: str, asked_at: str = "") -> TimeWindow | None:
    """Returns the window that `question` is about; None where it names no time, or only one relative to an unknown day of asking.

    asked_at: ISO 8601, "" where unknown. Written dates have precedence over relative ones. "After 3 May" extends to the day of
    asking, "three days after" is closed.
    """
    text = " ".join(question.lower().split())
    asked = datetime.fromisoformat(asked_at) if asked_at else None
    try:
        return _dated(text, asked) or (None if asked is None else _reckoned(text, asked))
    except (OverflowError, ValueError):
        return None  # an invalid date, or a year out of range


def _dated(text: str, asked: datetime | None) -> TimeWindow | None:
    """Returns the window of the dates that are written out."""
    dates = [
        (match, span) for match in _WORDS.date.finditer(text) if (span := _span(match.groupdict(), asked)) is not None
    ]
    if not dates:
        return None
    clocks = _WORDS.clocks.search(text)
    for first, span in dates:
        if clocks and clocks.end() >= first.start() and clocks.start(2) <= first.start("before") < first.start() + 1:
            return TimeWindow(_at(span.start, clocks[1]), span.end)
    for (first, one), (second, other) in pairwise(dates):
        between = text[first.end() : second.start()]
        begun = re.search(r"\b(?:between|from)\W+(?:the\W+)?$", text[: first.start()]) or first[0].startswith("from")
        if begun and re.fullmatch(r"\W*(?:(?:and|to|until|through)\W*(?:on\W+|the\W+)*)?", between):
            return TimeWindow(one.start, max(one.start, other.end))
    windows = [_related(text[: date.start()], date[0], span, asked) for date, span in dates]
    return TimeWindow(min(window.start for window in windows), max(window.end for window in windows))


def _related(before: str, written: str, span: TimeWindow, asked: datetime | None) -> TimeWindow:
    """Returns the window of a date, given the words in front of it."""
    offset = _WORDS.offset.search(before)
    if offset:
        if offset["side"] == "after":
            return TimeWindow(span.start, _moved(span.start, offset, 1))
        return TimeWindow(_moved(span.start, offset, -1), span.start)
    if written.startswith("since") or re.search(r"\b(?:after|since)\W*$", before):
        return TimeWindow(span.start, max(span.end, asked or datetime.max))
    if written.startswith(("until", "by")) or re.search(r"\b(?:before|until|by)\W*$", before):
        return TimeWindow(datetime.min, span.end)
    return span


def _moved(when: datetime, match: re.Match[str], sign: int) -> datetime:
    """Returns `when`, moved by as many units of the calendar as `match` counts."""
    count = match["count"]
    number = sign * (int(count) if count.isdigit() else read_numbers("counts")[count])
    if match["unit"] not in ("month", "year"):
        return when + timedelta(**{f"{match['unit']}s": number})
    months = when.year * 12 + when.month - 1 + number * (12 if match["unit"] == "year" else 1)
    year, month = months // 12, months % 12 + 1
    return when.replace(year=year, month=month, day=min(when.day, monthrange(year, month)[1]))


def _span(parts: dict[str, str | None], asked: datetime | None) -> TimeWindow | None:
    """Returns the window of one date: a minute, a day, a month or a year. A date without a year is the last one before the day of
    asking."""
    clock = parts["before"] or parts["after"]
    if parts["iso"]:
        day = datetime.fromisoformat(parts["iso"])
    elif parts["year5"]:
        return TimeWindow(datetime(int(parts["year5"]), 1, 1), datetime(int(parts["year5"]), 12, 31, 23, 59))
    else:
        month = read_numbers("months")[str(parts["month"] or parts["month2"] or parts["month3"] or parts["month4"])]
        number, year = parts["day"] or parts["day2"], parts["year"] or parts["year2"] or parts["year3"]
        if year is None and asked is None:
            return None
        when = int(year) if year else _last_year(month, int(number or 1), asked or datetime.max)
        if number is None:
            return TimeWindow(datetime(when, month, 1), datetime(when, month, monthrange(when, month)[1], 23, 59))
        day = datetime(when, month, int(number))
    if clock:
        return TimeWindow(_at(day, clock), _at(day, clock))
    return TimeWindow(day, day + DAY - _MINUTE)


def _last_year(month: int, day: int, asked: datetime) -> int:
    return asked.year if (month, day) <= (asked.month, asked.day) else asked.year - 1


def _at(day: datetime, clock: str) -> datetime:
    hour, minute = (int(match) for match in re.findall(r"\d+", clock)[:2])
    if clock.endswith("m"):
        hour = hour % 12 + (12 if clock.endswith("pm") else 0)
    return day.replace(hour=hour, minute=minute)


def _reckoned(text: str, asked: datetime) -> TimeWindow | None:
    """Returns the window of a time relative to the day of asking."""
    today = asked.replace(hour=0, minute=0)
    if ago := _WORDS.ago.search(text):
        then = _moved(today, ago, -1)
        slack = {"day": 0, "week": 3, "month": 15, "year": 183}[ago["unit"]]
        window = _days(then - DAY * slack, then + DAY * slack)
        return TimeWindow(window.start, asked) if re.search(r"\bsince\b", text[: ago.start()]) else window
    if past := _WORDS.past.search(text):
        return TimeWindow(_moved(today, past, -1), asked)
    if last := _WORDS.last.search(text):
        whole = re.search(r"\b(?:in|over|within|during) the $", text[: last.start()])
        return _named("past" if whole and last["which"] == "last" else last["which"], last["what"], today)
    for name, (month, day) in read_numbers("feasts").items():
        if re.search(rf"\b{name}", text):
            then = datetime(_last_year(month, day, asked), month, day)
            return _days(then, then)
    if re.search(r"\byesterday\b", text):
        return _days(today - DAY, today - DAY)
    return None


def _named(which: str, what: str, today: datetime) -> TimeWindow:
    """Returns the window of words such as "last Tuesday", "this month", "the past weekend"."""
    if (weekday := read_numbers("weekdays").get(what)) is not None:
        then = today - DAY * ((today.weekday() - weekday - 1) % 7 + 1)
        return _days(then, then)
    if what == "weekend":
        sunday = today - DAY * ((today.weekday() + 1) % 7 or 7)
        return _days(today, today + DAY * (6 - today.weekday())) if which == "this" else _days(sunday - DAY, sunday)
    if (first := read_numbers("seasons").get(what)) is not None:
        year = _last_year(first, 1, today)
        return _days(datetime(year, first, 1), datetime(year, first, 1) + DAY * 91)
    if which == "past":
        return _days(today - DAY * read_numbers("unit_days")[what], today)
    if what == "week":
        monday = today - DAY * today.weekday()
        return _days(monday, today) if which == "this" else _days(monday - 7 * DAY, monday - DAY)
    begin = today.replace(day=1) if what == "month" else today.replace(month=1, day=1)
    if which == "this":
        return _days(begin, today)
    end = begin - DAY
    return _days(end.replace(day=1) if what == "month" else end.replace(month=1, day=1), end)


def _days(first: datetime, last: datetime) -> TimeWindow:
    return TimeWindow(first, last + DAY - _MINUTE)
