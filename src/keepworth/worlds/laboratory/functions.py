"""String functions: "rev cut abcd" asks for the word without its last letter, reversed."""

from __future__ import annotations

import random
from collections.abc import Callable
from string import ascii_lowercase
from typing import ClassVar

from keepworth.worlds.laboratory.composed import ComposedWorld, Composition, Exercise, Way


def shift(word: str) -> str:
    """Replaces each letter by the next one of the alphabet."""
    return "".join(
        ascii_lowercase[(ascii_lowercase.index(sign) + 1) % 26] if sign in ascii_lowercase else sign for sign in word
    )


FUNCTIONS: dict[str, Callable[[str], str]] = {
    "rev": lambda word: word[::-1],
    "dup": lambda word: word + word[-1],
    "rot": lambda word: word[1:] + word[0],
    "cut": lambda word: word[:-1] if len(word) > 1 else word,
    "swp": lambda word: word[-1] + word[1:-1] + word[0] if len(word) > 1 else word,
    "srt": lambda word: "".join(sorted(word)),
    "bra": lambda word: f"({word})",
    "inc": shift,
    "odd": lambda word: word[::2],
    "twi": lambda word: word + word[::-1],
}
"""The functions by name."""


class FunctionsWorld(ComposedWorld):
    """Two functions, one after the other, on a word of chance letters. The careful way writes the result of the first one."""

    name = "functions"
    about = "apply two string functions to a word"
    first = tuple(FUNCTIONS)
    then = tuple(FUNCTIONS)
    offsets = tuple(range(1, 10))
    taught = (1, 3, 4, 7)
    care = 0.7
    dials: ClassVar[tuple[int, ...]] = (3, 4, 5)
    dial = "letters of the word"
    words = tuple(FUNCTIONS)

    def exercise(self, composition: Composition, draw: random.Random, level: int) -> Exercise:
        return self._of(composition, "".join(draw.choice(ascii_lowercase) for _ in range(level)))

    def single(self, draw: random.Random) -> Exercise:
        """Draws a word as a first function may have made it: of two to nine letters, or in brackets."""
        word = "".join(draw.choice(ascii_lowercase) for _ in range(draw.randint(2, 9)))
        return self._of((draw.choice(self.first),), f"({word})" if draw.random() < 0.25 else word)

    def _of(self, composition: Composition, word: str) -> Exercise:
        results = [word]
        for name in reversed(composition):
            results.append(FUNCTIONS[name](results[-1]))
        careful, quick = Way((" ".join(results[1:]),)), Way((results[-1],))
        return Exercise(composition, " ".join((*composition, word)), results[-1], careful, quick)

    def simple(self, exercise: Exercise, draw: random.Random) -> tuple[str, ...]:
        """Applies the last function alone."""
        return (FUNCTIONS[exercise.composition[0]](exercise.question.split()[-1]),)
