"""Of facts that say the same of what was asked, the newer one first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from keepworth.memory.search.index import tokens
from keepworth.memory.search.terms import telling, terms

if TYPE_CHECKING:
    from keepworth.memory.search.search import Hit

NEAR = 0.9
"""What part of the better one's score makes another one a near tie."""
ALIKE = 0.5
"""What part of the words of the longer text both must have, function words not counted."""
SAME = 2
"""How many words both must have, function words counted: "I live in Oslo" is about what "I live in Bergen" is about, and
"red car" is not about what "blue car" is about."""
PAST = frozenset(
    {"first", "old", "older", "oldest", "earlier", "earliest", "previous", "previously", "before", "former", "formerly"}
    | {"original", "originally", "initial", "initially", "ago", "past", "once", "used"}
)
"""Words of a question by which it asks for what was, not for what is."""
_NOW = re.compile(
    r"\bhow old\b|\byears? old\b|\bfirst name\b|\b(?:is|are|be) used\b|\bonce (?:a|an|per|every)\b"
    r"|\bbefore (?:bed|breakfast|lunch|dinner|work|sleep|meals?)\b",
    re.IGNORECASE,
)
"""Such words where they ask for no such thing."""
_ASKING = re.compile(
    r"\?\s*$|\b(?:ask|wonder)(?:s|ed|ing)?\b(?: \w+){0,3}? (?:what|which|who|whose|whom|where|when|why|how|if|whether)\b",
    re.IGNORECASE,
)
"""A question, or the report of one: it states nothing that another text could contradict."""


def newer_first(hits: Sequence[Hit], asked: Sequence[str], question: str, latin: str | None = None) -> list[Hit]:
    """The same hits, each with the ids of others that say something else of the same. Of near ties that are alike, having
    the same words of the question and half of all words, the newer has the place and the score of the better, unless the
    question is about the past.

    asked: terms of the question; latin: see `terms`."""
    wanted = frozenset(asked)
    # What was told of a text with its key says nothing of the text alone.
    said = [frozenset(terms(hit.item.text, None if hit.item.key else latin)) for hit in hits]
    groups: list[list[int]] = []
    for place, hit in enumerate(hits):
        if _ASKING.search(hit.item.text):
            continue
        for group in groups:
            leader = group[0]
            if hit.score >= NEAR * hits[leader].score > 0 and _alike(said[leader], said[place], wanted):
                group.append(place)
                break
        else:
            groups.append([place])
    out, past = list(hits), about_the_past(question)
    for group in groups:
        if len(group) > 1:
            order = group if past else sorted(group, key=lambda place: _time(hits[place]), reverse=True)
            ids = [hits[place].id for place in group]
            for place, source in zip(group, order, strict=True):
                hit, there = hits[source], hits[place]
                out[place] = replace(
                    hit,
                    score=there.score,
                    conflicts=tuple(id for id in ids if id != hit.id),
                    instead_of=there.id if there.id != hit.id else "",
                )
    return out


def about_the_past(question: str) -> bool:
    """Whether an English question asks for what was."""
    return not PAST.isdisjoint(tokens(_NOW.sub(" ", question)))


def _alike(one: frozenset[str], other: frozenset[str], asked: frozenset[str]) -> bool:
    if len(one & other) < SAME:
        return False
    first, second = _telling(one), _telling(other)
    return first & asked == second & asked != frozenset() and len(first & second) >= ALIKE * max(
        len(first), len(second)
    )


def _telling(said: frozenset[str]) -> frozenset[str]:
    return frozenset(term for term in said if telling(term))


def _time(hit: Hit) -> tuple[str, int]:
    """When it was so, as far as is known; else when it was written. Of what was written in one go turns of a conversation have
    an order, and the parts of a document have none."""
    item = hit.item
    return item.valid_from or item.event_time or item.written_at, item.provenance.turn
