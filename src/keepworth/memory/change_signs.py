"""Signs by which it is weighed whether a statement replaces an older one: numbers between 0 and some 4, each with a name.

They say how far both are about the same thing, what in the newer one tells of a change, and what tells the two apart. Among them
are the rules for single kinds of change (`change_rules`). `replaced_statements` weighs them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import cached_property, lru_cache

from keepworth.memory.change_rules import (
    attained,
    coverage,
    exclude,
    may_be_apart,
    named_as_gone,
    other_of_the_same,
    other_place,
    other_role,
    other_state,
    other_value,
    same_owner,
    told_apart,
)
from keepworth.memory.wording import Wording, cue, read, sign, stem_list, topics_of, word_list

CUES = ("now", "ended", "moved", "amount", "begun", "mended", "denied")
"""Kinds of words of a change."""
MOST_WORDS = 16
"""The most words of a statement to which the rules are applied as a whole. A longer one is taken clause by clause."""
_CLAUSE = re.compile(r"[,;:.!?()—–]\s|\s(?:and|but|so|because|while|und|aber|et|mais|y|pero)\s")
_SENTENCE = re.compile(r"[.!?;:]\s+")
_PAST = re.compile(
    r"[a-zà-ÿ]{3,}(?:ed|pt|ught)|got|went|took|gave|made|came|sold|left|quit|lost|won|broke|fell|rose|grew|ran|met|hit|drove|flew|wore|"
    r"chose|built|bought|caught|found|began|became|was|were|did|told|said|saw|ate|shut|split|threw|sent|paid|died|slept|spent"
)
_LASTING = frozenset({"called", "booked", "scheduled"})
"""Of verbs in the past those whose result lasts."""


def is_past(verb: str) -> bool:
    """Return whether a verb tells of the past, and not of a state that lasts since then."""
    return _PAST.fullmatch(verb) is not None and verb not in _LASTING


class ReadStatement:
    """What the signs need of one statement."""

    def __init__(self, text: str) -> None:
        self.wording = wording = read(text)
        self._places: dict[str, list[int]] = {}
        self._has: dict[str, bool] = {}
        self.asks = "?" in text[-3:]
        self.unsure = cue("nothing").search(wording.plain.replace("I'd rather", "I prefer")) is not None
        times = stem_list("weekdays") | stem_list("months") | stem_list("seasons")
        self.small = times | stem_list("light")
        self.weighed = wording.content - self.small or wording.content
        places = range(len(wording.tokens))
        heads = {0, *(bisect_left(wording.starts, match.end()) for match in _SENTENCE.finditer(wording.plain))}
        capitals = [at for at in places if wording.raw[at][0].isupper() and not wording.light[at]]
        dates = word_list("weekdays") | word_list("months")
        self.names = frozenset(
            wording.stems[at] for at in capitals if at not in heads and wording.tokens[at] not in dates
        )
        self.capitals = frozenset(wording.stems[at] for at in capitals)
        self.kin = frozenset(
            wording.stems[at] for at in places if wording.tokens[at].removesuffix("'s") in word_list("kin")
        )
        self.owners = frozenset(wording.stems[at] for at in places if wording.owns(at))
        valued = {at for value in wording.values for at in value.at}
        self.numbers = frozenset(wording.stems[at] for at in places if any(map(str.isdigit, wording.tokens[at])))
        self.values = self.numbers | {wording.stems[at] for at in valued}
        self.verb = wording.tokens[wording.verb] if wording.verb < len(wording.tokens) else ""
        self.subject, self.head = self._subject()
        cuts = [match.start() for match in _CLAUSE.finditer(wording.plain)]
        self.clause = [bisect_left(cuts, start) for start in wording.starts]

    @cached_property
    def topics(self) -> frozenset[str]:
        """The topics of its words."""
        return frozenset(topic for word in self.wording.content for topic in topics_of(word))

    @cached_property
    def weighed_topics(self) -> frozenset[str]:
        """The topics of the words that are weighed."""
        return frozenset(topic for word in self.weighed for topic in topics_of(word))

    def _subject(self) -> tuple[frozenset[str], str]:
        """Return the stems of the subject, and the last of them. Without a verb it ends at the first preposition."""
        wording = self.wording
        end = wording.verb
        if not self.verb:
            small = word_list("prepositions") | {"at", "since", "until", "from"}
            end = min(3, next((at for at in range(1, len(wording.tokens)) if wording.tokens[at] in small), 3))
        start = wording.head if self.verb else 0
        words = [wording.stems[at] for at in range(start, min(end, len(wording.tokens))) if not wording.light[at]]
        return frozenset(words), words[-1] if words else ""

    def places(self, kind: str) -> list[int]:
        """Return the places of words of one kind of sign which nothing denies."""
        if kind not in self._places:
            self._places[kind] = self._find(kind)
        return self._places[kind]

    def _find(self, kind: str) -> list[int]:
        plain = self.wording.plain
        return [
            max(0, bisect_right(self.wording.starts, match.start()) - 1)
            for match in sign(kind).finditer(plain)
            if kind in ("denied", "now") or cue("denied").search(plain[: match.start()]) is None
        ]

    def has(self, kind: str) -> bool:
        """Return whether there is a word of one kind of sign."""
        if kind not in self._has:
            self._has[kind] = sign(kind).search(self.wording.plain) is not None
        return self._has[kind]

    @property
    def is_of_the_past(self) -> bool:
        """Whether it tells what was done, and not what has come of it."""
        return self.wording.is_past or is_past(self.verb)


@lru_cache(2048)
def reading(text: str) -> ReadStatement:
    """Return what the signs need of a statement."""
    return ReadStatement(text)


def like(word: str, words: frozenset[str]) -> bool:
    """Return whether a stem is among `words`, or one of them begins with it or the other way round: "chem", "chemistry"."""
    if word in words:
        return True
    return (
        len(word) >= 4
        and word.isalpha()
        and any(
            len(other) >= 4
            and (word.startswith(other) or other.startswith(word))
            and abs(len(word) - len(other)) <= max(3, min(len(word), len(other)))
            for other in words
        )
    )


@lru_cache(1024)
def shared(old: ReadStatement, new: ReadStatement) -> tuple[frozenset[str], frozenset[str]]:
    """Return the words of each of two statements that the other one has. Names have to be the same."""
    common, uncommon = new.wording.content, new.wording.content - new.capitals
    theirs = {
        word for word in old.weighed
        if word in common or (word not in old.names and like(word, uncommon if word in old.capitals else common))
    }  # fmt: skip
    ours = {word for word in common if word in old.wording.content or like(word, old.weighed - old.names)}
    return frozenset(theirs), frozenset(ours)


def signs(old_text: str, new_text: str) -> dict[str, float]:
    """Return the signs that the second statement replaces the first, or does not, by name."""
    before, after = reading(old_text), reading(new_text)
    old, new = before.wording, after.wording
    theirs, ours = shared(before, after)
    generic, changing = stem_list("generic"), stem_list("changing")
    foreign = new.content - ours - changing - (after.values | after.names) - after.small
    strange = [word for word in foreign if topics_of(word).isdisjoint(before.weighed_topics)]
    about = before.weighed - (before.values | before.names)
    subject = before.subject - generic or before.subject
    light = before.verb in word_list("auxiliaries") or not before.verb
    action = "" if light or old.stems[old.verb] in stem_list("light") else old.stems[old.verb]
    rest = before.weighed - subject - {action}
    objects = frozenset(word for word in new.content if like(word, rest - before.names) or word in rest)
    lost = before.weighed - theirs
    theirs_of_new = after.subject - generic - changing - after.small - stem_list("agents") - ours
    in_subject = bool(after.subject & ours)
    places = {kind: after.places(kind) for kind in CUES}
    clauses = {after.clause[at] for at, word in enumerate(new.stems) if word in ours}
    near = {kind: any(after.clause[at] in clauses for at in there) for kind, there in places.items()}
    with_object = {after.clause[at] for at, word in enumerate(new.stems) if word in objects}
    compound = _compounds(after, ours, foreign)
    qualifiers = stem_list("qualifiers")
    apart = told_apart(old, new)
    clean = not (
        apart
        or compound
        or (theirs_of_new and not in_subject)
        or after.kin - old.content
        or after.owners - old.content
        or (new.content & qualifiers) - old.content
        or (old.content & qualifiers) - new.content
    )
    departed = new.departed if new.tokens[0] not in word_list("first") else frozenset()
    rules = _by_rules(old, new)
    share = len(theirs) / len(before.weighed) if before.weighed else 0.0
    any_cue = any(near.values())
    conflict = any(exclude(one, other, old, new) for one in old.values for other in new.values)
    somebody = bool((after.capitals - old.content) and after.has("role"))
    return {
        "shared of the older": share,
        "shared of the newer": len(ours) / max(1, len(new.content)),
        "subject named": len(subject & theirs) / len(subject) if subject else 0.0,
        "head named": bool(before.head) and like(before.head, new.content),
        "same head": bool(before.head) and before.head == after.head,
        "same action": bool(action) and like(action, new.content),
        "foreign words": min(4, len(strange)),
        "share of foreign words": len(strange) / max(1, len(new.content)),
        "foreign words in a shared subject": min(3, len(theirs_of_new)) if in_subject else 0,
        "subject was no subject": bool(after.subject & rest),
        "kin lost": bool(before.kin - after.kin),
        "told apart": apart,
        "may be apart": may_be_apart(old, new),
        "same owner": same_owner(old, new),
        "a number only now": bool(after.numbers) and not before.numbers,
        "name kept": bool(before.names & theirs),
        "lost of a topic that is there": len([1 for word in lost if topics_of(word) & after.topics]) / len(lost)
        if lost
        else 0.0,
        "now": bool(places["now"]),
        "moved": bool(places["moved"]),
        "moved near": near["moved"],
        "ended near an object": any(after.clause[at] in with_object for at in places["ended"]),
        "what is moved": _behind(after, places["moved"], ours, changing),
        "what moves": _ahead(after, places["moved"], ours, changing),
        "also": after.has("also") or new.adds,
        "a wish": after.has("wish"),
        "an older wish": before.has("wish"),
        "told": after.has("told"),
        "nothing stated": new.silent,
        "nothing stated before": old.silent,
        "older is past": before.is_of_the_past,
        "older denies": before.has("denied"),
        "one denies": before.has("denied") != after.has("denied"),
        "tells of a change": new.changes,
        "length": min(25, len(new.tokens)) / 10,
        "compound": min(2, compound),
        "somebody in a role": somebody,
        "somebody in this role": share * somebody,
        "a cue near": any_cue,
        "a cue about the same": share * (any_cue and clean),
        "another value of the same": (coverage(old, new) if about else 0.5) * (conflict and clean),
        "somebody else has left": bool(departed) and not departed & old.content,
        "another value, and a cue": conflict and clean and any_cue,
        "named as ended, and nothing apart": rules["named as ended"] and clean and not new.silent,
        **rules,
    }


def _by_rules(old: Wording, new: Wording) -> dict[str, float]:
    """Return which rules hold for the newer statement or one of its clauses."""
    whole = [new] if len(new.tokens) <= MOST_WORDS or not new.clauses else []
    parts = [
        part for part in (*whole, *new.clauses)
        if same_owner(old, part) and not told_apart(old, part) and not may_be_apart(old, part)
    ]  # fmt: skip
    rules = {
        "another state": other_state,
        "another place": other_place,
        "another value": other_value,
        "another in the role": other_role,
        "another of the same": other_of_the_same,
    }
    ended = named_as_gone(old, new) > 0 or attained(old, new)
    return {
        "named as ended": ended,
        **{name: any(rule(old, part) > 0 for part in parts) for name, rule in rules.items()},
    }


def _compounds(new: ReadStatement, ours: frozenset[str], foreign: frozenset[str]) -> int:
    """Return how many of the shared words only say which foreign thing is meant: "pilates mat", "Viktor's dog"."""
    wording, count = new.wording, 0
    for at, word in enumerate(wording.stems[:-1]):
        if wording.light[at] or word not in ours:
            continue
        after = wording.stems[at + 1]
        if wording.owns(at):
            behind = [wording.stems[i] for i in range(at + 1, min(len(wording.stems), at + 4)) if not wording.light[i]]
            count += bool(behind) and behind[0] in foreign
        elif after in foreign and new.clause[at] == new.clause[at + 1] and at + 1 != wording.verb:
            count += not (_PAST.fullmatch(wording.tokens[at + 1]) or wording.tokens[at + 1].endswith(("ing", "ly")))
    return count


def _behind(new: ReadStatement, places: list[int], ours: frozenset[str], changing: frozenset[str]) -> int:
    """Return 1 if the first word with a content of its own behind one of the places is shared, -1 if it is another one."""
    return _next_to(new, [range(at + 1, min(len(new.clause), at + 6)) for at in places], places, ours, changing)


def _ahead(new: ReadStatement, places: list[int], ours: frozenset[str], changing: frozenset[str]) -> int:
    """Return the same for the last word ahead of one of the places."""
    return _next_to(new, [range(at - 1, max(-1, at - 7), -1) for at in places], places, ours, changing)


def _next_to(
    new: ReadStatement, ranges: list[range], places: list[int], ours: frozenset[str], changing: frozenset[str]
) -> int:
    wording = new.wording
    for at, others in zip(places, ranges, strict=True):
        for other in others:
            word = wording.stems[other]
            if not wording.light[other] and new.clause[other] == new.clause[at] and word not in changing:
                return 1 if word in ours else -1
    return 0
