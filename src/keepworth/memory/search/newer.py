"""Puts the newer of two contradicting facts about one person first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from keepworth.memory.item import Item
from keepworth.memory.replaced_statements import replaces
from keepworth.memory.search.terms import QueryTerms, latin_words, only_latin, terms, terms_and_languages, words
from keepworth.memory.switches import tells_switch
from keepworth.memory.wording import cue, read, word_list

if TYPE_CHECKING:
    from keepworth.memory.search.search import Hit

NEAR = 0.9
"""A score of at least this share of the better one's is a near tie."""
SAME = 2
"""How many words two texts must have in common around what differs: "I live in Oslo" is about what "I live in Bergen" is about,
and "red car" is not about what "blue car" is about."""
LONGEST, LONGEST_VALUE = 300, 6
"""Largest number of characters of a text that is compared, and of words in which two texts may differ."""
_YEAR = re.compile(r"(?:19|20)\d\d")
_CONTRACTED = frozenset(words("don doesn isn aren can"))
"""These make a negation with the word "t", as in "don't"."""


def newer_first(hits: Sequence[Hit], asked: QueryTerms, question: str) -> list[Hit]:
    """Let newer facts take the places of older facts that they contradict.

    Two hits contradict if they are about the same person and their texts differ in a few adjacent words that the
    question does not ask for, or one negates the other, or the newer one tells in other words that the older has
    changed (`memory.replaced_statements`). The newest of them gets the place and the score of the best, unless the
    question is about the past. If the question has words that the texts lack, it may mean one of the values; then
    only hits of nearly equal scores change places. Each hit gets the ids of those that it contradicts.

    Args:
        hits: The hits, best first.
        asked: The terms of the question.
        question: Its text.
    """
    words_of = [words(hit.item.text) if len(hit.item.text) <= LONGEST else [] for hit in hits]
    groups: list[list[int]] = []
    for index, hit in enumerate(hits):
        if cue("asks").search(hit.item.text):
            continue
        for group in groups:
            first = hits[group[0]]
            values = _values(words_of[group[0]], words_of[index])
            if (
                values
                and first.score > 0
                and _same_person(first.item, hit.item)
                and _exclude(first.item, hit.item, values)
            ):
                unsure = _may_mean_one(first.item.text, hit.item.text, values, asked)
                if unsure is not None and (not unsure or hit.score >= NEAR * first.score):
                    group.append(index)
                    break
        else:
            groups.append([index])
    if not any(_YEAR.fullmatch(term) for group in asked.groups for term in group):  # a year asks for what was so then
        _join_changes(groups, hits, words_of)
    out, past = list(hits), about_the_past(question)
    for group in groups:
        if len(group) > 1:
            order = group if past else sorted(group, key=lambda index: _time(hits[index].item), reverse=True)
            ids = [hits[index].id for index in group]
            for index, source in zip(group, order, strict=True):
                hit, there = hits[source], hits[index]
                out[index] = replace(
                    hit,
                    score=there.score,
                    conflicts=tuple(id for id in ids if id != hit.id),
                    instead_of=there.id if there.id != hit.id else "",
                )
    return out


@cache
def _stems(*names: str) -> frozenset[str]:
    """Return the stems of lists of words."""
    return frozenset(stem for name in names for word in word_list(name) for stem in words(word))


def _join_changes(groups: list[list[int]], hits: Sequence[Hit], words_of: Sequence[list[str]]) -> None:
    """Put hits that tell of a change into the groups of the older hits that they replace."""
    group_of = {index: group for group in groups for index in group}
    for index, new in enumerate(hits):
        switched = tells_switch(new.item.text)
        if index not in group_of or (not switched and _stems("triggers").isdisjoint(words_of[index])):
            continue
        about = {*words_of[index]} - _stems("beside")
        for other, old in enumerate(hits):
            mine, theirs = group_of[index], group_of.get(other)
            if (
                theirs is None
                or mine is theirs
                or (not switched and about.isdisjoint(words_of[other]))
                or _time(old.item) >= _time(new.item)
            ):
                continue
            if old.score > 0 and _same_speaker(old.item, new.item) and replaces(old.item.text, new.item.text):
                theirs[:] = sorted({*mine, *theirs})
                groups.remove(mine)
                group_of.update(dict.fromkeys(theirs, theirs))


