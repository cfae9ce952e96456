"""What people state in conversations, by rules on their words: which sentences hold a fact, whom and what it is about, which
day it speaks of, and which older statement it takes the place of. No model is asked.

claims("I moved to Oslo. What's on there?")  ->  one claim: text "I moved to Oslo.", about "user", attribute "home", value "Oslo"

The rules know some attributes by name (home, employer, age ...), take "my X is Y" for an attribute called X, and else go by the
verb. An older statement gives way where it says another value of an attribute that has one at a time, the opposite, or what the
newer one calls over or replaced. In doubt both stay: a fact too many costs a line, a fact lost is lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, lru_cache

from keepworth.memory.english import (
    Patterns,
    compile_pattern,
    read_english,
    read_numbers,
    read_patterns,
    read_words,
)
from keepworth.memory.sentences import COURTESY, FIRST_PERSON, OPENING, QUESTION_TAIL, sentences
from keepworth.memory.time_window import DAY, TimeWindow, window_of

USER = "user"
LONGEST_TEXT, LONGEST_CLAIM, MOST_CLAIMS = 20_000, 600, 64
"""Characters of a message that are read, and of a claim; claims of a message."""
FEWEST_WORDS = 3
_RULES = Patterns("claims")


@dataclass(frozen=True, slots=True)
class Claim:
    """text: as it is kept, with the days it speaks of. about: "user", "my sister", "ana". attribute: what it says something
    about, "" where that is not known; single: whether that has one value at a time. value: in the words of the speaker. denies:
    whether it says that this is not so; over: that it is not so any more. news: whether its words announce a change. instead:
    what it names as the old value. day: ISO 8601, where it tells of something that happened on one."""

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


# -- which words hold a statement -------------------------------------------------------------------------------------


def claims(text: str, at: str = "", *, speaker: str = USER) -> list[Claim]:
    """What `text` states, in order. at: when it was said, ISO 8601; "" leaves days as they are. speaker: of "assistant", only
    what it says that it did, or what is so for the person. Total: any text gives a list."""
    text = _RULES.quote.sub(" ", text[:LONGEST_TEXT]).replace("’", "'").replace("‘", "'")
    if not _is_english(text):
        # No rule knows these words: what is said whole, but for what asks.
        return [Claim(line) for line in _plain(text)][:MOST_CLAIMS]
    given: list[Claim] = []
    who = ""
    for sentence in sentences(text):
        for clause in _clauses(" ".join(sentence.split())):
            stated = _stated(clause, speaker, who)
            if not stated:
                continue
            claim = parsed_claim(_short(stated), at, news=bool(_RULES.news.search(clause)))
            subject = _RULES.relative.match(stated) or _RULES.named.match(stated)
            who = subject[0][: subject.end(1)] if subject is not None else ("" if claim.about == USER else who)
            given.append(claim)
    return given[:MOST_CLAIMS]


def _put_forward(text: str) -> str:
    """ "is not tea, it is coffee" as "is coffee, not tea"."""
    return _RULES.not_but.sub(lambda match: f"{match['be']} {match['v']}, not {match['o']}{match['end']}", text)


def corrected(text: str, before: str) -> str:
    """A correction that leans on what was said before, as a statement of its own: "No, it's 7." after "My gate is 5." is "My
    gate is 7.". "" where it is none."""
    match = _RULES.anew.match(_put_forward(" ".join(text.split())))
    stated = claims(before) if match is not None else []
    if match is None or not stated or len(match["v"].split()) > 6 or not stated[-1].value:
        return ""
    last, start = stated[-1], stated[-1].text.rfind(stated[-1].value)
    return "" if start < 0 else f"{last.text[:start]}{match['v']}{last.text[start + len(last.value) :]}"


def _clauses(sentence: str) -> list[str]:
    """The statements of a sentence: what asks at its end is left out, and parts with a subject of their own stand alone."""
    asks = sentence.endswith(("?", "\uff1f"))
    tail = min(
        (
            result
            for pattern in ((QUESTION_TAIL, _RULES.wonders) if asks else (_RULES.wonders,))
            if (result := pattern.search(sentence))
        ),
        key=lambda result: result.start(),
        default=None,
    )
    if tail is not None:
        sentence = _before_question(sentence[: tail.start()].rstrip(" ,;-–—"))
    elif asks:
        return []
    parts, start = list[str](), 0
    for cut in _RULES.cut.finditer(sentence):
        before, after = sentence[start : cut.start()], sentence[cut.end() :]
        rest = _RULES.cut.split(after, maxsplit=1)[0]
        if len(before.split()) >= 2 and len(rest.split()) >= 2 and not _RULES.leans.search(rest):
            parts.append(before)
            start = cut.end()
    parts.append(sentence[start:])
    return [part for part in parts if part.strip(" .,;!")]


