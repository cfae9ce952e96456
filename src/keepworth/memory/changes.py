"""Tells whether a statement replaces an older one, because it tells of a change, or of another value of what has one at a time.

    replaced_by("The meeting moved to Thursday.", [monday])  ->  the id of the item "My meeting is on Monday."

In doubt it replaces nothing: a note too many costs less than a lost one. Three things are asked. The statements are about the
same thing: whoever and whatever the older one is about is named in the newer, and nothing tells the two apart ("the dev port",
"the port in the test environment"). The newer tells of a change ("now", "moved to", "sold"), or repeats the older with another
value. And something of the older one has ended: a value that the newer one names as gone ("switched from Jenkins"), a value of
the same kind (a day, a number of the same unit, a street), or a state that another one excludes (broken, works). The words are
in `changes.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from itertools import takewhile
from typing import Any

from keepworth.memory.english import read_words
from keepworth.memory.item import Item

LONGEST = 400
"""The most characters of a statement that is compared: a longer text says more than one thing."""
MOST_READ = 4_000
"""The most characters of a text that are read for what it tells: the time that this takes grows with the square of them."""
MOST_BESIDE = 3
"""The most content words of an older statement that neither have ended nor are named in the newer: one that says more is kept."""
MOST_WORDS = 16
"""The most words of a statement that is compared as a whole. The clauses of a longer one are compared each by itself."""
_TOKEN = re.compile(
    r"(?<!\w)(?:[jlnmtsdc]|qu)['’](?=\w)|[$€£]?\d+(?:[.,:/-]\d+)*(?:[a-z%€$£]+\b|[%€$£])?|[^\W\d_]+(?:['’-][^\W\d_]+)*(?:\.?\d+)?|[€$£%]",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"[\"“„«][^\"”“»]*[\"”“»]|(?<!\w)'[^']{8,}'(?!\w)")
_DATES = re.compile(r"\s*\(\d{4}-\d\d(?:-\d\d)?(?: to \d{4}-\d\d(?:-\d\d)?)?\)")
"""The dates that a writer of notes adds to relative days."""
_SPEAKER = re.compile(r"(?P<name>[A-ZÀ-Þ][\w.'-]*(?: [A-ZÀ-Þ][\w.'-]*){0,3}): (?=\S)")
"""The name that it puts before what somebody says."""
_NUMBER = re.compile(r"(?P<sign>[$€£])?(?P<n>\d+(?:[.,]\d+)*)(?P<unit>[a-z%€$£]*)")
_CLOCK = re.compile(r"\d{1,2}(?::\d{2}|[ap]m|h\d{0,2})(?:[ap]m)?")
_DAY_OF_MONTH = re.compile(r"\d{1,2}(?:st|nd|rd|th|\.)?")
_ORDINAL = re.compile(r"\d+(?:st|nd|rd|th)")


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("changes.toml").read_text("utf-8"))


@cache
def _words(name: str) -> frozenset[str]:
    return frozenset(_data()["words"][name].lower().split())


@cache
def _numbers(name: str) -> dict[str, str]:
    """Read words for numbers, listed in order in each language."""
    return {word: str(number) for words in _data()["numbers"][name] for number, word in enumerate(words.split(), 1)}


@cache
def _stems(name: str) -> frozenset[str]:
    return frozenset(map(stem, _words(name)))


@cache
def _cue(name: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in _data()["cues"][name]), re.IGNORECASE)


@cache
def _each(name: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in _data()["cues"][name])


_BE = (
    r"(?:\b(?:am|is|are|been|was|were|be|got|gets|gotten|feels?|bin|ist|sind|war|wurde|suis|est|sont|été|soy|es|son|está|están|estoy|sigue)"
    r"|'[ms]|'re)\s+(?:\w+\s+){0,2}?"
)


@cache
def _states(table: str) -> tuple[tuple[re.Pattern[str], ...], ...]:
    """Read the groups of states of things or of people; @ stands for "is" and the like."""
    return tuple(
        tuple(
            re.compile(rf"(?:{state.strip().replace('@', _BE)})(?!\w)", re.IGNORECASE) for state in group.split(" / ")
        )
        for group in _data()[table].values()
    )


@cache
def _places() -> tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]:
    return tuple(
        (re.compile(there, re.IGNORECASE), re.compile(enters, re.IGNORECASE))
        for there, enters in _data()["places"].values()
    )


@cache
def _leavings() -> tuple[tuple[re.Pattern[str], frozenset[str]], ...]:
    return tuple(
        (re.compile(pattern, re.IGNORECASE), frozenset(map(stem, words.split())))
        for pattern, words in _data()["leaving"].values()
    )


@cache
def _forms() -> dict[str, str]:
    pairs = [(form, word) for word, forms in _data()["forms"].items() for form in (word, *forms.split())]
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
            match["name"].lower() if match is not None and match["name"].lower() not in _words("not names") else ""
        )
        if self.speaker and match is not None:
            plain = plain[match.end() :]
        self.plain = plain[match.end() :] if (match := _cue("lead").match(plain)) is not None else plain
        matches = list(_TOKEN.finditer(self.plain))
        self.raw = [match[0] for match in matches]
        self.starts = [match.start() for match in matches]
        self.tokens = [word.lower() for word in self.raw]
        self.stems = [stem(word) for word in self.tokens]
        self.tokens = [word[:-1] if len(word) < 4 and word[-1:] in "'’" else word for word in self.tokens]
        small = _words("small")
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
        verbs = [index for index, word in enumerate(self.tokens[:16]) if self._may_be_verb(index, word)]
        if self.tokens[:1] and self.tokens[0] in ("i", "we", "ich", "wir", "je", "yo"):
            return min((index for index in verbs if index), default=1)
        verbs = [
            index
            for index in verbs
            if self.tokens[index] not in _words("nouns") or not any(index < other < index + 5 for other in verbs)
        ]
        sure = [index for index in verbs if self.tokens[index] in _words("auxiliaries") or "'" in self.tokens[index]]
        first = next((index for index in verbs if index and self.tokens[index - 1] not in _words("the")), None)
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

    def _may_be_verb(self, index: int, word: str) -> bool:
        if word.endswith("ing"):
            return False
        if word.endswith("ed") and len(word) > 4:
            return True
        return word in _words("verbs") or (not word.endswith("'s") and self.stems[index] in _stems("verbs"))

    @cached_property
    def subject(self) -> frozenset[str]:
        """The stems of the words before the verb that have a content of their own."""
        return frozenset(self.stems[index] for index in range(self._head, self.verb) if not self.light[index])

    @cached_property
    def _head(self) -> int:
        """The place where the subject begins, behind words that say since when: "From May on the rent is ..."."""
        if self.verb >= len(self.tokens):
            return 0
        comma = self.plain.rfind(", ", 0, self.starts[self.verb])
        start = next((index for index, at in enumerate(self.starts) if at > comma), 0) if comma > 0 else 0
        if self.tokens[:1] and self.tokens[start] in _words("since"):
            start = max(
                (index for index in range(start + 1, self.verb) if self.tokens[index] in _words("the")),
                default=max(start, self.verb - 1),
            )
        return start

    @cached_property
    def action(self) -> frozenset[str]:
        """The stem of the verb, unless it is one such as "is"."""
        index = self.verb
        if index >= len(self.tokens) or self.tokens[index] in _words("auxiliaries") or self.light[index]:
            named = [one for one in self.stems[index : index + 3] if one in _stems("exclusive")]
            return frozenset(named[:1])
        return frozenset((self.stems[index],))

    @cached_property
    def complement(self) -> frozenset[str]:
        """The content words of the name or noun that the subject is said to be; none for what is said in another way."""
        if not _is(self):
            return frozenset()
        first = next((index for index in range(self.verb + 1, len(self.tokens)) if not self.light[index]), None)
        if first is None or not _words("prepositions").isdisjoint(self.tokens[self.verb : first]):
            return frozenset()
        if not (self.raw[first][0].isupper() or self.tokens[first - 1] in _words("the")):
            return frozenset()
        return frozenset(self.stems[index] for index in range(first, len(self.tokens)) if not self.light[index])

    @cached_property
    def leaves(self) -> frozenset[str]:
        """The stems of words for where somebody was who has left."""
        return frozenset().union(*(words for pattern, words in _leavings() if pattern.search(self.plain)))

    @cached_property
    def speaks_of_me(self) -> bool:
        """Whether the one who speaks is in it."""
        return not _words("me").isdisjoint(self.tokens)

    @cached_property
    def others(self) -> frozenset[str]:
        """The stems of relatives and friends, and of whoever owns something ("Leila's number"), in the subject."""
        head = range(self._head, min(self.verb, len(self.tokens)))
        kin = {self.stems[index] for index in head if self.tokens[index].removesuffix("'s") in _words("kin")}
        owners = {self.stems[index] for index in head if self._owns(index)}
        return frozenset(kin | owners)

    @cached_property
    def owned(self) -> bool:
        """Whether the subject belongs to somebody or something by name."""
        return any(map(self._owns, range(min(self.verb, len(self.tokens)))))

    def _owns(self, index: int) -> bool:
        """Return whether the word at a place is that of an owner: not so in "Nina's on leave", where it stands for "is"."""
        after = self.tokens[index + 1] if index + 1 < len(self.tokens) else "a"
        return self.tokens[index].endswith("'s") and not self.light[index] and after not in _words("small")

    @cached_property
    def values(self) -> tuple[Value, ...]:
        return tuple(self._values())

    def _values(self) -> Iterator[Value]:
        used: set[int] = set()
        for pattern, kind in ((_cue("mail"), "mail"), (_cue("street"), "street")):
            for match in pattern.finditer(self.plain):
                places = tuple(index for index, start in enumerate(self.starts) if match.start() <= start < match.end())
                used.update(places)
                yield Value(kind, match[0].lower(), at=places)
        count = len(self.tokens)
        for index, word in enumerate(self.tokens):
            if index in used:
                continue
            near = [other for other in (index - 1, index + 1, index - 2, index + 2) if 0 <= other < count]
            if word in _words("weekdays"):
                yield Value("day", self.stems[index], at=(index,))
            elif word in _words("months") and not (
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
            elif word in _words("languages") and index and self.tokens[index - 1] in ("in", "auf", "en"):
                yield Value("language", self.stems[index], at=(index,))
            elif word in _words("colours"):
                yield Value("colour", self.stems[index], at=(index,))
            elif word in _words("often"):
                yield Value("often", word, at=(index,))
        for index in range(count):
            if index not in used and (value := self._number(index, used)) is not None:
                yield value

    def _number(self, index: int, used: set[int]) -> Value | None:
        """Return the number at a place with what it counts, or None."""
        word, before = self.tokens[index], self.tokens[index - 1] if index else ""
        after = self.tokens[index + 1] if index + 1 < len(self.tokens) else ""
        noun_after = after != "" and not self.light[index + 1] and index + 1 not in used
        match, counts, ordinals = _NUMBER.fullmatch(word), _numbers("counts"), _numbers("ordinals")
        of_a_clock = word.isdecimal() and len(word) <= 2 and int(word) <= 24
        hour = of_a_clock and before in _words("before a clock") and not noun_after
        if hour or _CLOCK.fullmatch(word) or word in ("noon", "midnight") or (match and after in _words("clock")):
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
        old = after in _words("years") and self.tokens[index + 2 : index + 3] in (["old"], ["alt"])
        if old or before in ("turned", "turn", "turns") or (before in ("am", "i'm") and not noun_after):
            return Value("age", number, at=(index,))
        of = stem(unit)
        if not of and (noun_after or after in _words("periods")):
            of = stem(after)
        names = before != "" and not self.light[index - 1] and not self._may_be_verb(index - 1, before)
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
            if not self.light[index] and index not in valued and one not in _stems("light") and one not in units
        )

    @cached_property
    def changes(self) -> bool:
        """Whether it tells of a change."""
        return _cue("change").search(self.plain) is not None

    @cached_property
    def silent(self) -> bool:
        """Whether it states nothing about how things are: a question, a condition, a wish, a plan."""
        if not self.speaks_of_me and not _words("you").isdisjoint(self.tokens):
            return True
        if not self.tokens or _cue("nothing").search(self.plain.replace("I'd rather", "I prefer")) is not None:
            return True
        return _cue("wish").search(self.plain) is not None and not self.states

    @cached_property
    def adds(self) -> bool:
        """Whether it says that something is so, too."""
        return _cue("beside").search(self.plain) is not None

    @cached_property
    def is_past(self) -> bool:
        """Whether it tells of the past alone."""
        if self.verb < len(self.tokens) and self.changes is False:
            verb = self.tokens[self.verb]
            if verb not in _words("results") and (verb.endswith("ed") or _cue("past").fullmatch(verb)):
                return True  # "I recently participated in ..."
        return _cue("past").search(self.plain) is not None and _cue("present").search(self.plain) is None

    @cached_property
    def gone(self) -> tuple[tuple[str, ...], ...]:
        """The content words, in order, of each thing that is named as having ended."""
        phrases = []
        for pattern in _each("gone"):
            for match in pattern.finditer(self.plain):
                phrase = match.groupdict().get("gone")
                if phrase and _cue("denied").search(self.plain[: match.start()]) is None:
                    named = read(phrase)
                    words = zip(named.stems, named.light, strict=True)
                    phrases.append(
                        tuple(
                            one for one, light in words if not light and one not in _stems("light") | _stems("generic")
                        )
                    )
        return tuple(dict.fromkeys(one for one in phrases if one))

    @cached_property
    def departed(self) -> frozenset[str]:
        """The content words of whoever has left."""
        return frozenset().union(
            *(
                _content(match["gone"])
                for match in _cue("departed").finditer(self.plain)
                if len(match["gone"].split()) <= 4 and not read(match["gone"]).values
            )
        )

    @cached_property
    def apart(self) -> frozenset[str]:
        """The content words of those who are no longer together."""
        match = _cue("apart").search(self.plain)
        return _content(match["who"]) if match is not None else frozenset()

    @cached_property
    def states(self) -> dict[tuple[str, int], int]:
        """For each group of states the one that it tells."""
        states_of = {}
        for table in ("states", "conditions"):
            for number, group in enumerate(_states(table)):
                states = [state for state, pattern in enumerate(group) if pattern.search(self.plain)]
                if len(states) == 1:
                    states_of[table, number] = states[0]
        return states_of

    @cached_property
    def clauses(self) -> tuple[Wording, ...]:
        """The parts of it that are sentences of their own, if there are several. A change that one tells is told by all."""
        parts = [Wording(part) for part in _cue("clauses").split(self.plain) if len(part.split()) > 2]
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
                        self._may_be_verb(before, self.tokens[before])
                        and self.tokens[before] not in _words("qualifiers")
                    )
                ):
                    break
                words.add(self.stems[before])
            after = self._end_of_name(index + 1, valued)
            words.update(self.stems[index + 1 : after])
            if after < len(self.tokens) - 1 and self.tokens[after] in _words("prepositions"):
                after += 1
                while after < len(self.tokens) and self.tokens[after] in _words("the"):
                    after += 1
                end = self._end_of_name(after, valued)
                words.update(self.stems[after:end])
        return frozenset(words - {word})

    def _end_of_name(self, start: int, valued: Collection[int]) -> int:
        """Return where the words that name something end, from `start` on: at a light word, a value or what may be a verb."""
        named = (
            not (self.light[at] or at in valued or self._may_be_verb(at, self.tokens[at]))
            for at in range(start, len(self.tokens))
        )
        return start + sum(1 for _ in takewhile(bool, named))


def _content(phrase: str) -> frozenset[str]:
    return read(phrase).content


@lru_cache(4096)
def read(text: str) -> Wording:
    """Return what the words of a statement tell, of a long text its first `MOST_READ` characters."""
    return Wording(text[:MOST_READ])


def replaced_by(text: str, candidates: Iterable[Item]) -> list[str]:
    """Return the ids of those of `candidates`, older statements of the same person, that the statement `text` replaces."""
    scored = [(score(item.text, text), item) for item in candidates]
    best = max((one for one, _ in scored), default=0.0)
    return [item.id for one, item in scored if one > 0.0 and one >= best - 0.05]


def replaces(old: str, new: str) -> bool:
    """Return whether the statement `new` replaces the older one `old`."""
    return score(old, new) > 0.0


def change_words() -> frozenset[str]:
    """Return words of which every statement that tells of a change has one: a quick look at many statements."""
    return _words("triggers")


def may_replace(old: str, new: str) -> bool:
    """Return whether nothing speaks against `new` replacing `old`: both state something, and about what may be the same."""
    before, after = read(old), read(new)
    if before.silent or after.silent or before.is_past:
        return False
    parts = (after, *after.clauses)
    kinds, others = ({value.kind for value in wording.values} for wording in (before, after))
    if kinds and others and kinds.isdisjoint(others):
        return False  # "The office is at 12 Quay Street", "the office has three rooms"
    return any(_same_owner(before, part) and not (_told_apart(before, part) or _may_be_apart(before, part)) for part in parts)


def score(old: str, new: str) -> float:
    """Return how surely the statement `new` replaces the older one `old`: 0 where it does not."""
    if max(len(old), len(new)) > LONGEST or old == new:
        return 0.0
    before, after = read(old), read(new)
    if _attained(before, after):
        return 0.8
    if after.silent or before.silent or not _same_owner(before, after):
        return 0.0
    named = _named_as_gone(before, after)
    if named:
        return named
    if before.content == after.content or after.adds or before.is_past:
        return 0.0
    whole = [after] if len(after.tokens) <= MOST_WORDS or not after.clauses else []
    return max(_by_rule(before, clause) for clause in (*whole, *after.clauses))


def _by_rule(old: Wording, new: Wording) -> float:
    if not _same_owner(old, new) or _told_apart(old, new) or _may_be_apart(old, new) or len(old.content - new.content) > 2 * MOST_BESIDE:
        return 0.0
    return max(rule(old, new) for rule in (_other_state, _other_place, _other_value, _other_role, _other_of_the_same))


def _same_owner(old: Wording, new: Wording) -> bool:
    """Return whether both statements may be about the same person or thing."""
    if old.speaker != new.speaker:
        return False
    if not old.subject and not old.speaks_of_me:
        return old.verb < len(old.tokens) and not old.content.isdisjoint(new.content)  # an instruction
    if not old.others <= new.content or (new.owned and not new.subject - _stems("generic") <= old.content):
        return False
    if new.others - old.content:
        return False
    if old.speaks_of_me:
        same = bool(old.subject) and old.subject <= new.content
        return new.speaks_of_me or same or not _somebody(new, old)
    if old.owned and not old.subject <= new.content:
        return False
    if not old.subject.isdisjoint(new.content):
        return True
    # "The default branch is master": "We renamed master to main".
    value = old.content - old.subject - _stems("light")
    return (
        old.tokens[0] in _words("the") and not new.subject and any(value <= {*gone} <= old.content for gone in new.gone)
    )


def _somebody(new: Wording, old: Wording) -> bool:
    """Return whether the subject of `new` looks like a person or thing by name that `old` does not name."""
    head = new.raw[0] if new.raw else ""
    return (
        head[:1].isupper()
        and not new.light[0]
        and 0 < new.verb < 4
        and new.stems[0] not in old.content
        and new.tokens[0] not in _words("agents")
        and not new.tokens[0].endswith("ly")
        and not new._may_be_verb(0, new.tokens[0])
    )


def _told_apart(old: Wording, new: Wording) -> bool:
    """Return whether something says that the two statements are about different things of the same name."""
    theirs = _words("theirs")
    if len({word for wording in (old, new) for word in wording.tokens[: wording.verb] if word in theirs}) > 1:
        return True  # "Her office", "his office"
    verbs = {wording.stems[wording.verb] if wording.verb < len(wording.tokens) else "" for wording in (old, new)}
    if len(verbs) == 1 and old.subject and new.subject and not (old.subject & new.content or new.subject & old.content):
        return True  # "My train leaves", "my bus leaves"
    qualified = _stems("qualifiers")
    if (old.subject & qualified) - new.content or (new.subject & qualified) - old.content:
        return True
    return bool(_fixed(old) - new.content or (new.subject & old.content and _fixed(new) - old.content))


def _may_be_apart(old: Wording, new: Wording) -> bool:
    """Return whether the two name what they share with other words beside it, which may mean another thing."""
    if new.subject & old.subject and new.subject - old.content - _stems("generic") - _stems("change verbs"):
        return True  # "The museum opens at 10": "The museum shop opens at 11 now"
    for word in old.subject & new.content:
        one, other = old.modifiers(word), new.modifiers(word)
        plain = _stems("verbs") | _stems("generic")
        if (one - other - new.content - plain) and (other - one - old.content - plain):
            return True
    return False


def _fixed(wording: Wording) -> frozenset[str]:
    """Return the values in the subject, which tell one thing from another: "the red line"."""
    kinds = ("colour", "ordinal")
    places = [
        place
        for value in wording.values
        if value.kind in kinds
        for place in value.at
        if place < wording.verb < len(wording.tokens)
    ]
    return frozenset(wording.stems[place] for place in places)


def _named_as_gone(old: Wording, new: Wording) -> float:
    """Return how surely `new` names something as ended of which `old` says that it is so."""
    if new.apart and len(new.apart & old.content) >= 2:
        return 0.9
    if old.is_past:
        return 0.0
    rest = old.content - old.subject
    for gone in new.gone:
        shared = frozenset(gone) & old.content
        if 2 * len(shared) < len(gone) or gone[0] not in old.content:
            continue
        if not old.speaks_of_me and old.tokens and old.verb:
            if not (old.subject & (new.content - shared)) and not shared >= rest - _stems("light"):
                continue
        elif not new.speaks_of_me and not old.subject & new.content and old.verb and not shared:
            continue
        if _told_apart(old, new) or _may_be_apart(old, new) or (shared <= old.subject and len(shared) < len(old.content)):
            continue
        if len(old.content - shared - new.content) > MOST_BESIDE or ("old" in new.tokens and "new" in old.tokens):
            continue  # it says more than what has ended, or is about what came in its place
        return 0.7 + 0.2 * len(shared) / len(old.content)
    return 0.0


def _attained(old: Wording, new: Wording) -> bool:
    """Return whether `new` says that what was looked for is found, or that what was going on is done."""
    if new.silent or not _same_owner(old, new):
        return False
    sought, obtained = _cue("sought").search(old.plain), _cue("obtained").search(new.plain)
    if sought is not None and obtained is not None:
        aim = _content(sought["gone"])
        return 0 < len(aim) <= MOST_BESIDE and aim <= _content(obtained["gone"])
    completed = _cue("completed").search(new.plain)
    if completed is None or _cue("going on").search(old.plain) is None:
        return False
    aim = _content(completed["gone"])
    return len(aim) > 0 and aim <= old.content and len(old.content) <= len(aim) + 2


def _coverage(old: Wording, new: Wording, unit: str = "") -> float:
    """Return the share of what `old` is about that `new` names. A unit that both count in is a part of that."""
    about = (old.anchors | old.action) - _stems("generic") or old.anchors | old.action
    shared, units = len(about & new.content), int(unit != "" and unit in new.content)
    return (shared + units) / (len(about) + units) if about or units else 0.0


def _other_state(old: Wording, new: Wording) -> float:
    """Return how surely `new` tells another state of what `old` is about, of which one holds at a time."""
    if any(value.kind in ("day", "clock") for value in (*old.values, *new.values)) and not new.changes:
        return 0.0  # "The pool is closed on Mondays"
    about = old.subject - _stems("generic") or old.subject
    for (table, group), state in new.states.items():
        other = old.states.get((table, group), state) != state
        same = about <= new.content if about else table == "conditions" and new.speaks_of_me and not new.subject
        if other and same:
            return 0.6 + 0.2 * _coverage(old, new)
    return 0.0


def _other_place(old: Wording, new: Wording) -> float:
    for there, enters in _places():
        was = there.search(old.plain) or enters.search(old.plain)
        if was and enters.search(new.plain) and old.subject <= new.subject <= old.content and not new.values:
            return 0.6
    return 0.0


def _other_value(old: Wording, new: Wording) -> float:
    """Return how surely `new` gives another value of the same kind for what `old` is about."""
    pair = next(((one, other) for one in old.values for other in new.values if _exclude(one, other, old, new)), None)
    if pair is None:
        return 0.0
    covered = _coverage(old, new, pair[0].of.removesuffix(" _"))
    if new.changes and covered >= 0.5:
        return 0.3 + 0.4 * covered
    if new.is_past or old.is_past:
        return 0.0
    same = old.anchors == new.anchors and old.anchors and _settles(old) and _settles(new)
    return 0.5 if same and not _habit(old) else 0.0


def _settles(wording: Wording) -> bool:
    verb = slice(wording.verb, wording.verb + 1)
    return not _words("settles").isdisjoint(wording.tokens[verb]) or not _stems("settles").isdisjoint(
        wording.stems[verb]
    )


def _habit(wording: Wording) -> bool:
    """Return whether it says what is done on a day, of which there may be several: "I work from home on Mondays"."""
    return (
        wording.speaks_of_me and not wording.subject and any(value.kind in ("day", "clock") for value in wording.values)
    )


def _exclude(one: Value, other: Value, old: Wording, new: Wording) -> bool:
    """Return whether two values may not both hold."""
    if one.kind != other.kind or one.value == other.value:
        return False
    if any(value.kind == one.kind and value.value == one.value and value.of == one.of for value in new.values):
        return False  # it repeats the value
    if one.kind != "number":
        return one.of == other.of
    if one.of == other.of:
        return True
    was, now = one.of.removesuffix(" _"), other.of.removesuffix(" _")
    if now == "" and was != one.of and old.subject and old.subject <= new.content:
        return True  # "Staging runs on port 4000": "Staging runs on 4100 now"
    money = _stems("money") | {""}
    return (was in money or was in new.content) and (now in money or now in old.content)


def _other_role(old: Wording, new: Wording) -> float:
    """Return how surely `new` says who or what has the place that somebody or something else has in `old`."""
    if not new.changes or old.is_past:
        return 0.0
    departed = new.departed
    if departed and departed <= old.content - {value.of for value in old.values}:
        rest = old.anchors - departed
        if rest and (2 * len(rest & (new.content - departed)) >= len(rest) or rest & new.leaves):
            return 0.7
    if old.values or new.values:
        return 0.0
    if not old.subject or not _is(old) or not _is(new):
        return 0.0
    same = old.subject == new.subject  # "My manager is Anna": "My manager is now Bo"
    ours = old.speaks_of_me == new.speaks_of_me
    other_way = ours and old.subject in (new.complement, new.subject)  # "Bo is my manager now"
    turned = ours and old.complement and old.complement == new.subject  # "Anna is my manager": "My manager is now Bo"
    differ = old.content - new.content and new.content - old.content
    named = bool(old.complement and new.complement and differ)
    if named and (other_way or turned or same):
        return 0.6
    functional = frozenset(map(stem, read_words("functional")))
    other = not (old.content - old.subject) & new.content
    return 0.6 if same and other and old.subject & functional else 0.0


def _other_of_the_same(old: Wording, new: Wording) -> float:
    """Return how surely `new` says of the same action, under the same circumstances, that it is done with something else now."""
    if not new.changes or old.values or new.values or old.subject - new.content:
        return 0.0
    shared, lost, added = old.content & new.content, old.content - new.content, new.content - old.content
    # "I drink tea in the morning": "I prefer coffee in the morning now"
    taste = bool(_stems("taste") & old.content and _stems("taste") & new.content - _stems("additive"))
    passing = _stems("taste") if taste else frozenset[str]()
    lost, added = lost - old.action - passing, added - _stems("change verbs") - passing
    if len(lost) != 1 or not 1 <= len(added) <= 2:
        return 0.0
    to_another = _cue("to another").search(new.plain) is not None
    acts = old.action & new.content & _stems("exclusive")
    if len(shared) >= 2:
        parallel = len(added) == 1 and old.action & new.content - _stems("additive")
        return 0.5 if acts or to_another or parallel else 0.0
    if taste and len(added) == 1 and shared - _stems("taste"):
        return 0.5
    short = to_another and len(old.content) <= 3
    return 0.5 if len(added) == 1 and shared and (short or shared <= acts) else 0.0


def _is(wording: Wording) -> bool:
    return wording.verb < len(wording.tokens) and wording.tokens[wording.verb] in _words("be")
