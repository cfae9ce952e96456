"""What says surely that two statements are about different things, however alike their words are.

These are no signs to be weighed: a note that is replaced by a statement about something else is a wrong answer later, without a
word. Each function names one way in which things are told apart.
"""

from __future__ import annotations

import re
from itertools import pairwise

from keepworth.memory.change_signs import ReadStatement, is_past
from keepworth.memory.switches import kinds_of
from keepworth.memory.told_changes import tells_of_change, tells_of_end, tells_surely
from keepworth.memory.wording import Wording, cue, read, sign, stem_list, topics_of, word_list


def about_others(old: ReadStatement, new: ReadStatement) -> bool:
    """Return whether the two statements are surely about different things, persons or times."""
    return (
        _numbers_differ(old.wording, new.wording)
        or _persons_differ(old, new)
        or _is_turned_round(old.wording, new.wording)
        or _times_differ(old, new)
        or _directions_differ(old.wording, new.wording)
        or is_of_the_new_one(old.wording, new.wording)
        or _are_two_events(old, new)
        or _settings_differ(old.wording, new.wording)
        or _is_only_the_value(old.wording, new.wording)
        or (_TOGETHER.match(new.wording.plain) is not None and _PARTED.search(new.wording.plain) is None)
        or _IN_THE_PAST.search(old.wording.plain) is not None
        or _AWAY.search(new.wording.plain) is not None
        or _is_named_like_a_product(old.wording, new.wording)
        or _is_beside(old.wording, new.wording)
    )


def changes_no_state(old: str, new: str) -> bool:
    """Return whether the newer statement surely leaves a state as it is: it tells what was nearly so, what was so in a childhood,
    what is supposed, what was over for a while, or what is not so at some times or places that the older one does not name."""
    before, after = read(old), read(new)
    if _begin_and_end(before, after):
        return True
    if cue("no longer").search(after.plain) is not None:
        return False
    if any(
        cue(name).search(after.plain) is not None for name in ("was not so", "so again", "supposed", "not told as so")
    ):
        return True
    at_times = cue("now and then")
    return (
        sign("denied").search(after.plain) is not None
        and sign("denied").search(before.plain) is None
        and at_times.search(after.plain) is not None
        and at_times.search(before.plain) is None
    )


_TOGETHER = re.compile(r"(?:my |our )?\w+ (?:and|und|et|y) (?:I|ich|moi|yo|(?:my )?\w+) (?=\w)", re.IGNORECASE)
"""What two do together says nothing of what they are to each other: "Tess and I went to Rome"."""
_PARTED = re.compile(
    r"\b(?:broken?|split|separat\w+|divorc\w+|married|engaged|over|no longer|any ?more|now|moved|left|sold|getrennt|geschieden|"
    r"verheiratet|romp\w+|sépar\w+|mariés?|casamos|mud\w+|déménagé|gezogen)\b",
    re.IGNORECASE,
)
_AWAY = re.compile(
    r"\b(?:left|gone|parti|partie|gegangen|gefahren|fue|ido)\b.* (?:this morning|this afternoon|tonight|today|early|on holiday|"
    r"on vacation|for (?:lunch|the day|the weekend)|en vacances|en week-end|de vacaciones|in (?:den )?urlaub)\b",
    re.IGNORECASE,
)
"""Who has left for a while comes back."""
_TITLED = re.compile(r"\b(?:Mr|Mrs|Ms|Herr|Frau|Monsieur|Madame|Señora?)\.? (?P<name>[A-ZÀ-Þ]\w+)")
_IN_THE_PAST = re.compile(
    r"\b(?:last (?:year|month|week|night|summer|winter|spring|autumn|weekend)|yesterday|\w+ ago|gestern|"
    r"letzte[sn]? \w+|hier soir|l'an(?:née)? derni(?:er|ère)|ayer|el año pasado)\b",
    re.IGNORECASE,
)
"""An older statement of what was done at a time that is past tells of no state."""


def _is_beside(old: Wording, new: Wording) -> bool:
    """Return whether the same thing does with something else what is done with several beside each other: "The app supports
    English", "The app supports German now"."""
    same = bool(old.subject) and old.subject == new.subject and old.action == new.action
    return same and bool(old.action & stem_list("additive")) and not tells_of_end(new.text)


