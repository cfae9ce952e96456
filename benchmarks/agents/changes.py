"""Conversations with planted changes: what a person says of themselves, and later says anew, among questions, thanks and wishes.

Every attribute and every wording is on one side. The first rules of `keepworth.methods.writers.facts` were written against "dev"
alone. "seen" was held out from them, then looked at. "held-out" was written after that and before anything was changed for it:
nothing is tuned on it.

Beside what changes, each conversation has statements on one topic that do not contradict each other (`BESIDE`): both must stay.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PlantedAttribute:
    """states: wordings of a first statement, with {v}; changes: of a later one, with {v} and perhaps {old}; ends: wordings after
    which the old value holds no more and there is no new one. after: "state" and "change" by side of the wording."""

    name: str
    values: list[str]
    question: str
    states: dict[str, list[str]]
    changes: dict[str, list[str]]
    ends: dict[str, list[str]]


def _attributes(side: str) -> tuple[PlantedAttribute, ...]:
    return tuple(PlantedAttribute(**text) for text in _TEXTS[side])


_TEXTS = json.loads((Path(__file__).parent / "planted_changes.json").read_text(encoding="utf-8"))
DEV, SEEN, REWORDED, HELD_OUT = map(_attributes, ("DEV", "SEEN", "REWORDED", "HELD_OUT"))
STABLE: dict[str, list[str]] = _TEXTS["STABLE"]
CHAT: dict[str, list[str]] = _TEXTS["CHAT"]
BESIDE: dict[str, list[list[str]]] = _TEXTS["BESIDE"]


@dataclass(frozen=True, slots=True)
class Planted:
    """One change. first, second: what was stated; stale, current: the values; ended: whether there is no new one."""

    attribute: str
    question: str
    first: str
    second: str
    stale: str
    current: str
    ended: bool


@dataclass(frozen=True, slots=True)
class PlantedConversation:
    """messages: (day from the first, role, text); facts: the statements in them, word for word; kinds: whether one is
    "stable", of a "change", or said "beside" another on one topic; changes: what changed."""

    person: str
    messages: tuple[tuple[int, str, str], ...]
    facts: tuple[str, ...]
    kinds: dict[str, str]
    changes: tuple[Planted, ...]


def conversations(
    attributes: Sequence[PlantedAttribute], wordings: str, count: int, seed: int
) -> list[PlantedConversation]:
    """wordings: the side that statements, changes and talk are worded on."""
    return [_conversation(attributes, wordings, f"person{seed}-{number}", seed) for number in range(count)]


def _conversation(attributes: Sequence[PlantedAttribute], wordings: str, person: str, seed: int) -> PlantedConversation:
    draw = random.Random(f"{person}/{wordings}/{seed}")
    chosen = draw.sample(list(attributes), min(6, len(attributes)))
    first: list[str] = []
    second: list[str] = []
    changes: list[Planted] = []
    for attribute in chosen:
        old, new = draw.sample(attribute.values, 2)
        ends = attribute.ends.get(wordings, ())
        ending = bool(ends) and draw.random() < 0.5
        first.append(draw.choice(attribute.states[wordings]).format(v=old))
        pool = ends if ending else attribute.changes[wordings]
        later = draw.choice(pool).format(v=new, old=old)
        second.append(later)
        changes.append(Planted(attribute.name, attribute.question, first[-1], later, old, new, ending))
    stable = draw.sample(STABLE[wordings], 4)
    (one, another), (third, fourth) = draw.sample(BESIDE["dev" if wordings == "seen" else wordings], 2)
    facts = (
        [*first[:3], stable[0], one, *first[3:], stable[1], third],
        [stable[2], *second[:3], another, stable[3], *second[3:], fourth],
    )
    messages: list[tuple[int, str, str]] = []
    for part, statements in enumerate(facts):
        for day, statement in enumerate(statements):
            words = [statement]
            if draw.random() < 0.4:
                words.insert(0, draw.choice(CHAT[wordings]))
            if draw.random() < 0.6:
                words.append(draw.choice(CHAT[wordings]))
            at = 60 * part + day
            messages += [(at, "user", " ".join(words)), (at, "assistant", "Noted! Anything else?")]
            if draw.random() < 0.5:
                messages += [(at, "user", draw.choice(CHAT[wordings])), (at, "assistant", "Of course.")]
    distractors = [one, another, third, fourth]
    kinds = {
        **dict.fromkeys(first + second, "change"),
        **dict.fromkeys(stable, "stable"),
        **dict.fromkeys(distractors, "beside"),
    }
    return PlantedConversation(
        person, tuple(messages), tuple(first + stable + distractors + second), kinds, tuple(changes)
    )
