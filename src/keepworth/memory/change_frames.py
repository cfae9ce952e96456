"""Tells whether two statements are one sentence with two values, and which statement a value without a sentence is about.

    differ_in_value("I like my steak rare.", "I like my steak well done now.")  ->  True
    about_bare_value(["I drink coffee.", "I live in Leeds."], "These days it's tea.")  ->  0

Nothing has to be known of what the sentence is about, and it may be in any of the languages whose words of change are known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from keepworth.memory.change_signs import is_past
from keepworth.memory.patterns import read_file
from keepworth.memory.switches import kinds_of
from keepworth.memory.wording import content_of, number_words, read, stem, stem_list, word_list

LONGEST_VALUE = 3
"""The most words of a value, without small ones."""
LONGEST_BARE = 6
"""The most words of a sentence that is hardly more than a value."""
_ENDING = re.compile(r"[.!,;:]+(?= |$)")
_AM = re.compile(r"\b(?:am|are|is) (?=\w{2,}ing\b)", re.IGNORECASE)
_ELIDED = re.compile(r"\bj['’](?=\w)", re.IGNORECASE)
_AFTER_ALL = re.compile(r",?\s+after all(?=\W*$)", re.IGNORECASE)
_DENIES = re.compile(r"(?:\bnot\b|n't\b|\bno\b)", re.IGNORECASE)
_TURNS_OUT = re.compile(r"^(?:(?:so|well|ok),? )?(?:it )?turns out,? (?:that )?", re.IGNORECASE)
_TAKES_BACK = tuple(
    (re.compile(pattern, re.IGNORECASE), form)
    for pattern, form in (
        (r"\bdoch nicht\b", "nicht mehr"),
        (r"\bdoch (kein\w*) (\w+)", r"\1 \2 mehr"),
        (r"^(?:finalement|au final|en fait),? (je|nous|on) (ne |n')(\w+) pas\b", r"\1 \2\3 plus"),
        (r"^(?:al final|resulta que|en realidad),? no\b", "Ya no"),
    )
)
"""How it is told in other languages that something is not so after all, and as what is no longer so."""
LONGEST_CORRECTION, LONGEST_OLDER = 100, 400
"""The most characters of a correction, and of an older statement in which a value is looked for."""
_WORD = re.compile(r"[\w$€£%][\w$€£%:.,'-]*[\w$€£%]|[\w$€£%]")
_FIGURES = r"[$€£]?\d(?:[\d.,:]*\d)?[$€£%]?"
_NAMED_NUMBER = re.compile(
    rf"(?:the|my|our|its|der|die|das|mein|meine|unser|unsere|le|la|mon|ma|el|mi) (?P<noun>[^\W\d]+) "
    rf"(?:is|ist|est|es) (?P<number>{_FIGURES})",
    re.IGNORECASE,
)
_NUMBER = re.compile(_FIGURES)
_NAME_AT_END = re.compile(
    r" (?P<title>(?:(?:Mr|Mrs|Ms|Dr|Herr|Frau|Monsieur|Madame|M|Mme|Señora?|Don|Doña)\.? )?)"
    r"(?P<name>[A-ZÀ-Þ][\w'’-]+(?: [A-ZÀ-Þ][\w'’-]+)?)[.!]?$"
)
"""A name with which a statement ends, with or without a title."""


def around(name: str) -> re.Pattern[str]:
    """Return the pattern of the words of one kind that stand around what is told, of `attributes.toml`."""
    return _around(name)


@lru_cache(32)
def _around(name: str) -> re.Pattern[str]:
    words = "|".join(" ".join(read_file("attributes")["around"][name].split()).split(" / "))
    return re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE)


def without(name: str, sentence: str) -> str:
    """Return a sentence without the words of one kind that stand around what is told."""
    return " ".join(around(name).sub(" ", sentence).replace(" ,", ",").strip(" ,:").split())


def spell_out(text: str) -> str:
    """Return what a statement says, without the name of its speaker, dates and short forms."""
    short = read_file("attributes")["around"]["short"]
    words = _ELIDED.sub("je ", read(text).plain.strip(" .!")).split()
    return " ".join(str(short.get(word.lower(), word)) for word in words)


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence without words of change. words: as they are written; stems: of each of them; verb: the place of its verb;
    changed: whether it had words of a change; returns: whether it had such of a return, like "again"; prefers: whether it
    tells what is liked best."""

    words: tuple[str, ...]
    stems: tuple[str, ...]
    verb: int
    changed: bool
    returns: bool
    prefers: bool