def _begin_and_end(old: Wording, new: Wording) -> bool:
    """Return whether one tells when something begins, and the other when it ends: "It starts on Monday", "it ends on Friday"."""
    if not (old.values and new.values):
        return False
    begins, ends = word_list("begins"), word_list("ends")
    sides = [(not begins.isdisjoint(one.tokens), not ends.isdisjoint(one.tokens)) for one in (old, new)]
    return sorted(sides) == [(False, True), (True, False)]


def _is_named_like_a_product(old: Wording, new: Wording) -> bool:
    """Return whether the newer is about a person by the name of a product in the older: "We use Jenkins", "Mr. Jenkins"."""
    match = _TITLED.search(new.plain)
    if match is None:
        return False
    name = match["name"].lower()
    return name in old.tokens and bool(kinds_of(name)) and _TITLED.search(old.plain) is None


def _numbers_differ(old: Wording, new: Wording) -> bool:
    """Return whether numbers name what they are about: "Gate 4 is 9", "gate 9 is 12"."""
    theirs, ours = _labels(old), _labels(new)
    return bool(theirs and ours) and theirs.isdisjoint(ours)


def _labels(wording: Wording) -> set[str]:
    """Return the numbers behind a noun, before the verb."""
    return {
        number
        for noun, number in pairwise(wording.tokens[: wording.verb])
        if number[:1].isdigit() and noun[:1].isalpha() and noun not in word_list("before counts")
    }


def _persons_differ(old: ReadStatement, new: ReadStatement) -> bool:
    """Return whether they say the same of different persons: "My wife drives a Skoda", "I sold my Skoda"."""
    same = (old.weighed - old.wording.subject) & new.wording.content
    if not same:
        return False
    doing = old.wording.action == new.wording.action != frozenset()
    role = any("role_person" in topics_of(word) for word in new.wording.subject - old.wording.content)
    if doing and role and old.wording.speaks_of_me:
        return True  # "I work from home on Mondays", "My boss works from home on Fridays"
    theirs, ours = _persons(old), _persons(new)
    unknown, unnamed = theirs - new.wording.content, ours - old.wording.content
    if theirs and theirs == unknown:
        return bool(ours) or new.wording.speaks_of_me
    return bool(ours) and ours == unnamed and not theirs and old.wording.speaks_of_me


def _persons(read: ReadStatement) -> frozenset[str]:
    """Return whom the subject names: relatives, friends and owners, or somebody by a single name."""
    wording = read.wording
    if wording.others or wording.speaks_of_me or not wording.raw or not 0 < wording.verb < 3:
        return wording.others
    named = wording.raw[0][:1].isupper() and not wording.light[0] and len(wording.subject) == 1
    thing = wording.tokens[0] in word_list("agents") or wording.tokens[0].endswith("s")
    return wording.subject if named and not thing else frozenset()


def attributes_differ(old: Wording, new: Wording) -> bool:
    """Return whether the newer tells of no change, and is about another thing, or tells another attribute of it: "My class is on
    Tuesdays", "My class has eight people"."""
    if max(old.verb - len(old.tokens), new.verb - len(new.tokens)) >= 0:
        return False  # a note without a verb leaves out what it is about
    if tells_of_change(new.text) or new.changes or sign("denied").search(new.plain) or _tells_of_the_past(new):
        return False
    is_same = old.says_what_it_is and new.says_what_it_is  # "Bo is my manager", "My manager is Anna"
    if old.subject.isdisjoint(new.subject) and (old.subject or new.subject):
        return not (is_same and (old.subject & new.content or new.subject & old.content))
    kinds, others = ({value.kind for value in wording.values} for wording in (old, new))
    return bool(kinds and others) and kinds.isdisjoint(others)


_PARTICIPLE = re.compile(r"ge\w{2,}(?:t|en)|(?:ver|be|ent)\w{2,}t|um\w+|\w{3,}ée?s?|\w{3,}[ai]d[oa]|morte?")