def about_the_past(question: str) -> bool:
    """Return whether an English question asks for something in the past, and not for how it is now."""
    asked = latin_words(cue("about now").sub(" ", question))
    past = word_list("about the past").intersection(asked)
    return bool(past - word_list("about an age") if "now" in asked else past)


def _values(one: list[str], other: list[str]) -> tuple[list[str], list[str]] | None:
    """Return the words in which two texts differ, between their common beginning and end, or the negations if one negates the
    other, or None if they have too little in common."""
    if not one or not other or (one[0] != other[0] and one[-1] != other[-1]) or len({*one}.intersection(other)) < SAME:
        return None
    (stated, negation), (also, another) = map(_without_negation, (one, other))
    if stated == also and negation != another:
        return negation, another
    one, other = ([word for word in words if word not in _stems("beside")] for words in (one, other))
    shorter = min(len(one), len(other))
    start = next((at for at in range(shorter) if one[at] != other[at]), shorter)
    end = next((at for at in range(shorter - start) if one[-1 - at] != other[-1 - at]), shorter - start)
    values = one[start : len(one) - end], other[start : len(other) - end]
    return values if start + end and all(0 < len(value) <= LONGEST_VALUE for value in values) else None


def _without_negation(listed: list[str]) -> tuple[list[str], list[str]]:
    """Return the words of a text without its negation, and ["not"] if it has one that negates the whole of it."""
    stated, negation = list[str](), list[str]()
    for word, before in zip(listed, ["", *listed], strict=False):
        if word in _stems("negations") or (word == "t" and before in _CONTRACTED):
            if not _stems("clauses").isdisjoint(stated):
                return listed, []
            negation = ["not"]
        elif word == "just" or word not in _stems("beside", "with negations") | _CONTRACTED:
            stated.append(word)
    return stated, negation


def _may_mean_one(one: str, other: str, values: tuple[list[str], list[str]], asked: QueryTerms) -> bool | None:
    """Return whether a question may mean the value of one of two contradicting texts. None means that it names one of the values,
    or asks for something that neither text is about."""
    light = _stems("beside", "asking").union(term for term, weight in asked.weights.items() if weight < 1.0)
    wanted = [group for group in asked.groups if light.isdisjoint(group)]
    listed, languages = terms_and_languages(one)
    first, second = set(listed), set(terms(other, only_latin(languages)))
    both, either = first & second, first ^ second
    lacking = [group for group in wanted if both.isdisjoint(group)]
    if len(lacking) == len(wanted) or any(
        not either.isdisjoint(group) or any(map(_YEAR.fullmatch, group)) for group in lacking
    ):
        return None
    return bool(lacking) or _stems("placing").intersection(values[0][:1]) != _stems("placing").intersection(
        values[1][:1]
    )


def _same_person(one: Item, other: Item) -> bool:
    """Return whether two items may be about the same person, and both about the present or both about the past."""
    return _same_speaker(one, other) and about_the_past(one.text) == about_the_past(other.text)


def _exclude(one: Item, other: Item, values: tuple[list[str], list[str]]) -> bool:
    """Return whether two texts that differ in these values may not both be true: a text that only says more than the other may
    be, and so may two events of the past."""
    if "not" in (values[0] or values[1])[:1]:
        return True
    first, second = read(one.text), read(other.text)
    more = first.content < second.content or second.content < first.content
    return not (more or first.is_past or second.is_past)


def _same_speaker(one: Item, other: Item) -> bool:
    speakers = {one.provenance.speaker, other.provenance.speaker} - {""}
    return one.scope.user == other.scope.user and len(speakers) < 2


def _time(item: Item) -> tuple[str, int]:
    """Return when an item became true if that is known, else when it was said or written, and its turn in a conversation, which
    orders what was written at once."""
    return item.valid_from or item.said_at or item.written_at, item.provenance.turn
