"""Reads what the words of a statement tell: whom and what it is about, its values, and what it says of a change.

The words and patterns are in `change_words.toml`: English, German, French and Spanish beside each other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import takewhile
from typing import Any

from keepworth.memory.patterns import read_file

MOST_READ = 4_000
"""The most characters of a text that are read for what it tells: the time that this takes grows with the square of them."""
_TOKEN = re.compile(
    r"(?<!\w)(?:[jlnmtsdc]|qu)['’](?=\w)|[$€£]?\d+(?:[.,:/-]\d+)*(?:[a-z%€$£]+\b|[%€$£])?|[^\W\d_]+(?:['’-][^\W\d_]+)*(?:\.?\d+)?|[€$£%]",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"[\"“„«][^\"”“»]*[\"”“»]|(?<!\w)'[^']{8,}'(?!\w)")
_DAYS = r"(?:[^()=;]{1,60} = )?\d{4}-\d\d(?:-\d\d)?(?: to \d{4}-\d\d(?:-\d\d)?)?"
_DATES = re.compile(rf"\s*\({_DAYS}(?:; {_DAYS})*\)")
"""The dates that a writer of notes adds to relative days."""
_SPEAKER = re.compile(r"(?P<name>[A-ZÀ-Þ][\w.'-]*(?: [A-ZÀ-Þ][\w.'-]*){0,3}): (?=\S)")
"""The name that it puts before what somebody says."""
_NUMBER = re.compile(r"(?P<sign>[$€£])?(?P<n>\d+(?:[.,]\d+)*)(?P<unit>[a-z%€$£]*)")
_CLOCK = re.compile(r"\d{1,2}(?::\d{2}|[ap]m|h\d{0,2})(?:[ap]m)?")
_DAY_OF_MONTH = re.compile(r"\d{1,2}(?:st|nd|rd|th|\.)?")
_ORDINAL = re.compile(r"\d+(?:st|nd|rd|th)")


def data() -> dict[str, Any]:
    return read_file("change_words")


@cache
def word_list(name: str) -> frozenset[str]:
    return frozenset(data()["words"][name].lower().split())


@cache
def number_words(name: str) -> dict[str, str]:
    """Read words for numbers, listed in order in each language."""
    return {word: str(number) for words in data()["numbers"][name] for number, word in enumerate(words.split(), 1)}


@cache
def stem_list(name: str) -> frozenset[str]:
    return frozenset(map(stem, word_list(name)))


@cache
def cue(name: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in data()["cues"][name]), re.IGNORECASE)


@cache
def sign(name: str) -> re.Pattern[str]:
    """Return the pattern of the words for one kind of sign."""
    words = " ".join(data()["signs"][name].split()).replace(" / ", "|")
    return re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE)


@cache
def topics_of(word: str) -> frozenset[str]:
    """Return the topics to which the stem of a word belongs."""
    return frozenset(_topics().get(word, ()))


@cache
def _topics() -> dict[str, set[str]]:
    topics: dict[str, set[str]] = {}
    for topic, words in data()["topics"].items():
        for word in words.split():
            topics.setdefault(stem(word), set()).add(topic)
    return topics


@cache
def each_cue(name: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in data()["cues"][name])


_BE = (
    r"(?:\b(?:am|is|are|been|was|were|be|got|gets|gotten|feels?|bin|ist|sind|war|wurde|suis|est|sont|été|soy|es|son|está|están|estoy|sigue)"
    r"|'[ms]|'re)\s+(?:\w+\s+){0,2}?"
)


@cache
def state_groups(table: str) -> tuple[tuple[re.Pattern[str], ...], ...]:
    """Read the groups of states of things or of people; @ stands for "is" and the like."""
    return tuple(
        tuple(
            re.compile(rf"(?:{state.strip().replace('@', _BE)})(?!\w)", re.IGNORECASE) for state in group.split(" / ")
        )
        for group in data()[table].values()
    )


@cache
def place_verbs() -> tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]:
    return tuple(
        (re.compile(there, re.IGNORECASE), re.compile(enters, re.IGNORECASE))
        for there, enters in data()["places"].values()
    )


@cache
def leavings() -> tuple[tuple[re.Pattern[str], frozenset[str]], ...]:
    return tuple(
        (re.compile(pattern, re.IGNORECASE), frozenset(map(stem, words.split())))
        for pattern, words in data()["leaving"].values()
    )


@cache
def _forms() -> dict[str, str]:
    pairs = [(form, word) for word, forms in data()["forms"].items() for form in (word, *forms.split())]
    return {**{_cut(form): word for form, word in pairs}, **dict(pairs)}


@lru_cache(8192)
def stem(word: str) -> str:
    """Return a word without its ending, or the word whose form it is."""
    word = word.lower().replace("’", "'").removesuffix("'s").removesuffix("'")
    forms = _forms()
    return forms.get(word) or forms.get(cut := _cut(word), cut)


def _cut(word: str) -> str:
    if len(word) <= 3 or word[0].isdigit():
        return word
    word = re.sub(r"(?<=[a-zà-ÿ]{3})s$", "", word)
    word = re.sub(r"(?<=.{3})(?:ing|ed|en|e|i?e|y)$", "", word)
    return re.sub(r"([^aeiou])\1$", r"\1", word)


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a kind of which two different ones may exclude each other. kind: such as "day", or "number" with the word that
    it counts or follows as `of`. at: the places of its words."""

    kind: str
    value: str
    of: str = ""
    at: tuple[int, ...] = ()