def _tells_of_the_past(wording: Wording) -> bool:
    """Return whether it tells what was done, or says more than one thing."""
    done = any(
        is_past(word) or _PARTICIPLE.fullmatch(word) or word in ("put", "cut", "had", "set") for word in wording.tokens
    )
    return done or ", " in wording.plain


def _is_only_the_value(old: Wording, new: Wording) -> bool:
    """Return whether the newer says of something that it has become, or has, what the older one is about: "Greyhounds are fast",
    "I adopted a greyhound"."""
    if not old.subject or not new.content & old.content <= old.subject or not old.subject.isdisjoint(new.subject):
        return False
    last = next((at for at in range(len(new.stems) - 1, -1, -1) if not new.light[at]), 0)
    if new.stems[last] not in old.subject or tells_of_end(new.text):
        return False
    becomes = {"to", "is", "called", "named", "with", "into"} & {*new.tokens[max(0, last - 4) : last]}
    return bool(becomes) or not tells_surely(new.text)


def _is_turned_round(old: Wording, new: Wording) -> bool:
    """Return whether who does it and to whom have changed places: "I owe Alice 20 euros", "Alice owes me 30"."""
    if not old.action or old.action != new.action:
        return False
    mine = [
        bool(wording.tokens) and wording.tokens[0] in ("i", "we", "ich", "wir", "je", "yo") for wording in (old, new)
    ]
    if mine[0] == mine[1]:
        return False
    first, other = (old, new) if mine[0] else (new, old)
    return bool(other.subject) and other.subject <= first.content and other.speaks_of_me


def _times_differ(old: ReadStatement, new: ReadStatement) -> bool:
    """Return whether both tell what was at different times: "In March we sold 200", "In April we sold 250"."""
    if not (old.is_of_the_past and new.is_of_the_past):
        return False
    times = stem_list("months") | stem_list("seasons")
    theirs, ours = (frozenset(read.wording.stems) & times for read in (old, new))
    return bool(theirs and ours) and theirs.isdisjoint(ours)


def _directions_differ(old: Wording, new: Wording) -> bool:
    """Return whether one is to and the other from the same: "My flight to Rome", "my flight from Rome"."""
    to, away = word_list("ways to"), word_list("ways from")
    ways = [dict(pairwise(reversed(wording.stems[: wording.verb]))) for wording in (old, new)]
    return any(
        (ways[0][word] in to and ways[1].get(word) in away) or (ways[0][word] in away and ways[1].get(word) in to)
        for word in ways[0]
    )


def is_of_the_new_one(old: Wording, new: Wording) -> bool:
    """Return whether the older is about the old thing and the newer about the new one: "The old server has 16 GB"."""
    before, after = set(old.tokens[: old.verb]), set(new.tokens[: new.verb])
    was, becomes = word_list("old ones"), word_list("new ones")
    return bool(before & was and after & becomes) or bool(before & becomes and after & was)


def _settings_differ(old: Wording, new: Wording) -> bool:
    """Return whether they are about where different software runs: "off in production", "on in staging"."""
    theirs, ours = (
        {"prod" if word == "production" else word for word in word_list("settings") & {*wording.tokens}}
        for wording in (old, new)
    )
    return bool(theirs and ours) and theirs.isdisjoint(ours)


def _are_two_events(old: ReadStatement, new: ReadStatement) -> bool:
    """Return whether both tell that the same was done with different things: "Ana has bought the chairs", "... the lamps"."""
    done, again = _done(old), _done(new)
    if not done or done != again or any(map(new.has, ("now", "ended", "moved"))):
        return False
    return bool(old.weighed - new.wording.content and new.weighed - old.wording.content)  # "order 3", "order 20", too


def _done(read: ReadStatement) -> str:
    """Return the stem of the verb that tells of something done, or "": that of "bought", "has bought"."""
    wording, at = read.wording, read.wording.verb
    if read.verb in word_list("have") and at + 1 < len(wording.tokens):
        return wording.stems[at + 1] if is_past(wording.tokens[at + 1]) else ""
    return wording.stems[at] if at < len(wording.tokens) and is_past(wording.tokens[at]) else ""
