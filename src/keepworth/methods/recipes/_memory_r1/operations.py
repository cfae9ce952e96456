"""Generates cases of choosing a memory operation, with the right operation known by construction.

A case is a short list of memories, a new fact, and the one operation that keeps the memory true:

* ADD       nothing in the list covers the fact;
* UPDATE i  entry i is about the same thing, and its value changed;
* DELETE i  the fact says that entry i no longer holds, without a replacement;
* NOOP      the fact is stored already (in the same or in other words), or ends something that was never stored.

The four operations are those of "Memory-R1: Enhancing Large Language Model Agents to Manage and Utilize Memories via
Reinforcement Learning" (arXiv 2508.19828). There are two levels:

* plain: realistic cases. Lists have any length, including 0. Half of the cases are made of sentences that users said (see
  `utterances`), with the operations in realistic proportions: mostly new (ADD), sometimes a repetition (NOOP), sometimes a
  repetition with another number (UPDATE). The other half is about people (`_people`), with the four operations equally often: the
  entries share neither person nor attribute with the fact, a change is announced as one, and what is stored already is repeated
  literally. Some entries of each kind of case are of the other kind.
* near-miss: all cases are about people, with the four operations equally often, and every list holds the same person with another
  attribute, and another person with the same attribute. Wording does not give the operation away: a change may have the words of
  a plain statement, a first mention the words of a change, and what is stored already may be in other words.

Held out: no name and no sentence of one split occurs in another, and some values occur in one held-out split only.
Version 1 was about people only, in lists of two to four entries: a manager trained on it named entries that did not exist when
its memory was empty or short, and took anything unlike its training cases for a known fact.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from keepworth.base.errors import require_known
from keepworth.base.metrics import token_f1
from keepworth.methods.recipes._memory_r1.utterances import renumbered, utterances
from keepworth.records.episode import OperationKind
from keepworth.records.operations import format_operation
from keepworth.worlds.data_sets.people import ATTRIBUTES, Attribute, check_split, names_of, values_of

GENERATOR_VERSION = 2
MEMORY_SESSION = "memory"
DEFAULT_ENTRIES = 4
LEVELS = ("near-miss", "plain")
SAID_SHARE = 0.5
"""Share of the plain cases that are made of users' sentences."""
FOREIGN_SHARE = 0.25
"""Share of the other entries of a plain case that are of the other kind."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A fact in words, and the person it is about, "" for a user's sentence."""

    person: str
    text: str


@dataclass(frozen=True, slots=True)
class OperationCase:
    """A case. memories: entry i is shown under the number i; fact: the new one; kind and target: the right operation; trait: the
    construction that made it (`changed`, `paraphrase`, `ended unknown` ...)."""

    memories: tuple[Statement, ...]
    fact: Statement
    kind: OperationKind
    target: int | None
    trait: str

    @property
    def gold(self) -> str:
        return format_operation(self.kind, self.target)


def operation_case(
    split: str, index: int, seed: int = 0, entries: int = DEFAULT_ENTRIES, level: str = "near-miss"
) -> OperationCase:
    """Returns case `index` of the endless sequence of (split, seed, entries, level). It shows 2 to `entries` memories at the
    level near-miss, and any number up to `entries` at the level plain."""
    plain = require_known("level", level, LEVELS) == "plain"
    name = f"operations/{GENERATOR_VERSION}/{check_split(split)}/{seed}/{entries}/{index}"
    draw = random.Random(f"{name}/plain" if plain else name)
    if plain and draw.random() < SAID_SHARE:
        return _from_users(split, entries, draw)
    kind = draw.choice((OperationKind.ADD, OperationKind.UPDATE, OperationKind.DELETE, OperationKind.NOOP))
    person = draw.choice(names_of(split))
    attribute = draw.choice(ATTRIBUTES)
    value, other_value = draw.sample(values_of(attribute, split), 2)

    target: Statement | None = None
    if kind is OperationKind.ADD:
        forms = [(attribute.states, "new")] * 2 + [(attribute.changes, "new in words of change")] * (not plain)
        wordings, trait = draw.choice(forms)
        fact = _statement(person, wordings, value, draw)
    elif kind is OperationKind.UPDATE:
        forms = [(attribute.changes, "changed")] * 2 + [(attribute.states, "changed in plain words")] * (not plain)
        wordings, trait = draw.choice(forms)
        fact = _statement(person, wordings, value, draw)
        target = _statement(person, attribute.states, other_value, draw)
    elif kind is OperationKind.DELETE:
        trait = "ended"
        fact = _statement(person, attribute.ends, value, draw)
        target = _statement(person, attribute.states, value, draw)
    else:
        trait = "verbatim" if plain else draw.choice(("paraphrase", "paraphrase", "verbatim", "ended unknown"))
        if trait == "ended unknown":
            fact = _statement(person, attribute.ends, value, draw)
        else:
            fact = _statement(person, attribute.states, value, draw)
            target = fact
            while trait == "paraphrase" and target.text == fact.text:
                target = _statement(person, attribute.states, value, draw)

    memories = [] if target is None else [target]
    if plain:
        count = draw.randint(len(memories), entries)
        foreign = sum(draw.random() < FOREIGN_SHARE for _ in range(count - len(memories)))
        texts = [_as_statement(text) for text in _unlike(fact.text, foreign, split, draw)]
        memories += [*texts, *_strangers(person, attribute, count - len(memories) - foreign, split, draw)]
    else:
        count = draw.randint(2, entries)
        memories += _near_misses(person, attribute, value, count - len(memories), split, draw)
    return _case(memories, fact, kind, target, trait, draw)