def _before_question(head: str) -> str:
    """What stands before a question, where it is a statement by itself: "Since I moved to Oslo" is, "when I was a child" not."""
    given = _RULES.given_that.sub("", head)
    if given != head:
        return f"{given}."
    return "" if _RULES.subordinate.match(head) and len(_RULES.does.findall(head)) < 2 else f"{head}."


def _is_talk(text: str) -> bool:
    """Whether it thanks, asks, orders, or answers what was said last, and tells nothing beside."""
    plain = _RULES.adverbs.sub(r"\1 ", text)
    if _RULES.tells.match(plain):
        return False
    if (
        _RULES.command.match(plain)
        or _RULES.asks.match(plain)
        or (_RULES.object_alone.match(plain) and not _RULES.acts.search(plain))
    ):
        return True
    opens = COURTESY.match(plain) or _RULES.chat.match(plain) or _RULES.decided.match(plain)
    return opens is not None and _RULES.told.search(plain, opens.end()) is None


def _stated(clause: str, speaker: str, who: str) -> str:
    """The statement in a clause, as it is kept, or "" where there is none. who: whom "she" stands for."""
    text = clause.strip()
    while (lead := _RULES.lead.match(text)) is not None and lead.end() < len(text):
        text = text[lead.end() :]
    if speaker != USER:
        return _kept(text) if _RULES.of_assistant.match(text) else ""
    if _RULES.order.match(text):
        return _kept(text)
    text = OPENING.sub("", text).strip()
    if who and _RULES.pronoun.match(text):
        text = _RULES.pronoun.sub(who, text)
    if not text or _is_talk(text):
        return ""
    if FIRST_PERSON.search(text):
        return _kept(text) if len(text.split()) >= 2 else ""
    named = _RULES.named.match(text)
    return _kept(text) if named is not None and not _RULES.no_name.match(text) and len(text.split()) >= 3 else ""


def _kept(text: str) -> str:
    text = text.strip(" ,;-–—")
    return text[:1].upper() + text[1:] + ("" if text[-1:] in ".!" else ".")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_CLAIM else text[:LONGEST_CLAIM].rsplit(" ", 1)[0] + " ..."


def _is_english(text: str) -> bool:
    words = re.findall(r"[^\W\d_]+(?:'[a-z]+)?", text.lower())
    english = sum(word in read_words("english") or "'" in word for word in words)
    return not words or (english * 8 >= len(words) if len(words) > 3 else all(word.isascii() for word in words))


def _is_notation(line: str) -> bool:
    """Whether half of its words have digits in them: moves of chess, tables and code are no statements."""
    words = line.split()
    return 2 * sum(any(sign.isdigit() for sign in word) for word in words) >= len(words)


def _plain(text: str) -> list[str]:
    lines = [" ".join(sentence.split()) for sentence in sentences(text)]
    long = [
        line
        for line in lines
        if (len(line.split()) >= 3 or (len(line) >= 4 and not line[0].isascii())) and not _is_notation(line)
    ]
    return [_short(line) for line in long if not line.endswith(("?", "\uff1f", "\u061f", "\u037e"))]


# -- what a statement says --------------------------------------------------------------------------------------------


@lru_cache(4096)
def stems(text: str) -> frozenset[str]:
    """The words of `text` that say what it is about, without their endings."""
    words = re.findall(r"[^\W_]+(?:[-'.][^\W_]+)*", text.lower().replace("'s", ""))
    cut = (re.sub(r"(?<=[a-z]{3})(?:ings?|ed|es|s|e)$", "", word) for word in words if word not in read_words("small"))
    return frozenset(re.sub(r"(.)\1$", r"\1", word) if len(word) > 4 else word for word in cut)


def parsed_claim(text: str, at: str = "", *, news: bool | None = None) -> Claim:
    """What a statement says. news: whether what it was part of announces a change; None looks at the statement alone."""
    announced = bool(_RULES.news.search(text)) if news is None else news
    said = _put_forward(_RULES.turns.sub("", text))
    for pattern, long in _replacements("shortened"):
        said = pattern.sub(long, said)
    about, rest = _subject(said)
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
        denies, plain = (
            True,
            _RULES.negation.sub(
                lambda match: (
                    f"{match[0].split()[0]} " if match[0].lower().startswith(("am", "is", "are", "was")) else ""
                ),
                plain,
                count=1,
            ),
        )
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
    """(attribute, whether it has one value at a time, what follows the subject)."""
    listed = read_english()["lists"]["attributes"]
    return [(name, single, compile_pattern(pattern)) for name, single, pattern in listed]


def _bare(result: re.Match[str]) -> str:
    word = result[0].lower()
    return str(read_english()["texts"]["bare"].get(word, word[:-3]))