@lru_cache(4096)
def _sentence(text: str) -> _Sentence | None:
    plain = spell_out(text)
    changed = around("change").search(plain) is not None or around("corrects").search(plain) is not None
    if around("none").search(plain) is not None:
        return None
    returns, prefers = around("again").search(plain) is not None, around("prefers").search(plain) is not None
    for kind in ("corrects", "idle", "change"):
        plain = without(kind, plain)
    words = _AM.sub("", _ENDING.sub("", plain)).split()
    verb = read(" ".join(words)).verb
    return _Sentence(tuple(words), tuple(map(stem, words)), verb, changed, returns, prefers) if words else None


def differ_in_value(old: str, new: str) -> bool:
    """Return whether the newer statement is the older one with a word of change and another value. That something is so again
    is a change of what is preferred, and of what was a change itself."""
    after = _sentence(new)
    before = _sentence(old) if after is not None and (after.changed or after.returns) else None
    if before is None or after is None or before.stems == after.stems:
        return False
    if not after.changed and not before.changed and not after.prefers:
        return False
    pairs = zip(before.stems, after.stems, strict=False)
    head = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    head -= head > 0 and before.words[head - 1].lower() in word_list("each")
    most = min(len(before.stems), len(after.stems)) - head
    ends = zip(reversed(before.stems), reversed(after.stems), strict=False)
    tail = min(most, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], ends)))
    if not before.verb < head or before.verb != after.verb or is_past(before.words[before.verb].lower()):
        return False
    values = [one.words[head : len(one.words) - tail] for one in (before, after)]
    same = (*before.words[:head], *before.words[len(before.words) - tail :])
    return (
        not (after.prefers and _compares(values[0]) != _compares(values[1]))
        and all(0 < len(content_of(" ".join(value)) or value) <= LONGEST_VALUE for value in values)
        and bool(_content(same) - stem_list("light") - {"work"} or "work" in _content(same))
        and _content(same).isdisjoint(stem_list("additive") - {"like", "lik"})
        and _kind(values[0]) == _kind(values[1])
        and _counts_the_same(*values)
    )


def _compares(words: Sequence[str]) -> bool:
    """Return whether a value that is preferred stands beside another one, as in "the train to the plane"."""
    return any(word.lower() in word_list("comparing") for word in words[1:])


def _content(words: Sequence[str]) -> frozenset[str]:
    return frozenset(stem(word) for word in words if word.lower() not in word_list("small"))


