"""Reads of whom or what a statement tells which attribute with which value, and whether a newer one replaces it.

    changes("I live in Porto.", "We finally moved into a house in Faro.")  ->  True

A statement replaces an older one that tells the same attribute of the same person or thing if it has another value, and either
tells of a change or the attribute has one value at a time; or if it says that the older value is over. The sentences by which
people tell attributes are in `attributes.toml`. What is told in no such sentence is left to the signs of `replaced_statements`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from keepworth.memory.change_frames import around, differ_in_value, spell_out, times_patterns, without
from keepworth.memory.change_gates import about_others, is_of_the_new_one
from keepworth.memory.change_rules import told_apart
from keepworth.memory.change_signs import reading
from keepworth.memory.patterns import compile_pattern, read_file
from keepworth.memory.switches import kinds_of, purposes_of, switch
from keepworth.memory.wording import content_of, number_words, read, stem, stem_list, topics_of, word_list

LONGEST = 160
"""The most characters of a statement that is read."""
NO_ATTRIBUTES = ("parts", "around", "words", "sorts", "ended", "opposites")
MOST_BESIDE = 2
"""The most content words of an older statement that are neither named as ended nor in the newer one."""
STARTS = ("who", "me", "n", "")
"""What a sentence of an attribute may start with."""
MOST_OF_A_NAME = 5
"""The most words of a person or thing with which it starts."""
MOST_OF_TWO = 9
"""The most words of an older statement of two clauses that is replaced as a whole."""
KINDS = ("states", "news", "ends")
_CLAUSE = re.compile(
    r"\s*[.;!?:,]\s+|\s+[-–—]+\s+|,?\s(?:and|but|so|because|while|und|aber|weil|et|mais|y|pero)\s", re.IGNORECASE
)
_SUBJECT = re.compile(r"(?:(?i:i|we|(?:my|our|the) [\w'-]+)|[A-ZÀ-Þ][\w'-]+)(?= )")
_SOMEBODY = re.compile(r"(?:an?|another|one of|some|someone|somebody|eine?|einer|une?|una|alguien) ", re.IGNORECASE)
_OURS = re.compile(r"\b(?:my|our|unsere?n?|meine?n?|mon|ma|notre|mi|goodbye|farewell|so long),? $", re.IGNORECASE)
_NOTE = re.compile(
    r"(?:(?:the|my|our) )?(?P<new>(?:new|updated|corrected) )?(?P<n>(?:[\w'-]+ ){0,3}[\w'-]+): (?P<v>\S.*)",
    re.IGNORECASE,
)
"""A note of a value: "New door code: 8823"."""
_NEW = re.compile(
    r"^(?P<my>(?:(?:my|our|the|meine?|unsere?|die|der|das|mon|ma|notre|le|la|mi|nuestr[oa]|el) )?)"
    r"(?:new|neue[rs]?|nouve\w+|nuev[oa])"
    r" (?=\w)"
    r"|(?<=^mi )(?P<n>\w+ )nuev[oa] |^(?P<the>the |our |my )(?:correct|updated|current) (?=\w)",
    re.IGNORECASE,
)
"""What is said of the new one of a kind."""
_TURNED = re.compile(r"(?P<verb>\w+) (?P<who>ich|wir) (?P<rest>.+)", re.IGNORECASE)
"""The German order behind an adverb: "Seit Mai wohne ich in Köln"."""
_BECAUSE = re.compile(r" (?:by|because|due to|since) ")
_WITH = re.compile(r"^ (?:v?\d[\d.]*\b|with .+)")
"""What stands behind a product that does not say what it is used for."""
_HOUR = re.compile(r"(?:about |around )?(\w+)", re.IGNORECASE)
_NUMBER = re.compile(r"[$€£]?\d")


@dataclass(frozen=True, slots=True)
class StatedAttribute:
    """An attribute as a statement tells it.

    Args:
        name: Its name.
        about: The stems of whose it is, none for the one who speaks.
        thing: The stems of what it is of; None for whatever has this value.
        value: The stems of its value, none where only an end is told.
        sorts: The kinds of times in the value, or the units of its numbers.
        kind: One of `KINDS`.
        changed: Whether the statement tells of a change.
    """

    name: str
    about: frozenset[str]
    thing: frozenset[str] | None
    value: frozenset[str]
    sorts: frozenset[str]
    kind: str
    changed: bool


def changes(old: str, new: str) -> int:
    """Return how surely the statement `new` tells another value, or the end, of an attribute that the older one tells: 2 if both
    name the same thing, 1 if one names it by more words, 0 if it does not."""
    if max(len(old), len(new)) > LONGEST or old == new or "?" in new or "?" in old:
        return 0
    if read(old).speaker != read(new).speaker or is_of_the_new_one(read(old), read(new)):
        return 0
    newer = tells(new, anew=True)
    older = tells(old) if newer and switch(old, new) is not False else ()
    sure = max(
        (_ends(before, after, old, new) for after in newer for before in older if before.name == after.name), default=0
    )
    return sure or int(_is_named_as_ended(old, new) or differ_in_value(old, new))


def _ends(before: StatedAttribute, after: StatedAttribute, old: str, new: str) -> int:
    named = after.kind == "news" and not after.about and before.thing == after.thing and new.lower().startswith("the ")
    same = before.about == after.about or named  # "My daughter's recital", "the recital"
    if before.kind == "ends" or not (same or _is_mentioned(before, after, old, new)):
        return 0
    if after.kind == "ends":
        over = not after.value or not after.value.isdisjoint(before.value)
    else:
        risen = after.name == "profession" and after.changed and before.value < after.value
        over = risen or ((after.changed or _single(after.name)) and _exclude(before, after))
    if not over:
        return 0
    if before.thing == after.thing or after.thing is None or before.thing is None:
        return 2
    more = after.thing < before.thing if after.changed else after.kind == "news" and before.thing < after.thing
    if not more or not after.thing or before.name.startswith("use "):
        return 0
    apart = told_apart(read(old), read(new))
    return int(not apart and (after.kind == "ends" or not about_others(reading(old), reading(new))))


def _exclude(before: StatedAttribute, after: StatedAttribute) -> bool:
    """Return whether two values are of one kind, and neither says what the other says."""
    same = before.value <= after.value or after.value <= before.value
    return not same and not (before.sorts and after.sorts and before.sorts.isdisjoint(after.sorts))


def _is_mentioned(before: StatedAttribute, after: StatedAttribute, old: str, new: str) -> bool:
    """Return whether two uses are of the same: "My laptop runs Ubuntu", "I wiped my laptop and installed Fedora"."""
    return before.name.startswith("use ") and (
        before.about <= read(new).content if before.about else after.about <= read(old).content
    )


def _is_named_as_ended(old: str, new: str) -> bool:
    """Return whether the newer statement names what the older one tells as over, or as what something else has taken the place
    of."""
    before, after = read(old), read(new)
    adverbs = {stem for stem, word in zip(after.stems, after.tokens, strict=True) if word.endswith("ly")}
    strangers = after.subject - before.content - stem_list("agents") - adverbs
    if before.is_past or after.others != before.others or before.speaker != after.speaker:
        return False
    subject = before.subject if before.verb < len(before.tokens) else frozenset[str]()
    mine = before.speaks_of_me or not subject
    for kind, gone, ours in _ended(new):
        if not gone or (strangers and "me" not in after.tokens and not ours and not gone <= after.subject):
            continue
        if kind != "over" and not ours and _SOMEBODY.match(new) is not None:
            continue
        if kind == "over" and not gone.isdisjoint(stem_list("kin")):
            continue
        if gone & before.action and not subject <= after.content:
            continue  # "My dog sleeps on the couch", "No more sleeping on the couch for me"
        if kind == "over" and before.subject == gone:
            return True
        rest = before.content - gone - (subject if before.says_what_it_is else frozenset()) - stem_list("frequency")
        used = any(one.name.startswith("use ") and one.value == gone for one in tells(old))
        same = mine or used or subject <= after.content
        named = before.content if kind == "deed" else before.content - subject
        if same and gone <= named and len(rest - after.content) <= MOST_BESIDE:
            return True
    return False


@lru_cache(4096)
def _ended(text: str) -> tuple[tuple[str, frozenset[str], bool], ...]:
    """Return what a statement names as over: in what kind of sentence, the stems of it, and whether it belongs to who speaks."""
    plain = re.sub(r"\bya no\b", "ya_no", without("change", without("corrects", spell_out(text))), flags=re.IGNORECASE)
    plain = without("idle", plain)
    if len(plain) > LONGEST or around("none").search(plain):
        return ()
    clauses = tuple(dict.fromkeys((plain, *_CLAUSE.split(plain))))
    matches = ((kind, pattern.search(clause)) for clause in clauses for kind, pattern in _ended_patterns())
    return tuple(
        dict.fromkeys(
            (kind, content_of(match["o"]), _OURS.search(match.string[: match.start("o")]) is not None)
            for kind, match in matches
            if match is not None
        )
    )


@lru_cache(4096)
def tells(text: str, *, anew: bool = False) -> tuple[StatedAttribute, ...]:
    """Return what a statement tells of attributes, in each way in which it can be read.

    Args:
        text: The statement.
        anew: Return what may take the place of something older, of each clause, and not what the whole tells.
    """
    plain = spell_out(text)
    return () if len(plain) > LONGEST else tuple(dict.fromkeys(_read(plain, anew)))


def _read(plain: str, anew: bool) -> Iterator[StatedAttribute]:
    note = _NOTE.fullmatch(plain) if anew else None
    if note is not None:
        plain = f"the {note['new'] or ''}{note['n']} is {note['v']}"
    clauses = [part for part in _CLAUSE.split(plain) if part]
    changed = any(around(kind).search(plain) for kind in ("change", "corrects", "adds")[: 1 + len(clauses)])
    if not anew and len(clauses) > 1 and len(plain.split()) > MOST_OF_TWO:
        return
    first = _SUBJECT.match(without("change", without("idle", without("corrects", plain))))
    named = (
        [] if first is None else [f"{first[0]} {clause}" for clause in clauses[1:] if _SUBJECT.match(clause) is None]
    )
    # of what is older the whole counts: what says more than one thing is not replaced for one of them
    for sentence in dict.fromkeys((plain, *clauses, *named)) if anew else (plain,):
        if around("none").search(sentence) is not None:
            continue
        bare = without("change", without("idle", without("corrects", sentence)))
        if (turned := _TURNED.fullmatch(bare)) is not None:
            bare = f"{turned['who']} {turned['verb']} {turned['rest']}"
        fresh = (
            _NEW.sub(lambda match: match["my"] or match["the"] or match["n"] or "the ", bare, count=1) if anew else bare
        )
        changed = changed or fresh != bare
        for one in dict.fromkeys((bare, fresh, without("dates", bare))):
            starts = {start: tuple(_starts(start, one)) for start in STARTS}
            for name, kind, start, pattern in _patterns():
                if name == "count" and one != bare and one != fresh:
                    continue  # "three meetings on Monday"
                if anew and kind == "states" and not (changed or _single(name)):
                    continue
                for head, rest in starts[start]:
                    match = pattern.fullmatch(rest)
                    if match is None:
                        continue
                    attribute = _attribute(name, kind, {**match.groupdict(), **head}, changed=changed)
                    if attribute is not None:
                        yield attribute
                        break


def _starts(start: str, sentence: str) -> Iterator[tuple[dict[str, str], str]]:
    """Yield each way in which a sentence begins with a person or thing: what is named so, and the rest of the sentence."""
    if not start:
        yield {}, sentence
        return
    pattern, words = _part(start), sentence.split(" ")
    counts = range(1, min(MOST_OF_A_NAME, len(words) - 1) + 1)
    for count in counts if start == "n" else reversed(counts):
        match = pattern.fullmatch(" ".join(words[:count]))
        if match is not None:
            yield match.groupdict(), " ".join(words[count:])


def _attribute(name: str, kind: str, parts: dict[str, str | None], *, changed: bool) -> StatedAttribute | None:
    value = (parts.get("o") if kind == "ends" else parts.get("v")) or ""
    if name == "state":
        value = _BECAUSE.split(value, maxsplit=1)[0]
    if kind != "ends" and not _fits(read_file("attributes")[name].get("of", ""), value):
        return None
    owner, _, noun = (parts.get("n") or "").replace("s' ", "s's ").rpartition("'s ")
    noun, *whose = re.split(r" (?:of|for) (?:the |my |our )?", noun, maxsplit=1)
    role = (parts.get("y") or "").rpartition(" ")[0]  # "my work laptop is a MacBook" is about work
    about = _stems(" ".join((parts.get("who") or "", owner, *whose, parts.get("x") or "", role)))
    thing = None if parts.get("n") == "" or (kind == "ends" and not noun) else _stems(noun)
    if noun and not thing:
        return None
    if name == "count" and not word_list("prepositions").isdisjoint(noun.lower().split()):
        return None
    if name == "state":
        name = f"state {_opposites()[value.lower()]}"
    if name == "does" and noun.split()[0].lower() not in _list("deeds"):
        return None
    if name == "use":
        kind_of, product = _product(value)
        rest = _WITH.sub("", value[len(product) :]).strip()
        purpose = _words(rest) - purposes_of(kind_of) if rest else frozenset[str]()
        name, value, thing = f"use {kind_of}", product, purpose
        kind_words = {*kind_of.split(), *(purposes_of(kind_of) if parts.get("x") or role else ())}
        about -= {stem(word) for word in kind_words}
    return StatedAttribute(name, about, thing, _words(value), _sorts(name, value), kind, changed or kind != "states")


def _words(phrase: str) -> frozenset[str]:
    """Return the stems of the words of a phrase, whole as they are written, without small ones if there are others."""
    words = [word.strip(',;!?"()') for word in phrase.lower().split()]
    return frozenset(stem(word) for word in words if word not in word_list("small")) or frozenset(words)


def _sorts(name: str, value: str) -> frozenset[str]:
    """Return the kinds of times that a value tells, or else the units in which it counts, or the shape of a code."""
    if name == "seat":
        return frozenset([re.sub(r"[^\W\d]", "a", re.sub(r"\d+", "0", value))])
    times = _times(value)
    if times or not value or not _is_number(value):
        return times
    if not _list("periods").isdisjoint(value.lower().split()[1:2]):
        return frozenset(["duration"])
    return frozenset(
        word for word in content_of(value) if word.isalpha() and word not in {*number_words("counts"), *_list("tens")}
    )


def _times(value: str) -> frozenset[str]:
    return frozenset(sort for sort, pattern in times_patterns().items() if pattern.search(value))


def _is_hour(value: str) -> bool:
    match = _HOUR.fullmatch(value)
    number = "" if match is None else number_words("counts").get(match[1].lower(), match[1])
    return number.isdecimal() and len(number) < 3 and int(number) <= 24


def _is_number(value: str) -> bool:
    first, *rest = value.lower().split()
    if first in _list("a") and rest[:1] and rest[0] in _list("periods"):
        return True
    return _NUMBER.match(value) is not None or first in {*number_words("counts"), *_list("tens")}


def _product(value: str) -> tuple[str, str]:
    """Return the kind of the product that a value begins with, and its name: it has a capital, or is one of a tool alone."""
    words = value.split()
    for length in (3, 2, 1):
        name = " ".join(words[:length]).strip(".,!").lower()
        kinds = kinds_of(name) if len(words) >= length else frozenset[str]()
        if kinds and (any(map(str.isupper, words[0])) or any(" of " in kind for kind in kinds)):
            return min(kinds), name
    return "", ""


def _stems(phrase: str) -> frozenset[str]:
    """Return the stems of the words that name a person or a thing."""
    same, telling = read_file("attributes")["around"]["same"], word_list("theirs") | word_list("ways from")
    letters = frozenset(word for word in phrase.split() if len(word) == 1 and word.isupper() and word != "I")
    words = [same.get(word, word) for word in phrase.lower().split()]
    return letters | {stem(word) for word in words if word and (word in telling or word not in word_list("small"))}


def _fits(of: str, value: str) -> bool:
    """Return whether a value is of the kind that an attribute has."""
    if not value.strip():
        return not of
    first, last = value.split()[0], value.split()[-1].lower()
    times = _times(value)
    if of == "time":
        return bool(times) or _is_hour(value)
    if of == "number":
        return not times and _is_number(value)
    if of == "product":
        return _product(value)[0] != ""
    if of == "thing":
        return not (times or _is_number(value))
    if of in ("digits", "@"):
        return re.match(r"\+?\d", value) is not None if of == "digits" else "@" in value
    if of == "colour":
        return value.split()[-1].lower() in word_list("colours") or not times
    if of == "often":
        return around("often").fullmatch(value) is not None
    if of == "department":
        return value.lower() in _list("department")
    if of == "state":
        return value.lower() in _opposites()
    if of == "name":
        return value[0].isupper() and len(value.split()) < 3
    if of == "name of a place":
        return all(word[0].isupper() for word in value.split()) and len(value.split()) < 4
    if of == "object":
        return (
            not times
            and not _is_number(value)
            and len(value.split()) <= 3
            and word_list("prepositions").isdisjoint(value.split())
        )
    if of == "profession":
        return any("profession" in topics_of(stem(word)) for word in value.split(" at ")[0].split()[-3:])
    if of == "employer":
        return (
            not times and last not in _list("elsewhere") and (first[0].isupper() or first.lower() in ("a", "an", "the"))
        )
    if of == "place":
        return not times and last not in _list("elsewhere")
    if of == "somewhere":
        return not times and not _is_number(value)
    return len(value) <= 60


@cache
def _opposites() -> dict[str, int]:
    """Return the number of its group for each word of a state."""
    groups = " ".join(read_file("attributes")["opposites"]["groups"].split()).split(" / ")
    return {word: number for number, group in enumerate(groups) for word in group.split()}


@cache
def _list(name: str) -> frozenset[str]:
    return frozenset(read_file("attributes")["words"][name].split())


@cache
def _single(name: str) -> bool:
    return bool(read_file("attributes")[name.split()[0]].get("single"))


@cache
def _ended_patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    data = read_file("attributes")
    return tuple(
        (kind, _compile(sentence))
        for kind, sentences in data["ended"].items()
        for sentence in " ".join(sentences.split()).split(" / ")
    )


def _compile(sentence: str) -> re.Pattern[str]:
    """Compile a sentence of the table, in which {name} stands for a part."""
    return compile_pattern(
        re.sub(r"\{([a-z]\w*)\}", lambda part: f"%{part[1]}%", sentence.strip()), parts=read_file("attributes")["parts"]
    )


@cache
def _part(name: str) -> re.Pattern[str]:
    return compile_pattern(f"%{name}%", parts=read_file("attributes")["parts"])


@cache
def _patterns() -> tuple[tuple[str, str, str, re.Pattern[str]], ...]:
    """Return the sentences of all attributes, each with its attribute, its kind, and with what it starts, which is cut off."""
    data, patterns = read_file("attributes"), []
    for name, listed in data.items():
        for kind in KINDS if name not in NO_ATTRIBUTES else ():
            for sentence in " ".join(listed.get(kind, "").split()).split(" / ") if listed.get(kind) else ():
                start = next((start for start in STARTS if start and sentence.startswith(f"{{{start}}} ")), "")
                rest = sentence[len(start) + 3 :] if start else sentence
                patterns.append((name, kind, start, _compile(rest)))
    return tuple(patterns)