def _subject(said: str) -> tuple[str, str]:
    """(whom it is about, the rest as if it were said of oneself)."""
    first_person = _RULES.subject.match(said)
    if first_person is not None:
        return USER, said[first_person.end() :]
    kin = _RULES.relative.match(said)
    if kin is not None and not re.match(r"'s\b", said[kin.end() :]):
        rest = re.sub(r"^,? ?[A-Z][a-z]+,?(?= )", "", said[kin.end() :])
        if not _RULES.of_a_thing.match(rest):
            return f"my {kin['kin'].lower()}", rest.strip()
    if kin is not None and (owned := re.match(r"'s\s+", said[kin.end() :])) is not None:
        return f"my {kin['kin'].lower()}", f"my {said[kin.end() + owned.end() :]}"
    named = _RULES.named.match(said)
    if named is not None and not _RULES.no_name.match(said):
        rest = said[named.end("who") :].strip()
        return named["who"].lower(), f"my {rest[2:].strip()}" if rest.startswith("'s") else rest
    return USER, said


def _with_attribute(claim: Claim, rest: str) -> Claim:
    """`claim` with what the words after its subject say. rest: in the affirmative."""
    rest = re.sub(r"^(?:and |but )", "", rest.strip())
    if rest.lower().startswith("our "):
        rest = f"my {rest[4:]}"
    if _RULES.future.match(rest):
        return replace(claim, attribute="plan", value=rest)
    own = _RULES.own.match(rest) or _RULES.got.match(rest) or _RULES.changed_to.match(rest)
    if own is not None:
        attribute = _attribute(own["a"], called=_RULES.called.search(rest[: own.start("v")]) is not None)
        value = _first_part(own["v"])
        single = (
            attribute.split()[-1] in read_words("functional")
            or attribute.startswith(("favourite", "name of"))
            or _RULES.typed.match(value) is not None
            or claim.news
        )
        old = own.groupdict().get("o") or claim.instead
        return replace(claim, attribute=attribute, value=value, single=single, instead=old)
    for name, single, pattern in _attributes():
        result = pattern.match(rest)
        if result is None:
            continue
        parts = result.groupdict()
        left = parts.get("left")
        if left:
            return replace(
                claim,
                attribute=name,
                value="" if left in ("my job", "work") else left,
                single=single,
                over=True,
                denies=True,
            )
        value, attribute, denies = _first_part(parts["v"]), name, claim.denies
        if name == "hate":
            attribute, denies = "like", not denies
        if name == "home" and re.match(r"lived\b", rest, re.IGNORECASE) and not claim.over:
            return replace(claim, attribute="past", value=value)
        return replace(
            claim,
            attribute=attribute,
            value=value,
            single=single,
            denies=denies,
            instead=parts.get("o") or claim.instead,
        )
    words = _RULES.done.sub("", rest).split(None, 1)
    verb = min(stems(words[0]), default=words[0].lower()) if words else ""
    return replace(claim, attribute=f"to {verb}" if verb else "", value=_first_part(words[1]) if len(words) > 1 else "")


def _attribute(words: str, *, called: bool) -> str:
    """One name for what has several: "favorite color", "favourite colour"."""
    name = words.lower().strip()
    for pattern, one in _replacements("spelled"):
        name = pattern.sub(one, name)
    return f"{name.removesuffix(chr(39) + 's')} name" if called else name.replace("'s name", " name")


def _first_part(value: str) -> str:
    """A value without what is said beside it."""
    value = _RULES.beside_value.split(value, maxsplit=1)[0]
    return " ".join(_RULES.before_value.sub("", value.strip()).split()[:8])


# -- days -------------------------------------------------------------------------------------------------------------


def _day(text: str, at: str, *, ahead: bool) -> tuple[str, str]:
    """(the day of what happened, or "", `text` with the days that its words stand for)."""
    if not at or _RULES.written_out.search(text):
        return "", text
    try:
        spoken = datetime.fromisoformat(at)
        window = _window(text, spoken, ahead)
        shown = "" if window is None else _shown(window)
    except (ValueError, OverflowError):
        return "", text
    if window is None or window.days > 400:
        return "", text
    happened = window.start <= spoken and not ahead
    end = len(text) - 1 if text.endswith((".", "!")) else len(text)
    day = max(window.start, datetime(1, 1, 2)).date().isoformat() if happened else ""
    return day, f"{text[:end]} ({shown}){text[end:]}"


