"""Tells whether a statement replaces an older one, because it tells of a change, or of another value of what has one at a time.

    replaced_by("The meeting moved to Thursday.", [monday])  ->  the id of the item "My meeting is on Monday."

In doubt it replaces nothing: a note too many costs less than a lost one. The older statements that share a word or a topic with
the newer are each compared with it by some fifty signs (`change_signs`), which are weighed: the weights are in
`change_weights.toml`, and were fitted by `benchmarks/memory/change_weights.py` to pairs of statements. Where several older
statements are there, all are judged together, too (`told_changes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache

from keepworth.memory.attributes import changes
from keepworth.memory.change_frames import about_bare_value
from keepworth.memory.change_gates import about_others, attributes_differ, changes_no_state
from keepworth.memory.change_limits import is_beside_the_change
from keepworth.memory.change_rules import MOST_BESIDE, may_be_apart, same_owner, told_apart
from keepworth.memory.change_signs import reading, shared, signs
from keepworth.memory.item import Item
from keepworth.memory.patterns import read_file
from keepworth.memory.switches import switch
from keepworth.memory.told_changes import MOST_COMPARED, judge, may_tell_of_a_change, tells_a_feeling, tells_no_state
from keepworth.memory.wording import cue, read

LONGEST, LONGEST_JUDGED = 400, 140
"""The most characters of a statement that is compared, and of one that is judged beside others: a longer text says more than one
thing."""
UNTOLD = 0.69
"""The least probability where the newer statement tells of no change and seems to be about another thing or attribute."""
ALIKE = 0.02
"""Of several older statements those are replaced whose probability is at most this far below the highest."""


@cache
def _weights() -> tuple[float, float, dict[str, float]]:
    read_weights = read_file("change_weights")
    return read_weights["least"], read_weights["constant"], read_weights["weights"]


def replaced_by(text: str, candidates: Iterable[Item], nearness: Mapping[str, float] | None = None) -> list[str]:
    """Return the ids of those of `candidates`, older statements of the same person, that the statement `text` replaces.

    Args:
        text: The newer statement.
        candidates: The older ones.
        nearness: By the id of each candidate, how near it is to the text in meaning, as a cosine; None if that is not known.
    """
    listed = [item for item in candidates if not _leaves_as_it_is(item.text, text)]
    if read(text).plain.startswith("["):
        return []  # the caption of a picture
    sureness = {item.id: changes(item.text, text) for item in listed}
    if surest := max(sureness.values(), default=0):
        return [id for id, sure in sureness.items() if sure == surest]
    place = about_bare_value([item.text for item in listed], text)
    if place is not None:
        return [listed[place].id]
    near = None if nearness is None else [nearness.get(item.id, 0.0) for item in listed]
    place = closed_among([item.text for item in listed], text, near)
    if place is not None:
        return [listed[place].id]
    scored = [(score(item.text, text), item) for item in listed]
    best = max((one for one, _ in scored), default=0.0)
    return [item.id for one, item in scored if one > 0.0 and one >= best - ALIKE]


def closed_among(olds: Sequence[str], new: str, nearness: Sequence[float] | None = None) -> int | None:
    """Return the place of the older statement that is judged to be closed by the newer one among all of them, or None.

    Args:
        olds: The older statements.
        new: The newer one.
        nearness: How near each is to the newer one in meaning, as a cosine; None if that is not known.
    """
    if len(new) > LONGEST_JUDGED or not may_tell_of_a_change(new) or tells_a_feeling(new.rstrip("!")):
        return None
    if read(new).speaker:
        nearness = None  # the name before both makes any two of them near
    places = [at for at, old in enumerate(olds) if may_be_judged(old, new)]
    if nearness is not None:
        places = sorted(places, key=nearness.__getitem__, reverse=True)
    places = places[:MOST_COMPARED]
    given = [odds(olds[at], new) for at in places]
    near = None if nearness is None else [nearness[at] for at in places]
    closed = judge([olds[at] for at in places], new, given, near)
    return None if closed is None else places[closed]


def may_be_judged(old: str, new: str) -> bool:
    """Return whether both state something short, one person says them, and nothing says surely that they are about different
    things."""
    if max(len(old), len(new)) > LONGEST_JUDGED or old == new:
        return False
    before, after = reading(old), reading(new)
    return (
        bool(before.wording.tokens and after.wording.tokens)
        and before.wording.speaker == after.wording.speaker
        and not (before.wording.silent or before.asks or after.asks or after.has("refused") or tells_no_state(old))
        and not about_others(before, after)
    )


def _leaves_as_it_is(old: str, new: str) -> bool:
    return changes_no_state(old, new) or is_beside_the_change(old, new)


def replaces(old: str, new: str) -> bool:
    """Return whether the statement `new` replaces the older one `old`."""
    return score(old, new) > 0.0


def may_replace(old: str, new: str) -> bool:
    """Return whether nothing speaks against `new` replacing `old`: both state something, and about what may be the same."""
    before, after = read(old), read(new)
    if (
        before.silent
        or after.silent
        or before.is_past
        or about_others(reading(old), reading(new))
        or _leaves_as_it_is(old, new)
    ):
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
    if changes(old, new):
        return 1.0
    switched = switch(old, new)
    if switched is not None:
        return float(switched)
    if tells_a_feeling(old):
        return 0.0
    probability, least = 1.0 / (1.0 + math.exp(-odds(old, new))), _weights()[0]
    if probability > least and attributes_differ(read(old), read(new)):
        least = max(least, UNTOLD)
    return probability if probability > least else 0.0


@lru_cache(16_384)
def odds(old: str, new: str) -> float:
    """Return the logarithm of the odds that the statement `new` replaces the older one `old`, by what the two say alone."""
    _, constant, weights = _weights()
    best = -30.0
    for part in compared(old, new):
        pair = signs(old, part)
        best = max(best, constant + sum(weight * pair[name] for name, weight in weights.items()))
    return min(30.0, best)


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