class Wording:
    """What the words of a statement tell, as far as it is asked for."""

    def __init__(self, text: str) -> None:
        self.text = " ".join(text.replace("’", "'").split())
        plain = _DATES.sub("", _QUOTED.sub(" ", self.text))
        match = _SPEAKER.match(plain)
        self.speaker = (
            match["name"].lower() if match is not None and match["name"].lower() not in word_list("not names") else ""
        )
        if self.speaker and match is not None:
            plain = plain[match.end() :]
        self.plain = plain[match.end() :] if (match := cue("lead").match(plain)) is not None else plain
        matches = list(_TOKEN.finditer(self.plain))
        self.raw = [match[0] for match in matches]
        self.starts = [match.start() for match in matches]
        self.tokens = [word.lower() for word in self.raw]
        self.stems = [stem(word) for word in self.tokens]
        self.tokens = [word[:-1] if len(word) < 4 and word[-1:] in "'’" else word for word in self.tokens]
        small = word_list("small")
        self.light = [
            (word in small or word.removesuffix("'s") in small)
            and not (index and len(raw) == 1 and raw.isupper() and raw != "I")
            for index, (word, raw) in enumerate(zip(self.tokens, self.raw, strict=True))
        ]  # the letter of "room A" is no article

    @cached_property
    def content(self) -> frozenset[str]:
        """The stems of all words with a content of their own."""
        return frozenset(one for one, light in zip(self.stems, self.light, strict=True) if not light)

    @cached_property
    def verb(self) -> int:
        """The place of the first finite verb; 0 where the statement begins with one, or the number of words if there is none."""
        verbs = [index for index, word in enumerate(self.tokens[:16]) if self.may_be_verb(index, word)]
        if self.tokens[:1] and self.tokens[0] in ("i", "we", "ich", "wir", "je", "yo"):
            return min((index for index in verbs if index), default=1)
        verbs = [
            index
            for index in verbs
            if self.tokens[index] not in word_list("nouns") or not any(index < other < index + 5 for other in verbs)
        ]
        sure = [index for index in verbs if self.tokens[index] in word_list("auxiliaries") or "'" in self.tokens[index]]
        first = next((index for index in verbs if index and self.tokens[index - 1] not in word_list("the")), None)
        if sure and (first is None or sure[0] <= first + 2):
            return sure[0]
        if first is None and not sure:  # an unverbs verb ends in "s": "The roof leaks"
            nouns = range(1, min(len(self.tokens), 6))
            guess = [
                at
                for at in nouns
                if re.fullmatch(r"[a-z]{3,}[^s]s", self.tokens[at]) and not self.light[at] | self.light[at - 1]
            ]
            first = guess[0] if guess and not verbs else None
        if first is not None:
            return first
        return 0 if verbs and verbs[0] == 0 else len(self.tokens)

    def may_be_verb(self, index: int, word: str) -> bool:
        if word.endswith("ing"):
            return False
        if word.endswith("ed") and len(word) > 4:
            return True
        return word in word_list("verbs") or (not word.endswith("'s") and self.stems[index] in stem_list("verbs"))

    @cached_property
    def subject(self) -> frozenset[str]:
        """The stems of the words before the verb that have a content of their own."""
        return frozenset(self.stems[index] for index in range(self.head, self.verb) if not self.light[index])

    @cached_property
    def head(self) -> int:
        """The place where the subject begins, behind words that say since when: "From May on the rent is ..."."""
        if self.verb >= len(self.tokens):
            return 0
        comma = self.plain.rfind(", ", 0, self.starts[self.verb])
        start = next((index for index, at in enumerate(self.starts) if at > comma), 0) if comma > 0 else 0
        if self.tokens[:1] and self.tokens[start] in word_list("since"):
            start = max(
                (index for index in range(start + 1, self.verb) if self.tokens[index] in word_list("the")),
                default=max(start, self.verb - 1),
            )
        return start

    @cached_property
    def action(self) -> frozenset[str]:
        """The stem of the verb, unless it is one such as "is"."""
        index = self.verb
        if index >= len(self.tokens) or self.tokens[index] in word_list("auxiliaries") or self.light[index]:
            named = [one for one in self.stems[index : index + 3] if one in stem_list("exclusive")]
            return frozenset(named[:1])
        return frozenset((self.stems[index],))

    @property
    def says_what_it_is(self) -> bool:
        """Whether its verb is "is" or one like it."""
        return self.verb < len(self.tokens) and self.tokens[self.verb] in word_list("be")

    @cached_property
    def complement(self) -> frozenset[str]:
        """The content words of the name or noun that the subject is said to be; none for what is said in another way."""
        if not self.says_what_it_is:
            return frozenset()
        first = next((index for index in range(self.verb + 1, len(self.tokens)) if not self.light[index]), None)
        if first is None or not word_list("prepositions").isdisjoint(self.tokens[self.verb : first]):
            return frozenset()
        if not (self.raw[first][0].isupper() or self.tokens[first - 1] in word_list("the")):
            return frozenset()
        return frozenset(self.stems[index] for index in range(first, len(self.tokens)) if not self.light[index])

    @cached_property
    def leaves(self) -> frozenset[str]:
        """The stems of words for where somebody was who has left."""
        return frozenset().union(*(words for pattern, words in leavings() if pattern.search(self.plain)))

    @cached_property
    def speaks_of_me(self) -> bool:
        """Whether the one who speaks is in it."""
        return not word_list("me").isdisjoint(self.tokens)

    @cached_property
    def others(self) -> frozenset[str]:
        """The stems of relatives and friends, and of whoever owns something ("Leila's number"), in the subject."""
        head = range(self.head, min(self.verb, len(self.tokens)))
        kin = {self.stems[index] for index in head if self.tokens[index].removesuffix("'s") in word_list("kin")}
        owners = {self.stems[index] for index in head if self.owns(index)}
        return frozenset(kin | owners)

    @cached_property
    def owned(self) -> bool:
        """Whether the subject belongs to somebody or something by name."""
        return any(map(self.owns, range(min(self.verb, len(self.tokens)))))

    def owns(self, index: int) -> bool:
        """Return whether the word at a place is that of an owner: not so in "Nina's on leave", where it stands for "is"."""
        after = self.tokens[index + 1] if index + 1 < len(self.tokens) else "a"
        return self.tokens[index].endswith("'s") and not self.light[index] and after not in word_list("small")

    @cached_property
    def values(self) -> tuple[Value, ...]:
        return tuple(self._values())

    def _values(self) -> Iterator[Value]:
        used: set[int] = set()
        for pattern, kind in ((cue("mail"), "mail"), (cue("street"), "street")):
            for match in pattern.finditer(self.plain):
                places = tuple(index for index, start in enumerate(self.starts) if match.start() <= start < match.end())
                used.update(places)
                yield Value(kind, match[0].lower(), at=places)
        count = len(self.tokens)
        for index, word in enumerate(self.tokens):
            if index in used:
                continue
            near = [other for other in (index - 1, index + 1, index - 2, index + 2) if 0 <= other < count]
            if word in word_list("weekdays"):
                yield Value("day", self.stems[index], at=(index,))
            elif word in word_list("months") and not (
                word in ("may", "march", "mar", "sep") and not self.raw[index][0].isupper()
            ):
                day = next(
                    (other for other in near if _DAY_OF_MONTH.fullmatch(self.tokens[other]) and other not in used), None
                )
                places = (index,) if day is None else (index, day)
                if (
                    day is None
                    and index
                    and self.tokens[index - 1] in ("from", "as", "ab", "seit", "since")
                    and index < count - 1
                ):
                    used.add(index)  # "from May on the rent is ..." says since when
                    continue
                used.update(places)
                yield Value("day", " ".join(self.tokens[place] for place in places), at=places)
            elif word in word_list("languages") and index and self.tokens[index - 1] in ("in", "auf", "en"):
                yield Value("language", self.stems[index], at=(index,))
            elif word in word_list("colours"):
                yield Value("colour", self.stems[index], at=(index,))
            elif word in word_list("often"):
                yield Value("often", word, at=(index,))
        for index in range(count):
            if index not in used and (value := self._number(index, used)) is not None:
                yield value

    def _number(self, index: int, used: set[int]) -> Value | None:
        """Return the number at a place with what it counts, or None."""
        word, before = self.tokens[index], self.tokens[index - 1] if index else ""
        after = self.tokens[index + 1] if index + 1 < len(self.tokens) else ""
        noun_after = after != "" and not self.light[index + 1] and index + 1 not in used
        match, counts, ordinals = _NUMBER.fullmatch(word), number_words("counts"), number_words("ordinals")
        of_a_clock = word.isdecimal() and len(word) <= 2 and int(word) <= 24
        hour = of_a_clock and before in word_list("before a clock") and not noun_after
        if hour or _CLOCK.fullmatch(word) or word in ("noon", "midnight") or (match and after in word_list("clock")):
            return Value("clock", word, at=(index,))
        if word in ordinals or _ORDINAL.fullmatch(word):
            number = ordinals.get(word, word.rstrip("stndrh"))
            if noun_after:
                return Value("ordinal", number, self.stems[index + 1], (index,))
            return Value("day", number, at=(index,)) if word not in ordinals else None
        if word in ("once", "twice") and after in ("a", "per", "every", "each"):
            return Value("number", "1" if word == "once" else "2", stem("times"), (index,))
        if match is None and word not in counts:
            return None
        if word == "one" and (after == "of" or (not noun_after and "left" not in self.tokens[index:])):
            return None  # a pronoun
        number, unit = (counts[word], "") if match is None else (match["n"], match["unit"] or match["sign"] or "")
        old = after in word_list("years") and self.tokens[index + 2 : index + 3] in (["old"], ["alt"])
        if old or before in ("turned", "turn", "turns") or (before in ("am", "i'm") and not noun_after):
            return Value("age", number, at=(index,))
        of = stem(unit)
        if not of and (noun_after or after in word_list("periods")):
            of = stem(after)
        names = before != "" and not self.light[index - 1] and not self.may_be_verb(index - 1, before)
        if not of and names and index - 1 not in used:
            of = f"{stem(before)} _"
        return Value("number", number.replace(",", "."), of, (index,))

    @cached_property
    def anchors(self) -> frozenset[str]:
        """The stems of what it is about: words that are neither values nor verbs that say little."""
        valued = {place for value in self.values for place in value.at}
        units = {value.of.removesuffix(" _") for value in self.values if value.of and not value.of.endswith(" _")}
        return frozenset(
            one
            for index, one in enumerate(self.stems)
            if not self.light[index] and index not in valued and one not in stem_list("light") and one not in units
        )

    @cached_property
    def changes(self) -> bool:
        """Whether it tells of a change."""
        return cue("change").search(self.plain) is not None

    @cached_property
    def silent(self) -> bool:
        """Whether it states nothing about how things are: a question, a condition, a wish, a plan."""
        if not self.speaks_of_me and not word_list("you").isdisjoint(self.tokens):
            return True
        if not self.tokens or cue("nothing").search(self.plain.replace("I'd rather", "I prefer")) is not None:
            return True
        return cue("wish").search(self.plain) is not None and not self.states

    @cached_property
    def adds(self) -> bool:
        """Whether it says that something is so, too."""
        return cue("beside").search(self.plain) is not None

    @cached_property
    def is_past(self) -> bool:
        """Whether it tells of the past alone."""
        if self.verb < len(self.tokens) and self.changes is False:
            verb = self.tokens[self.verb]
            if verb not in word_list("results") and (verb.endswith("ed") or cue("past").fullmatch(verb)):
                return True  # "I recently participated in ..."
        return cue("past").search(self.plain) is not None and cue("present").search(self.plain) is None

    @cached_property
    def gone(self) -> tuple[tuple[str, ...], ...]:
        """The content words, in order, of each thing that is named as having ended."""
        phrases = []
        for pattern in each_cue("gone"):
            for match in pattern.finditer(self.plain):
                phrase = match.groupdict().get("gone")
                if phrase and cue("denied").search(self.plain[: match.start()]) is None:
                    named = read(phrase)
                    words = zip(named.stems, named.light, strict=True)
                    phrases.append(
                        tuple(
                            one
                            for one, light in words
                            if not light and one not in stem_list("light") | stem_list("generic")
                        )
                    )
        return tuple(dict.fromkeys(one for one in phrases if one))

    @cached_property
    def departed(self) -> frozenset[str]:
        """The content words of whoever has left."""
        return frozenset().union(
            *(
                content_of(match["gone"])
                for match in cue("departed").finditer(self.plain)
                if len(match["gone"].split()) <= 4 and not read(match["gone"]).values
            )
        )

    @cached_property
    def apart(self) -> frozenset[str]:
        """The content words of those who are no longer together."""
        match = cue("apart").search(self.plain)
        return content_of(match["who"]) if match is not None else frozenset()

    @cached_property
    def sought(self) -> frozenset[str] | None:
        """The content words of what is looked for, None if nothing is."""
        return self._named_by("sought")

    @cached_property
    def obtained(self) -> frozenset[str] | None:
        """The content words of what was found or bought, None if nothing was."""
        return self._named_by("obtained")

    @cached_property
    def completed(self) -> frozenset[str] | None:
        """The content words of what is done with, None if nothing is."""
        return self._named_by("completed")

    def _named_by(self, kind: str) -> frozenset[str] | None:
        match = cue(kind).search(self.plain)
        return None if match is None else content_of(match["gone"])

    @cached_property
    def goes_on(self) -> bool:
        """Whether something is being done."""
        return cue("going on").search(self.plain) is not None

    @cached_property
    def stays_in(self) -> frozenset[int]:
        """The kinds of places, by number, in which it says that somebody is."""
        return frozenset(number for number, (there, _) in enumerate(place_verbs()) if there.search(self.plain))

    @cached_property
    def enters(self) -> frozenset[int]:
        """The kinds of places, by number, which it says that somebody enters."""
        return frozenset(number for number, (_, enters) in enumerate(place_verbs()) if enters.search(self.plain))

    @cached_property
    def states(self) -> dict[tuple[str, int], int]:
        """For each group of states the one that it tells."""
        states_of = {}
        for table in ("states", "conditions"):
            for number, group in enumerate(state_groups(table)):
                states = [state for state, pattern in enumerate(group) if pattern.search(self.plain)]
                if len(states) == 1:
                    states_of[table, number] = states[0]
        return states_of

    @cached_property
    def clauses(self) -> tuple[Wording, ...]:
        """The parts of it that are sentences of their own, if there are several. A change that one tells is told by all."""
        parts = [Wording(part) for part in cue("clauses").split(self.plain) if len(part.split()) > 2]
        if len(parts) < 2:
            return ()
        for part in parts:
            part.speaker = self.speaker
            part.changes = part.changes or self.changes
        return tuple(parts)

    def modifiers(self, word: str) -> frozenset[str]:
        """Return the words that say which one of several things called `word` is meant."""
        words: set[str] = set()
        valued = {place for value in self.values for place in value.at}
        for index, one in enumerate(self.stems):
            if one != word or self.light[index]:
                continue
            for before in range(index - 1, max(-1, index - 4), -1):
                if (
                    self.light[before]
                    or before in valued
                    or (
                        self.may_be_verb(before, self.tokens[before])
                        and self.tokens[before] not in word_list("qualifiers")
                    )
                ):
                    break
                words.add(self.stems[before])
            after = self._end_of_name(index + 1, valued)
            words.update(self.stems[index + 1 : after])
            if after < len(self.tokens) - 1 and self.tokens[after] in word_list("prepositions"):
                after += 1
                while after < len(self.tokens) and self.tokens[after] in word_list("the"):
                    after += 1
                end = self._end_of_name(after, valued)
                words.update(self.stems[after:end])
        return frozenset(words - {word})

    def _end_of_name(self, start: int, valued: Collection[int]) -> int:
        """Return where the words that name something end, from `start` on: at a light word, a value or what may be a verb."""
        named = (
            not (self.light[at] or at in valued or self.may_be_verb(at, self.tokens[at]))
            for at in range(start, len(self.tokens))
        )
        return start + sum(1 for _ in takewhile(bool, named))


def content_of(phrase: str) -> frozenset[str]:
    return read(phrase).content


@lru_cache(4096)
def read(text: str) -> Wording:
    """Return what the words of a statement tell, of a long text its first `MOST_READ` characters."""
    return Wording(text[:MOST_READ])
