"""Reckons the dates that a statement means by days relative to the day on which it was said: "this Friday", "übermorgen".

    relative_days("My exam is the day after tomorrow.", "2026-12-01T09:00")  ->  2026-12-03

A wrong date does more harm than none. Where a phrase means two days to different people ("next Friday" on a Tuesday), or a tense
has to tell which day is meant and does not ("the market is on Friday"), there is no date. Weeks begin on Monday,
and weeks, months and years are whole ones. The phrases and the signs of the tenses are in `relative_days.toml`, by language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from keepworth.memory.patterns import compile_pattern, read_file
from keepworth.memory.search.language import classify
from keepworth.memory.time_window import DAY, TimeWindow

SURE = 0.9
"""From this probability on, a text is of the language that its letters tell."""
LONGEST_SPAN = 400
"""The most days of a window that is shown."""
_WRITTEN = re.compile(r"\b(?:19|20)\d\d\b|\b\d{1,2}[./]\d{1,2}(?:[./]|\b(?!\s*(?:uhr|[ap]m|h)\b))", re.IGNORECASE)
"""A year or a date in numbers."""
_RANGE = re.compile(r"(?:\d\s*[-–./,:]|\b(?:or|oder|bis|ou|o|à|(?<!y )a|to)\s)\s*$", re.IGNORECASE)
"""Before a number, what says that it is not the whole number: "2 or 3 days ago"."""
_DATE = r"\d{4}-\d\d(?:-\d\d)?(?: to \d{4}-\d\d(?:-\d\d)?)?"
_ENTRY = rf"(?:[^()=;]{{1,60}} = )?{_DATE}"
_ADDED = re.compile(rf" \({_ENTRY}(?:; {_ENTRY})*\)(?=$|\s+[A-ZÀ-Þ])")
"""What `with_dates` adds to a statement."""
_CLAUSE_END = re.compile(r"[,;:.!?–—]\s+")
_PARTS_OF_DAYS = "morgen|vormittag|mittag|nachmittag|abend"


@dataclass(frozen=True, slots=True)
class RelativeDay:
    """A phrase of a statement that names a day relative to when it was said. window: the days that it means, None where that is
    not sure."""

    phrase: str
    window: TimeWindow | None


def relative_days(text: str, at: str) -> list[RelativeDay]:
    """Return the relative days that `text` names, in order, for any text; none where it has written dates.

    at: when it was said, ISO 8601; "" gives none.
    """
    if not at or _WRITTEN.search(text):
        return []
    words = set(re.findall(r"\w+", text.lower()))
    tags = [tag for tag in read_file("relative_days") if words & _language(tag).hints]
    if not tags:
        return []
    try:
        spoken = datetime.fromisoformat(at).replace(tzinfo=None)
    except ValueError:
        return []
    likely, probability = classify([text])[0]
    matches = {tag: listed for tag in tags if (listed := list(_language(tag).phrases_in(text)))}
    if likely in matches:
        tag = likely
    else:
        sure = {
            tag
            for tag, listed in matches.items()
            if any(not _language(tag).doubtful.search(one[0]) for _, one in listed)
        }
        if len(sure) != 1 or (probability >= SURE and likely not in ("en", "de", "es", "fr")):
            return []
        (tag,) = sure
    language = _language(tag)
    if language.written.search(text):
        return []
    today = spoken.replace(hour=0, minute=0, second=0, microsecond=0)
    days = list[RelativeDay]()
    for rule, match in matches[tag]:
        try:
            window = language.window(rule, match, today, text)
        except (ValueError, OverflowError):
            window = None
        days.append(RelativeDay(match[0], window))
    return days


def with_dates(text: str, at: str, longest: int | None = None) -> str:
    """Return a statement with the dates of its relative days behind it: "I fly on Friday. (2026-12-04)".

    Args:
        text: The statement.
        at: When it was said, ISO 8601; "" adds none.
        longest: The most characters that are read; None for all.
    """
    day = show(relative_days(text[:longest], at))
    return f"{text} ({day})" if day else text


def without_dates(text: str) -> str:
    """Return a statement as it was before `with_dates` added to it."""
    return _ADDED.sub("", text)


def show(days: list[RelativeDay]) -> str:
    """Return the dates of relative days as they are added to a note; "" for none. Of several different ones, each is beside its
    phrase."""
    dates = [(day.phrase, _dates(day.window)) for day in days if day.window is not None]
    if len(dates) == len(days) and len({date for _, date in dates}) == 1:
        return dates[0][1]
    return "; ".join(f"{phrase} = {date}" for phrase, date in dates)


def _dates(window: TimeWindow) -> str:
    first, last = window.start.date(), window.end.date()
    if first == last:
        return first.isoformat()
    if first.day == 1 and (last + timedelta(days=1)).day == 1:
        begin, end = first.isoformat()[:7], last.isoformat()[:7]
        return begin if begin == end else f"{begin} to {end}"
    return f"{first.isoformat()} to {last.isoformat()}"


def _window(first: datetime, days: int = 1) -> TimeWindow:
    return TimeWindow(first, first + DAY * days - timedelta(minutes=1))


def _month(today: datetime, offset: int) -> TimeWindow:
    months = today.year * 12 + today.month - 1 + offset
    first = today.replace(year=months // 12, month=months % 12 + 1, day=1)
    return _window(first, ((first + timedelta(days=32)).replace(day=1) - first).days)


def _year(today: datetime, offset: int) -> TimeWindow:
    first = today.replace(year=today.year + offset, month=1, day=1)
    return _window(first, (first.replace(year=first.year + 1) - first).days)


def _clause_around(match: re.Match[str], text: str) -> str:
    """Return the words beside a phrase in its clause; those of the whole text where they are too few to have a verb."""
    start = max((cut.end() for cut in _CLAUSE_END.finditer(text, 0, match.start())), default=0)
    end = next((cut.start() for cut in _CLAUSE_END.finditer(text, match.end())), len(text))
    clause = f"{text[start : match.start()]} {text[match.end() : end]}"
    return clause if len(clause.split()) >= 3 else text[: match.start()] + text[match.end() :]


class _Language:
    """The phrases and tenses of one language."""

    def __init__(self, listed: Mapping[str, Any]) -> None:
        self.hints = frozenset(listed["hints"].split())
        self.weekdays = [re.compile(day, re.IGNORECASE) for day in listed["weekdays"]]
        self.units = {unit: re.compile("|".join(forms), re.IGNORECASE) for unit, forms in listed["units"].items()}
        self.counts: Mapping[str, int] = listed["counts"]
        self.bases: Mapping[str, int] = listed["days"]
        self.sunday_begins: bool = listed["sunday_begins"]
        named = {
            "count": r"(?P<count>\d{1,3}|" + "|".join(self.counts) + ")",
            "unit": "(?P<unit>" + "|".join(form for forms in listed["units"].values() for form in forms) + ")",
            "weekday": "(?P<weekday>" + "|".join(listed["weekdays"]) + r")(?![^\W_])",
            "base": "(?P<base>" + "|".join(listed["days"]) + ")",
            "part": _PARTS_OF_DAYS,
        }
        named_in_compounds = named | {"weekday": "(?P<weekday>" + "|".join(listed["weekdays"]) + ")"}
        self.phrases: list[tuple[str, re.Pattern[str]]] = []
        for rule, patterns in listed["phrases"].items():
            for pattern in patterns:
                parts = named_in_compounds if "%part%" in pattern else named
                end = "" if rule == "unsure" else rf"(?![^\W_]){listed['behind']}"
                if rule == "unsure":  # it may name a part several times
                    parts = {name: re.sub(r"\?P<\w+>", "?:", part) for name, part in named.items()}
                self.phrases.append((rule, compile_pattern(f"{pattern}{end}", parts=parts)))
        self.doubtful = re.compile(listed["doubtful"] or "(?!)", re.IGNORECASE)
        self.written = re.compile(listed["written"])
        self.before = re.compile(rf"\b{listed['apart']}\s*$", re.IGNORECASE)
        self.bound = re.compile(rf"\b{listed['bound']}\s*$", re.IGNORECASE)
        self.signs = {
            name: re.compile(listed[name] or "(?!)", re.IGNORECASE)
            for name in ("habit", "can", "past", "now", "future", "event", "starts", "told")
        }

    def phrases_in(self, text: str) -> Iterator[tuple[str, re.Match[str]]]:
        """Yield the phrases of `text` in order, each with its rule: of those that overlap, the one that begins first, and of
        those the longest."""
        matches = [(rule, match) for rule, pattern in self.phrases for match in pattern.finditer(text)]
        end = 0
        for rule, match in sorted(matches, key=lambda one: (one[1].start(), -one[1].end())):
            if match.start() >= end:
                end = match.end()
                yield rule, match

    def tense(self, text: str) -> int:
        """Return 1 if a sentence is about what is to come, -1 if it is about what was, 0 if that is not sure."""
        has = {name: pattern.search(text) is not None for name, pattern in self.signs.items()}
        if has["habit"]:
            return 0
        if has["past"]:
            return 0 if has["future"] or has["now"] or has["told"] else -1
        return 1 if has["future"] or has["event"] else 0

    def window(self, rule: str, match: re.Match[str], today: datetime, text: str) -> TimeWindow | None:
        """Return the days that a phrase means, or None where that is not sure."""
        head, rest = text[: match.start()], _clause_around(match, text)
        if rule == "unsure" or self.before.search(head):
            return None
        kind, _, which = rule.partition(" ")
        window: TimeWindow | None = getattr(self, f"_{kind}")(which, match, today, self.tense(rest), rest)
        if window is None or window.days > LONGEST_SPAN or (window.days > 1 and self.bound.search(head)):
            return None
        return window

    def _day(self, which: str, match: re.Match[str], today: datetime, tense: int, rest: str) -> TimeWindow | None:
        return _window(today + DAY * int(which))

    def _weekday(self, which: str, match: re.Match[str], today: datetime, tense: int, rest: str) -> TimeWindow | None:
        number = next(place for place, name in enumerate(self.weekdays) if name.fullmatch(match["weekday"]))
        monday = today - DAY * today.weekday()
        ahead = today + DAY * ((number - today.weekday() - 1) % 7 + 1)
        behind = today - DAY * ((today.weekday() - number - 1) % 7 + 1)
        if which.startswith("week "):
            offset = int(which.removeprefix("week "))
            if self.sunday_begins and 6 in (number, today.weekday()):
                return None
            return _window(monday + DAY * (7 * offset + number))
        past = self.signs["past"].search(rest) is not None
        if number == today.weekday() and which in ("this", "by", "tense"):
            return None  # today, or in a week
        if which == "ahead":
            return _window(ahead)
        if which == "behind":
            return _window(behind)
        if which == "next":
            return _window(ahead) if ahead >= monday + DAY * 7 else None
        if which == "by":
            return None if past else _window(ahead)
        if which == "this":
            if not past:
                return _window(ahead)
            return _window(behind) if tense < 0 and behind >= monday else None
        return _window(ahead) if tense > 0 else _window(behind) if tense < 0 else None

    def _week(self, which: str, match: re.Match[str], today: datetime, tense: int, rest: str) -> TimeWindow | None:
        offset = int(which)
        if today.weekday() == 6 and ((offset == 0 and tense >= 0) or (offset < 0 and self.sunday_begins)):
            return None
        return _window(today + DAY * (7 * offset - today.weekday()), 7)

    def _weekend(self, which: str, match: re.Match[str], today: datetime, tense: int, rest: str) -> TimeWindow | None:
        saturday = today + DAY * (5 - today.weekday())
        inside, past = today.weekday() > 4, self.signs["past"].search(rest) is not None
        if which == "last":
            return _window(saturday - DAY * 7, 2)
        if which in ("next", "ahead"):
            return _window(saturday + DAY * 7, 2) if inside else _window(saturday, 2) if which == "ahead" else None
        if inside:
            return _window(saturday, 2) if which == "this" else None
        if which == "this" and not past:
            return _window(saturday, 2)
        return _window(saturday, 2) if tense > 0 else _window(saturday - DAY * 7, 2) if tense < 0 else None

    def _month(self, which: str, match: re.Match[str], today: datetime, tense: int, rest: str) -> TimeWindow | None:
        return _month(today, int(which))

    def _year(self, which: str, match: re.Match[str], today: datetime, tense: int, rest: str) -> TimeWindow | None:
        return _year(today, int(which))

    def _moved(self, match: re.Match[str], today: datetime, sign: int) -> TimeWindow | None:
        if _RANGE.search(match.string[: match.start("count")]):
            return None
        word = match["count"].lower()
        number = sign * (int(word) if word.isdigit() else self.counts[word])
        unit = next(unit for unit, form in self.units.items() if form.fullmatch(match["unit"]))
        if unit in ("day", "week"):
            return _window(today + DAY * number * (7 if unit == "week" else 1))
        return _month(today, number) if unit == "month" else _year(today, number)

    def _in(self, which: str, match: re.Match[str], today: datetime, tense: int, rest: str) -> TimeWindow | None:
        has = {name: pattern.search(rest) is not None for name, pattern in self.signs.items()}
        if has["past"] or has["can"] or has["habit"]:
            return None  # how long it takes: "I read it in two days"
        if (which == "sure" or self.signs["starts"].pattern != "(?!)") and not (tense > 0 or has["starts"]):
            return None
        return self._moved(match, today, 1)

    def _from(self, which: str, match: re.Match[str], today: datetime, tense: int, rest: str) -> TimeWindow | None:
        return self._moved(match, today + DAY * self.bases[match["base"].lower()], 1)

    def _ago(self, which: str, match: re.Match[str], today: datetime, tense: int, rest: str) -> TimeWindow | None:
        return self._moved(match, today, -1)

    def _span(self, which: str, match: re.Match[str], today: datetime, tense: int, rest: str) -> TimeWindow | None:
        window = self._moved(match, today, -1)
        unit = next(unit for unit, form in self.units.items() if form.fullmatch(match["unit"]))
        if window is None or unit in ("month", "year"):
            return None
        return TimeWindow(window.start, _window(today).end)


@cache
def _language(tag: str) -> _Language:
    return _Language(read_file("relative_days")[tag])