def _from_users(split: str, entries: int, draw: random.Random) -> OperationCase:
    """Returns a case made of users' sentences: a new one, a repetition, or a repetition with another number."""
    utterance = draw.choice(utterances(split))
    cut = draw.randrange(1, len(utterance))
    kind = draw.choices((OperationKind.ADD, OperationKind.UPDATE, OperationKind.NOOP), (0.7, 0.15, 0.15))[0]
    if kind is OperationKind.UPDATE:
        text, new = _countable(split, draw)
        fact, trait = _as_statement(new), "said with another number"
        target: Statement | None = _as_statement(text)
    else:
        fact = _as_statement(utterance[cut])
        target = fact if kind is OperationKind.NOOP else None
        trait = "said again" if target else "said for the first time"
    memories = [] if target is None else [target]
    count = draw.randint(len(memories), entries) - len(memories)
    # A search finds earlier sentences of the same conversation: the manager has to tell the new fact from them.
    before = [text for text in utterance[:cut] if token_f1(text, (fact.text,)) < 0.5]
    near = draw.sample(before, min(len(before), draw.randint(0, count)))
    foreign = sum(draw.random() < FOREIGN_SHARE for _ in range(count - len(near)))
    memories += [_as_statement(text) for text in near]
    memories += _strangers("", None, foreign, split, draw)
    memories += [_as_statement(text) for text in _unlike(fact.text, count - len(near) - foreign, split, draw, near)]
    return _case(memories, fact, kind, target, trait, draw)


def _countable(split: str, draw: random.Random) -> tuple[str, str]:
    """Returns a user's sentence that counts something, and the same with another number."""
    while True:
        text = draw.choice(draw.choice(utterances(split)))
        if new := renumbered(text):
            return text, new


def _unlike(fact: str, count: int, split: str, draw: random.Random, taken: Sequence[str] = ()) -> list[str]:
    """Returns `count` different sentences of any conversation that do not say what `fact` says."""
    values: list[str] = []
    while len(values) < count:
        text = draw.choice(draw.choice(utterances(split)))
        if text not in values and text not in taken and token_f1(text, (fact,)) < 0.5:
            values.append(text)
    return values


def _as_statement(text: str) -> Statement:
    return Statement("", text)


def _case(
    memories: list[Statement],
    fact: Statement,
    kind: OperationKind,
    target: Statement | None,
    trait: str,
    draw: random.Random,
) -> OperationCase:
    """Returns the case with its memories shuffled. `target` is one of them, and the case names it where the operation does."""
    draw.shuffle(memories)
    shown_target = None
    if target is not None and kind is not OperationKind.NOOP:
        shown_target = next(number for number, memory in enumerate(memories) if memory is target)
    return OperationCase(tuple(memories), fact, kind, shown_target, trait)


def _statement(person: str, wordings: Sequence[str], value: str, draw: random.Random) -> Statement:
    return Statement(person, draw.choice(wordings).format(n=person, v=value))


def _strangers(
    person: str, attribute: Attribute | None, count: int, split: str, draw: random.Random
) -> list[Statement]:
    """Returns memories about `count` different people, none of them the fact's, and other attributes than the fact's."""
    names = draw.sample([name for name in names_of(split) if name != person], count)
    kinds = draw.sample([other for other in ATTRIBUTES if other is not attribute], count)
    return [
        _statement(who, what.states, draw.choice(values_of(what, split)), draw)
        for who, what in zip(names, kinds, strict=True)
    ]


def _near_misses(
    person: str, attribute: Attribute, value: str, count: int, split: str, draw: random.Random
) -> list[Statement]:
    """Returns memories that share the person or the attribute with the fact, never both; no (person, attribute) twice."""
    others = [name for name in names_of(split) if name != person]
    pairs = {(person, attribute.key)}
    misses: list[Statement] = []
    while len(misses) < count:
        # The first two are the hard ones, in either order; what follows is any of the three.
        same_person = draw.random() < 0.5 if len(misses) != 1 else misses[0].person != person
        who = person if same_person else draw.choice(others)
        what = attribute
        if same_person or (len(misses) >= 2 and draw.random() < 0.3):
            what = draw.choice([other for other in ATTRIBUTES if other is not attribute])
        if (who, what.key) in pairs:
            continue
        pairs.add((who, what.key))
        same_value = what is attribute and draw.random() < 0.3
        miss_value = value if same_value else draw.choice(values_of(what, split))
        misses.append(_statement(who, what.states, miss_value, draw))
    return misses
