"""Facts that are read: "boss ana bo; city bo oslo; ... city boss ana" asks for the city of ana's boss."""

from __future__ import annotations

import random
from typing import ClassVar

from keepworth.worlds.laboratory.composed import ComposedWorld, Composition, Exercise, Way
from keepworth.worlds.laboratory.people import LINKS, PEOPLE, THINGS, VALUES, book


class FactsWorld(ComposedWorld):
    """Facts about people stand before the question, in random order. The careful way names the person in the middle."""

    name = "facts"
    about = "answer from two of the facts that stand before the question"
    first = LINKS
    then = tuple(THINGS)
    offsets = tuple(range(8))
    taught = (0, 3)
    care = 0.4
    dials: ClassVar[tuple[int, ...]] = (2, 3, 5)
    dial = "people with facts"
    tokens = 8
    words = (*LINKS, *THINGS, *PEOPLE, *VALUES)

    def exercise(self, composition: Composition, draw: random.Random, level: int) -> Exercise:
        people = draw.sample(PEOPLE, level)
        notes = book(composition, people, draw)
        at, chain = people[0], []
        for name in reversed(composition):
            at = notes[f"{name} {at}"]
            chain.append(at)
        facts = [f"{key} {value}" for key, value in notes.items()]
        draw.shuffle(facts)
        question = f"{'; '.join(facts)}; {' '.join((*composition, people[0]))}"
        return Exercise(composition, question, at, Way((" ".join(chain),)), Way((at,)))

    def simple(self, exercise: Exercise, draw: random.Random) -> tuple[str, ...]:
        """Guesses among the values that are read."""
        *facts, question = exercise.question.split("; ")
        name = question.split()[0]
        return (draw.choice([fact.split()[2] for fact in facts if fact.split()[0] == name]),)