def _window(text: str, said: datetime, ahead: bool) -> TimeWindow | None:
    today = said.replace(hour=0, minute=0, second=0, microsecond=0)
    coming = _RULES.ahead.search(text)
    if coming is None:
        window = window_of(text, said.isoformat())
        if window is not None and ahead and window.end < said:  # "a trip in May": of a plan, the next one
            return TimeWindow(
                window.start.replace(year=window.start.year + 1), window.end.replace(year=window.end.year + 1)
            )
        return window if window is not None and window.start > datetime.min and window.end < datetime.max else None
    if coming["word"]:
        days = {"tomorrow": 1, "last night": -1}.get(coming["word"].lower(), 0)
        first, length = today + DAY * days, 1
    elif coming["n"]:
        number = int(coming["n"]) if coming["n"].isdigit() else read_numbers("counts")[coming["n"].lower()]
        first, length = today + DAY * number * (7 if coming["unit"].lower() == "week" else 1), 1
    elif (weekday := read_numbers("weekdays").get(coming["next"].lower())) is not None:
        first, length = today + DAY * ((weekday - today.weekday() - 1) % 7 + 1), 1
    elif coming["next"].lower() == "week":
        first, length = today + DAY * (7 - today.weekday()), 7
    elif coming["next"].lower() == "month":
        first = (today.replace(day=1) + timedelta(days=32)).replace(day=1)
        length = ((first + timedelta(days=32)).replace(day=1) - first).days
    else:
        first = today.replace(year=today.year + 1, month=1, day=1)
        length = (first.replace(year=first.year + 1) - first).days
    return TimeWindow(first, first + DAY * length - timedelta(minutes=1))


def _shown(window: TimeWindow) -> str:
    first, last = window.start.date(), window.end.date()
    if first == last:
        return first.isoformat()
    if first.day == 1 and (last + timedelta(days=1)).day == 1 and (first.year, first.month) == (last.year, last.month):
        return first.isoformat()[:7]
    return f"{first.isoformat()} to {last.isoformat()}"


# -- which older statement it takes the place of -----------------------------------------------------------------------


def asked_for(claim: Claim) -> list[str]:
    """Searches that find what it may take the place of."""
    about = "" if claim.about == USER else f"{claim.about} "
    more = read_english()["texts"]["expansions"].get(claim.attribute, claim.attribute.removeprefix("to "))
    wanted = [claim.text, f"{about}{more}".strip()]
    if claim.instead:
        wanted.append(f"{about}{claim.instead}")
    return [search for search in dict.fromkeys(wanted) if search.strip()]


def gives_way(old: Claim, new: Claim) -> bool:
    """Whether `old`, which was said before, does not hold any more where `new` does. What is said again holds."""
    if old.text == new.text:
        return False
    if old.about != new.about or "plan" in (old.attribute, new.attribute) or "past" in (old.attribute, new.attribute):
        return False
    theirs, ours = stems(old.value), stems(new.value)
    same = old.attribute == new.attribute != ""
    alike = bool(theirs and ours) and (theirs <= ours or ours <= theirs)
    whole_old, whole_new = stems(old.text), stems(new.text)
    if new.over:
        if old.over:
            return False
        if same and (alike or not ours):
            return True
        left = ours | stems(new.instead)
        return bool(left) and left <= whole_old and (same or len(left) >= 2 or 2 * len(left) >= len(whole_old))
    if new.instead:
        gone = stems(new.instead) - read_words("points")
        context = (whole_old & whole_new) - gone
        if gone and gone <= whole_old and not old.over and (same or context or 2 * len(gone) >= len(whole_old)):
            return True
    if same and old.over and not new.denies:
        return new.single or alike
    if same and alike:
        return old.denies != new.denies
    if same and new.single and not new.denies:
        return not old.denies and bool(theirs and ours)
    # A change that is told as one, of something that no rule knows by name: the same verb, and nearly the same words.
    if _RULES.nowadays.search(new.text) and not new.denies and not old.denies and theirs and ours:
        # "I like my coffee black" stands beside "I prefer coffee in the morning now": both speak of coffee.
        taste = {old.attribute, new.attribute} <= read_words("taste") and _thing(old) != _thing(new)
        return (same or taste) and theirs != ours and 2 * len(theirs & ours) >= max(len(theirs), len(ours))
    return False


def _thing(claim: Claim) -> frozenset[str]:
    """The first word of a value that says something."""
    return next((result for word in claim.value.split() if (result := stems(word))), frozenset())


def taken_over(new: Claim, known: Sequence[Sequence[Claim]]) -> list[int]:
    """Which of what is known `new` takes the place of, by position: an item of several statements only where all of them go."""
    return [index for index, olds in enumerate(known) if olds and all(gives_way(old, new) for old in olds)]


def says_something(text: str) -> bool:
    """Whether words of a user are kept where no writer says what to keep: no questions, and more than a word or two."""
    return len(text.split()) >= FEWEST_WORDS and not text.rstrip().endswith(("?", "\uff1f"))
