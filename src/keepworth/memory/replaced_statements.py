"""Tells whether a statement replaces an older one, because it tells of a change, or of another value of what has one at a time.

    replaced_by("The meeting moved to Thursday.", [monday])  ->  the id of the item "My meeting is on Monday."

In doubt it replaces nothing: a note too many costs less than a lost one. The older statements that share a word or a topic with
the newer are each compared with it by some fifty signs (`change_signs`), which are weighed: the weights are in
`change_weights.toml`, and were fitted by `benchmarks/memory/change_weights.py` to pairs of statements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache, lru_cache

from keepworth.memory.change_gates import about_others
from keepworth.memory.change_rules import MOST_BESIDE, may_be_apart, same_owner, told_apart
from keepworth.memory.change_signs import reading, shared, signs
from keepworth.memory.item import Item
from keepworth.memory.patterns import read_file
from keepworth.memory.switches import switch
from keepworth.memory.wording import cue, read

LONGEST = 400
"""The most characters of a statement that is compared: a longer text says more than one thing."""
ALIKE = 0.02
"""Of several older statements those are replaced whose probability is at most this far below the highest."""


@cache
def _weights() -> tuple[float, float, dict[str, float]]:
    read_weights = read_file("change_weights")
    return read_weights["least"], read_weights["constant"], read_weights["weights"]


def replaced_by(text: str, candidates: Iterable[Item]) -> list[str]:
    """Return the ids of those of `candidates`, older statements of the same person, that the statement `text` replaces."""
    scored = [(score(item.text, text), item) for item in candidates]
    best = max((one for one, _ in scored), default=0.0)
    return [item.id for one, item in scored if one > 0.0 and one >= best - ALIKE]


def replaces(old: str, new: str) -> bool:
    """Return whether the statement `new` replaces the older one `old`."""
    return score(old, new) > 0.0


def may_replace(old: str, new: str) -> bool:
    """Return whether nothing speaks against `new` replacing `old`: both state something, and about what may be the same."""
    before, after = read(old), read(new)
    if before.silent or after.silent or before.is_past or about_others(reading(old), reading(new)):
        return False
    parts = (after, *after.clauses)
    kinds, others = ({value.kind for value in wording.values} for wording in (before, after))
    if kinds and others and kinds.isdisjoint(others):
        return False  # "The office is at 12 Quay Street", "the office has three rooms"
    return any(
        same_owner(before, part) and not (told_apart(before, part) or may_be_apart(before, part)) for part in parts
    )


@lru_cache(16_384)
def score(old: str, new: str) -> float:
    """Return how likely it is that the statement `new` replaces the older one `old`: 0 where that is not likely enough."""
    switched = switch(old, new)
    if switched is not None:
        return float(switched)
    least, constant, weights = _weights()
    best = -30.0
    for part in compared(old, new):
        pair = signs(old, part)
        best = max(best, constant + sum(weight * pair[name] for name, weight in weights.items()))
    probability = 1.0 / (1.0 + math.exp(-min(30.0, best)))
    return probability if probability > least else 0.0


def compared(old: str, new: str) -> list[str]:
    """Return what of the statement `new` is compared with the older one: the whole of it and, if there are several, its clauses
    that are about the same, or nothing."""
    if not _comparable(old, new):
        return []
    before, after = read(old), read(new)
    same = same_owner(before, after)
    clauses = [clause.text for clause in after.clauses if same or clause.subject or clause.speaks_of_me]
    return [new, *(clause for clause in dict.fromkeys(clauses) if clause != new and _comparable(old, clause))]


def _comparable(old: str, new: str) -> bool:
    """Return whether both state something, they share a word or a topic, and nothing says surely that they are about different
    things, or that the newer is so for one time."""
    if max(len(old), len(new)) > LONGEST or old == new:
        return False
    before, after = reading(old), reading(new)
    if not (before.wording.tokens and after.wording.tokens) or before.wording.speaker != after.wording.speaker:
        return False
    if about_others(before, after):
        return False
    theirs, ours = shared(before, after)
    if not ours and after.topics.isdisjoint(before.weighed_topics):
        return False
    if (
        before.weighed == theirs
        and not after.wording.content - ours
        and not any(map(after.has, ("ended", "mended", "denied")))
    ):
        return False  # both say the same
    if len(before.weighed - theirs) > 2 * MOST_BESIDE or before.asks or after.asks:
        return False
    if after.has("refused") or (after.unsure and cue("no longer").search(after.wording.plain) is None):
        return False
    if before.wording.content == after.wording.content and any(
        cue("lacking").search(one.wording.plain) for one in (before, after)
    ):
        return False  # "Users with a licence can export", "users with no licence can export"
    pronouns = [{"his", "her"}.intersection(one.wording.tokens) for one in (before, after)]
    if all(pronouns) and pronouns[0] != pronouns[1]:
        return False
    tells = any(map(after.has, ("now", "ended", "moved")))
    owned = (after.owners - before.owners) & (before.capitals | before.kin)
    return tells or not (owned or (after.has("once") and not after.has("denied")))
