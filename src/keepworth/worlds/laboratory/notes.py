"""A search over notes: "city boss ana" takes two searches, for ana's boss and for the boss's city, before the answer."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from keepworth.worlds.laboratory.composed import ComposedWorld, Composition, Exercise, Way
from keepworth.worlds.laboratory.people import LINKS, PEOPLE, THINGS, VALUES, book


class NotesWorld(ComposedWorld):
    """Notes about people that only a search shows. "find boss ana" is a search for a note; any other action is the answer. The
    quick way guesses."""

    name = "notes"
    about = "search notes twice, and answer with what they say"
    first = LINKS
    then = tuple(THINGS)
    offsets = tuple(range(8))
    taught = (0, 3)
    care = 0.3
    dials: ClassVar[tuple[int, ...]] = (2, 4, 8)
    dial = "people with notes"
    turns = 4
    tokens = 12
    words = ("find", "none", *LINKS, *THINGS, *PEOPLE, *VALUES)

    def exercise(self, composition: Composition, draw: random.Random, level: int) -> Exercise:
        people = draw.sample(PEOPLE, level)
        notes = book(composition, people, draw)
        at, actions = people[0], []
        for name in reversed(composition):
            actions.append(f"find {name} {at}")
            at = notes[f"{name} {at}"]
        guess = draw.choice(PEOPLE if composition[0] in LINKS else THINGS[composition[0]])
        question = " ".join((*composition, people[0]))
        return Exercise(composition, question, at, Way((*actions, at)), Way((guess,)), {"notes": notes})

    def reply(self, state: Mapping[str, Any], actions: Sequence[str]) -> str | None:
        word, _, key = actions[-1].partition(" ")
        return str(state["notes"].get(key, "none")) if word == "find" else None

    def simple(self, exercise: Exercise, draw: random.Random) -> tuple[str, ...]:
        """Searches for what is asked about the person who is named, and guesses where there is no such note."""
        search = f"find {exercise.composition[0]} {exercise.question.split()[-1]}"
        reply = str(self.reply(exercise.state, (search,)))
        return search, reply if reply != "none" else exercise.quick.actions[0]