def _counts_the_same(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two values that are numbers count the same, as far as they say what."""
    counted = [_content([word for word in value if not is_number(word)]) for value in (one, other)]
    return not (any(map(is_number, one)) and any(map(is_number, other))) or counted[0] == counted[1]


def _kind(words: Sequence[str]) -> str:
    """Return what tells a value apart from others that may hold beside it: its preposition, whether it is a time, or counts."""
    first = words[0].lower()
    place = first if first in word_list("placing") else ""
    text = " ".join(words)
    times = [sort for sort, pattern in times_patterns().items() if pattern.search(text)]
    if not times and around("often").search(text) is not None:
        times = ["day"]
    if not times and first in ("at", "um", "à") and is_number(words[-1]):
        times = ["clock"]
    numbers = not times and any(is_number(word) for word in words)
    return f"{place} {times[:1]} {numbers}"


@lru_cache(1)
def times_patterns() -> dict[str, re.Pattern[str]]:
    """Return the pattern of each kind of times."""
    return {sort: re.compile(pattern, re.IGNORECASE) for sort, pattern in read_file("attributes")["sorts"].items()}


def is_number(word: str) -> bool:
    """Return whether a word is a number, in figures or not."""
    return _NUMBER.fullmatch(word) is not None or word.lower() in number_words("counts")


def about_bare_value(olds: Sequence[str], new: str) -> int | None:
    """Return the place of the only older statement whose value is of the same kind as one that is told without a sentence."""
    after = _sentence(new)
    words = bare_value(new) if after is not None and after.changed else ()
    kinds = _kinds_of_value(words)
    places = [at for at, old in enumerate(olds) if kinds and _has_value(old, words, kinds)]
    return places[0] if len(places) == 1 else None


def bare_value(text: str) -> tuple[str, ...]:
    """Return the words of the value that a statement tells without saying of what, as in "Sorry, I meant Saturday"; () for one
    that says more."""
    after = _sentence(text) if len(text) <= LONGEST_CORRECTION else None
    if after is None or len(after.words) > LONGEST_BARE:
        return ()
    bare = around("bare").match(" ".join(after.words))
    words = _without_article(after.words[len(bare[0].split()) :] if bare is not None else after.words)
    return words if _kinds_of_value(words, whole=bare is None) else ()


def bare_number(text: str) -> tuple[str, ...]:
    """Return the number that a correction tells and nothing else, as in "Make that 8."; () for other texts."""
    if not corrects(text):
        return ()
    rest = without("change", without("corrects", spell_out(text))).rstrip(".!")
    bare = around("bare").match(rest)
    words = (rest[bare.end() :] if bare is not None else rest).split()
    return tuple(words) if len(words) == 1 and is_number(words[0]) else ()


def _numbers_in(text: str) -> list[tuple[int, int]]:
    return [word.span() for word in _WORD.finditer(text) if is_number(word[0])]


def corrects(text: str) -> bool:
    """Return whether a short text has words that correct what was said, such as "sorry" at its head, or "I meant"."""
    return len(text) <= LONGEST_CORRECTION and around("corrects").search(spell_out(text)) is not None


def tells_of_a_new_state(text: str) -> bool:
    """Return whether a short text says that something is so now, and corrects nothing: "These days it's tea."."""
    after = _sentence(text) if len(text) <= LONGEST_CORRECTION else None
    return after is not None and after.changed and not corrects(text)


def named_value(text: str) -> tuple[str, str]:
    """Return the noun and the number of a correction of both, as in "No, the port is 9090."; empty ones for other texts."""
    if not corrects(text):
        return "", ""
    match = _NAMED_NUMBER.fullmatch(without("change", without("corrects", spell_out(text))))
    return (match["noun"], match["number"]) if match is not None else ("", "")


def as_no_longer(text: str) -> str:
    """Return a statement that takes something back as one that tells its end: "I'm not going any more." of "Turns out I'm not
    going after all."; other texts as they are."""
    plain = " ".join(text.replace("’", "'").split())
    if _AFTER_ALL.search(plain) is not None and _DENIES.search(plain) is not None:
        plain = _AFTER_ALL.sub(" any more", _TURNS_OUT.sub("", plain))
    for pattern, form in _TAKES_BACK:
        plain = pattern.sub(form, plain, count=1)
    return plain


def returned_to(text: str) -> frozenset[str]:
    """Return the stems of what a text says that somebody is back at, as "vim" in "I'm back to vim."; none for other texts."""
    plain = spell_out(text) if len(text) <= LONGEST_CORRECTION else ""
    match = around("back").match(plain)
    rest = _ENDING.sub("", plain[match.end() :]) if match is not None else ""
    for kind in ("change", "again"):
        rest = without(kind, rest)
    value = content_of(rest)
    return frozenset(map(stem, value)) if 0 < len(value) <= LONGEST_VALUE else frozenset()


def with_value(old: str, new: str) -> str:
    """Return the older statement with the value that the newer one tells without a sentence, or "" where it has no value of that
    kind, or several: "My flight is at 7am on Saturday." of "My flight is at 7am on Friday." and "Sorry, I meant Saturday."."""
    noun, number = named_value(new)
    if noun:
        places = [match.span(1) for match in re.finditer(rf"\b{re.escape(noun)} ({_FIGURES})", old, re.IGNORECASE)]
        start, end = places[0] if len(places) == 1 else (0, 0)
        return f"{old[:start]}{number}{old[end:]}" if old[start:end] not in ("", number) else ""
    value = bare_value(new) or bare_number(new)
    if not value or max(len(old), len(new)) > LONGEST_OLDER:
        return ""
    places = _places_of(value, old) if bare_value(new) else _numbers_in(old)
    if len(places) != 1 or old[slice(*places[0])].lower() == " ".join(value).lower():
        return ""
    start, end = places[0]
    return f"{old[:start]}{' '.join(value)}{old[end:]}"


def _places_of(value: Sequence[str], old: str) -> list[tuple[int, int]]:
    """Return where a statement has values of the kind of a value."""
    kinds = _kinds_of_value(value)
    words = list(_WORD.finditer(old)) if kinds else []
    spans = [
        (words[at].start(), words[at + size - 1].end())
        for size in range(LONGEST_VALUE, 0, -1)
        for at in range(len(words) - size + 1)
        if kinds & _kinds_of_value([word[0] for word in words[at : at + size]], whole=True)
        and words[at][0].lower() not in _before_values()
        and words[at + size - 1][0].lower() not in word_list("joins")
    ]
    return [
        span
        for span in spans
        if not any(other[0] <= span[0] and span[1] <= other[1] for other in spans if other != span)
    ]


def with_correction(old: str, new: str) -> str:
    """Return the older statement as a short correction right behind it makes it, or "" for a text that corrects no value.

    Its number, its name at the end, or another value of the same kind is replaced: "My boss is Mr Green." of "My boss is Mr
    Brown." and "Oops, Mr Green.". Where it has none, or several, the correction is put behind it, so that neither is lost: "I
    leave at 8 and come back at 5 (Sorry, 6)."
    """
    text = with_value(old, new)
    if text or max(len(old), len(new)) > LONGEST_CORRECTION or not corrects(new):
        return text
    value = tuple(without("change", without("corrects", spell_out(new))).rstrip(".!").split())
    if not 0 < len(value) <= LONGEST_VALUE:
        return ""
    numbers = _numbers_in(old) if len(value) == 1 else []
    if len(value) == 1 and is_number(value[0]):
        start, end = numbers[0] if len(numbers) == 1 else (0, 0)
        return f"{old[:start]}{value[0]}{old[end:]}" if end else (_put_behind(old, new) if numbers else "")
    if bare_value(new):
        return _put_behind(old, new) if _places_of(bare_value(new), old) else ""
    name, named = " ".join(value), _NAME_AT_END.search(old)
    match = _NAME_AT_END.search(f" {name}")
    if named is None or match is None or match.start() > 0 or bool(match["title"]) != bool(named["title"]):
        return ""
    return "" if named["name"] == match["name"] else f"{old[: named.start('title')]}{name}."


def _put_behind(old: str, new: str) -> str:
    return f"{old.rstrip(' .!')} ({new.strip(' .!')})."


def _without_article(words: Sequence[str]) -> tuple[str, ...]:
    while words and words[0].lower() in _before_values():
        words = words[1:]
    return tuple(words)


@lru_cache(1)
def _before_values() -> frozenset[str]:
    return word_list("the") | word_list("placing") | word_list("before")


def _has_value(old: str, words: Sequence[str], kinds: frozenset[str]) -> bool:
    before = _sentence(old)
    if before is None or before.changed or read(old).is_past or before.verb >= len(before.words):
        return False
    behind = before.words[before.verb + 1 :]
    phrases = (behind[start:end] for start in range(len(behind)) for end in {start + 1, start + 2, len(behind)})
    return any(kinds & _kinds_of_value(phrase) for phrase in phrases) and not _content(words) <= _content(behind)


def _kinds_of_value(words: Sequence[str], *, whole: bool = False) -> frozenset[str]:
    """Return of which kinds of values, of which one holds at a time, a phrase is. whole: all of its words name the value, and not
    only the last, as in "drink coffee"."""
    words = _without_article(words)
    if not words:
        return frozenset()
    text = " ".join(words).lower()
    if (len(words) > 1 and is_number(words[0])) or (len(words) > 2 and is_number(words[1]) and not whole):
        return frozenset(["counted " + " ".join(sorted(_content([word for word in words if not is_number(word)])))])
    kinds = kinds_of(text) or (frozenset() if whole else kinds_of(words[-1].lower()))
    for name in ("colours", "languages"):
        if text in word_list(name):
            kinds |= {name}
    return kinds | frozenset(sort for sort, pattern in times_patterns().items() if pattern.fullmatch(text))
