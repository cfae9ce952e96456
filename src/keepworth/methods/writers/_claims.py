"""Parses a statement by rules on its words: its subject, attribute and value, and the day it is about. No model is called.

The rules know some attributes by name (home, employer, age ...), take "my X is Y" for an attribute X, and otherwise use the verb.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, lru_cache

from keepworth.memory.patterns import Patterns, compile_pattern, read_english, read_patterns, read_words
from keepworth.memory.relative_days import RelativeDay, relative_days, show
from keepworth.memory.time_window import TimeWindow, window_of

USER = "user"
_RULES = Patterns("claims")


@dataclass(frozen=True, slots=True)
class Claim:
    """A parsed statement. text: the statement, with relative days resolved. about: its subject, "user", "my sister", "ana".
    attribute: "" where unknown; single: whether that has one value at a time. value: in the words of the speaker. denies: whether
    the statement is negated; over: whether it says "not any more". news: whether its words announce a change. instead: the old
    value, if named. day: ISO 8601, where it is about a past event."""

    text: str
    about: str = USER
    attribute: str = ""
    value: str = ""
    single: bool = False
    denies: bool = False
    over: bool = False
    news: bool = False
    instead: str = ""
    day: str = ""


def put_forward(text: str) -> str:
    """Rewrites "is not tea, it is coffee" as "is coffee, not tea"."""
    return _RULES.not_but.sub(lambda match: f"{match['be']} {match['v']}, not {match['o']}{match['end']}", text)


@lru_cache(4096)
def stems(text: str) -> frozenset[str]:
    """Returns the content words of `text`, without their endings."""
    words = re.findall(r"[^\W_]+(?:[-'.][^\W_]+)*", text.lower().replace("'s", ""))
    cut = (re.sub(r"(?<=[a-z]{3})(?:ings?|ed|es|s|e)$", "", word) for word in words if word not in read_words("small"))
    return frozenset(re.sub(r"(.)\1$", r"\1", word) if len(word) > 4 else word for word in cut)


def parsed_claim(text: str, at: str = "", *, news: bool | None = None) -> Claim:
    """Parses a statement. `news` says whether the sentence around it announces a change; None decides by the statement itself."""
    announced = bool(_RULES.news.search(text)) if news is None else news
    statement = put_forward(_RULES.turns.sub("", text))
    for pattern, long in _replacements("shortened"):
        statement = pattern.sub(long, statement)
    about, rest = _subject(statement)
    over = denies = False
    dropped = _RULES.dropped_for.match(rest)
    if dropped is not None:
        rest = f"{rest[dropped.end() :]} instead of {dropped['o']}"
    for pattern in read_patterns("over"):
        if pattern.search(rest):
            over, rest = True, pattern.sub("", rest).strip()
    instead = next((old["o"] for pattern in read_patterns("instead") if (old := pattern.search(rest)) is not None), "")
    plain = _RULES.set_against.sub("", rest) if instead else rest
    if _RULES.negation.search(_RULES.first_part.split(plain, maxsplit=1)[0]) and not plain.lower().startswith("my "):
        denies, plain = True, _RULES.negation.sub(_affirmed, plain, count=1)
    if over:
        plain = _RULES.gerund.sub(_bare, plain)
    claim = Claim(
        text, about, over=over, denies=denies or over, news=announced or over or bool(instead), instead=instead.strip()
    )
    claim = _with_attribute(claim, plain)
    day, shown = _day(text, at, ahead=bool(_RULES.future.match(rest)))
    return replace(claim, text=shown, day="" if claim.attribute == "plan" else day)


@cache
def _replacements(name: str) -> list[tuple[re.Pattern[str], str]]:
    return [(compile_pattern(pattern), text) for pattern, text in read_english()["lists"][name]]


@cache
def _attributes() -> list[tuple[str, bool, re.Pattern[str]]]:
    """Returns (attribute, whether it has one value at a time, pattern for the words after the subject)."""
    listed = read_english()["lists"]["attributes"]
    return [(name, single, compile_pattern(pattern)) for name, single, pattern in listed]


def _affirmed(negation: re.Match[str]) -> str:
    text = negation[0]
    return f"{text.split()[0]} " if text.lower().startswith(("am", "is", "are", "was")) else ""


def _bare(result: re.Match[str]) -> str:
    word = result[0].lower()
    return str(read_english()["texts"]["bare"].get(word, word[:-3]))


def _subject(statement: str) -> tuple[str, str]:
    """Returns (subject, the rest of the statement in the first person)."""
    first_person = _RULES.subject.match(statement)
    if first_person is not None:
        return USER, statement[first_person.end() :]
    kin = _RULES.relative.match(statement)
    if kin is not None and not re.match(r"'s\b", statement[kin.end() :]):
        rest = re.sub(r"^,? ?[A-Z][a-z]+,?(?= )", "", statement[kin.end() :])
        if not _RULES.of_a_thing.match(rest):
            return f"my {kin['kin'].lower()}", rest.strip()
    if kin is not None and (owned := re.match(r"'s\s+", statement[kin.end() :])) is not None:
        return f"my {kin['kin'].lower()}", f"my {statement[kin.end() + owned.end() :]}"
    named = _RULES.named.match(statement)
    if named is not None and not _RULES.no_name.match(statement):
        rest = statement[named.end("who") :].strip()
        return named["who"].lower(), f"my {rest[2:].strip()}" if rest.startswith("'s") else rest
    return USER, statement


def _with_attribute(claim: Claim, rest: str) -> Claim:
    """Returns `claim` with the attribute and value of `rest`, the words after its subject in the affirmative."""
    rest = re.sub(r"^(?:and |but )", "", rest.strip())
    if rest.lower().startswith("our "):
        rest = f"my {rest[4:]}"
    if _RULES.future.match(rest):
        return replace(claim, attribute="plan", value=rest)
    match = _RULES.own.match(rest) or _RULES.got.match(rest) or _RULES.changed_to.match(rest)
    if match is not None:
        attribute = _attribute(match["a"], called=_RULES.called.search(rest[: match.start("v")]) is not None)
        value = _first_part(match["v"])
        single = (
            attribute.split()[-1] in read_words("functional")
            or attribute.startswith(("favourite", "name of"))
            or _RULES.typed.match(value) is not None
            or claim.news
        )
        old = match.groupdict().get("o") or claim.instead
        return replace(claim, attribute=attribute, value=value, single=single, instead=old)
    for name, single, pattern in _attributes():
        result = pattern.match(rest)
        if result is None:
            continue
        parts = result.groupdict()
        left = parts.get("left")
        if left:
            value = "" if left in ("my job", "work") else left
            return replace(claim, attribute=name, value=value, single=single, over=True, denies=True)
        value, attribute, denies = _first_part(parts["v"]), name, claim.denies
        if name == "hate":
            attribute, denies = "like", not denies
        if name == "home" and re.match(r"lived\b", rest, re.IGNORECASE) and not claim.over:
            return replace(claim, attribute="past", value=value)
        old = parts.get("o") or claim.instead
        return replace(claim, attribute=attribute, value=value, single=single, denies=denies, instead=old)
    words = _RULES.done.sub("", rest).split(None, 1)
    verb = min(stems(words[0]), default=words[0].lower()) if words else ""
    return replace(claim, attribute=f"to {verb}" if verb else "", value=_first_part(words[1]) if len(words) > 1 else "")


def _attribute(words: str, *, called: bool) -> str:
    """Returns one name for different spellings of an attribute: "favorite color", "favourite colour"."""
    name = words.lower().strip()
    for pattern, one in _replacements("spelled"):
        name = pattern.sub(one, name)
    return f"{name.removesuffix(chr(39) + 's')} name" if called else name.replace("'s name", " name")


def _first_part(value: str) -> str:
    """Returns a value of at most eight words, without clauses before and after it."""
    value = _RULES.beside_value.split(value, maxsplit=1)[0]
    return " ".join(_RULES.before_value.sub("", value.strip()).split()[:8])


def _day(text: str, at: str, *, ahead: bool) -> tuple[str, str]:
    """Returns (the day of a past event, or "", `text` with the dates of its relative days added)."""
    day, dates = _reckoned(text, at, ahead)
    end = len(text) - 1 if text.endswith((".", "!")) else len(text)
    return day, f"{text[:end]} ({dates}){text[end:]}" if dates else text


def _reckoned(text: str, at: str, ahead: bool) -> tuple[str, str]:
    """Returns (the day of a past event, the dates that a statement means), each "" where there is none."""
    if not at or _RULES.written_out.search(text):
        return "", ""
    spoken = datetime.fromisoformat(at).replace(tzinfo=None)
    days = relative_days(text, at) or _month_without_year(text, spoken, ahead)
    past = [day.window.start for day in days if day.window is not None and day.window.start <= spoken]
    day = max(past[0], datetime(1, 1, 2)).date().isoformat() if past and not ahead else ""
    return day, show(days)


def _month_without_year(text: str, spoken: datetime, ahead: bool) -> list[RelativeDay]:
    """Returns the month or day that is named without its year: the last one where the statement tells what was done in it, the
    next one where it is planned."""
    if not (ahead or _RULES.told.search(text)):
        return []
    window = window_of(text, spoken.isoformat())
    if window is None or window.start == datetime.min or window.end == datetime.max:
        return []
    try:
        if ahead and window.end < spoken:
            window = TimeWindow(*(day.replace(year=day.year + 1) for day in (window.start, window.end)))
    except ValueError:
        return []
    return [RelativeDay(text, window)]
