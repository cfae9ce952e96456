"""Tells which older statements a change leaves true although they share words with it: the dog whose crate was sold, a flight
where another one is cancelled, one's own home where a friend moves.

    is_beside_the_change("I have a dog called Rex.", "I sold my dog crate.")  ->  True

In doubt a change replaces nothing, so that each rule names a way in which the two may both be true.
"""

from __future__ import annotations

import re

from keepworth.memory.change_frames import around
from keepworth.memory.switches import kinds_of
from keepworth.memory.wording import Wording, content_of, cue, read, sign, word_list

_NAME = re.compile(r"(?<![.!?] )(?<!^)(?<!\w)[A-ZÀ-Þ][\w'’-]+")
"""A word that is written like a name, and does not begin a sentence."""


def is_beside_the_change(old: str, new: str) -> bool:
    """Return whether what the newer statement tells may be so beside what the older one says."""
    before, after = read(old), read(new)
    return (
        _ends_another_thing(before, after)
        or _tells_what_was_before(before, after)
        or _adds_an_event(before, after)
        or _is_of_a_companion(before, after)
        or _is_so_at_times(before, after)
        or _moves_elsewhere(before, after)
        or _is_beside_what_is_denied(before, after)
    )


def _names_in(statement: Wording) -> frozenset[str]:
    """Return the names in a statement but those of days and months, in lower case."""
    return frozenset(
        name.lower().removesuffix("'s")
        for name in _NAME.findall(statement.plain)
        if not cue("calendar").fullmatch(name)
    ) - {"i", "i'm", "i've"}


def _ends_another_thing(before: Wording, after: Wording) -> bool:
    """Return whether the newer statement tells the end of something that only shares a part of its name with what the older one
    is about: an accessory ("dog crate"), or another one of the sort ("a flight to Oslo")."""
    match = cue("ends something").search(after.plain)
    if match is None or around("change").search(after.plain[match.end() :]) is not None:
        return False
    phrase = [word for word in re.findall(r"[\w'’-]+", match["thing"]) if not cue("calendar").fullmatch(word)]
    while phrase and (phrase[-1].lower() in word_list("small") or phrase[-1].lower() in word_list("done with")):
        phrase.pop()
    if not phrase:
        return False
    theirs, behind = before.content, content_of(after.plain[match.end() :])
    head, others = content_of(phrase[-1]), content_of(" ".join(phrase[:-1])) | behind
    if phrase[-1].lower() not in word_list("whole things") and not head & theirs and others & theirs:
        return True
    names, older = _names_in(after), _names_in(before)
    return bool(names) and bool(older) and names.isdisjoint(older) and bool(head & theirs)


def _tells_what_was_before(before: Wording, after: Wording) -> bool:
    """Return whether the newer statement only tells what was so earlier: "My old office was in room 101"."""
    return cue("of before").search(after.plain) is not None and cue("of before").search(before.plain) is None


def _adds_an_event(before: Wording, after: Wording) -> bool:
    """Return whether both tell of something that is ahead at different times, of which there may be several: "I have an exam on
    June 9"."""
    return (
        all(cue("has an event").match(one.plain) is not None for one in (before, after))
        and around("change").search(after.plain) is None
        and around("corrects").search(after.plain) is None
    )


def _is_of_a_companion(before: Wording, after: Wording) -> bool:
    """Return whether the newer statement is about somebody who is only named beside the speaker, or in a list, in the older one:
    "I live in Rome with Eva", "Eva moved to Paris"."""
    who = cue("somebody").match(after.plain)
    if who is None:
        return False
    name = re.escape(who["who"])
    listed = re.search(rf"(?:[,:] |, and | and ){name}\b|\b{name},", before.plain, re.IGNORECASE)
    if listed is not None and len(re.findall(r"[A-ZÀ-Þ]\w+", before.plain)) >= 3:
        return True
    if cue("of the speaker").match(before.plain) is None or cue("parts").search(after.plain) is not None:
        return False
    return (
        re.search(rf"\b(?:with|to|of|mit|neben|bei|avec|chez|con) (?:my |our )?{name}\b", before.plain, re.I)
        is not None
    )


def _is_so_at_times(before: Wording, after: Wording) -> bool:
    """Return whether the newer statement is so at some times only, and the older one names none."""
    return (
        cue("at some times").search(after.plain) is not None
        and cue("at some times").search(before.plain) is None
        and cue("now and then").search(before.plain) is None
        and around("often").search(before.plain) is None
        and around("change").search(after.plain) is None
    )


def _moves_elsewhere(before: Wording, after: Wording) -> bool:
    """Return whether the newer statement tells of a move that is none of the home which the older one names."""
    if cue("lives somewhere").search(before.plain) is None:
        return False
    match = cue("moves").search(after.plain)
    if match is None:
        return cue("moves something").search(after.plain) is not None
    where = (match["where"] or match["to"]).strip(" .!")
    if where.lower() in word_list("systems") or kinds_of(where.lower()):
        return True
    back = re.search(r"\bback to (?P<name>[A-ZÀ-Þ]\w+)", after.plain)
    if back is not None and back["name"].lower() in before.tokens:
        return True
    article = cue("a place").match(where)
    named = _names_in(before)
    return article is not None and bool(named) and article["noun"].lower() not in word_list("settlements")


def _is_beside_what_is_denied(before: Wording, after: Wording) -> bool:
    """Return whether the older statement denies one thing, and the newer tells of another: "I don't eat meat", "I eat fish"."""
    denied = cue("not taken")
    match = denied.match(before.plain)
    if match is None or denied.match(after.plain) is not None or sign("denied").search(after.plain) is not None:
        return False
    taken = cue("taken").match(after.plain)
    return (
        taken is not None
        and around("change").search(after.plain) is None
        and content_of(match["what"]).isdisjoint(content_of(taken["what"]))
    )
