"""Functions of numbers: "twice flip 34" asks for 86, twice 43."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import ClassVar

from keepworth.worlds.laboratory.composed import ComposedWorld, Composition, Exercise, Way

FUNCTIONS: dict[str, Callable[[int], int]] = {
    "plus": lambda number: number + 7,
    "less": lambda number: max(number - 4, 0),
    "twice": lambda number: 2 * number,
    "half": lambda number: number // 2,
    "flip": lambda number: int(str(number)[::-1]),
    "digits": lambda number: sum(map(int, str(number))),
    "tens": lambda number: number // 10 * 10,
    "apart": lambda number: abs(100 - number),
    "last": lambda number: number % 10,
    "thrice": lambda number: 3 * number,
}
"""The functions by name."""


class NumbersWorld(ComposedWorld):
    """Two functions, one after the other, on a number. The careful way writes the result of the first one."""

    name = "numbers"
    about = "apply two functions to a number"
    first = tuple(FUNCTIONS)
    then = tuple(FUNCTIONS)
    offsets = tuple(range(1, 10))
    taught = (1, 3, 4, 7)
    care = 0.4
    dials: ClassVar[tuple[int, ...]] = (49, 99, 199)
    dial = "the largest number"
    words = tuple(FUNCTIONS)

    def exercise(self, composition: Composition, draw: random.Random, level: int) -> Exercise:
        return self._of(composition, draw.randint(10, level))

    def single(self, draw: random.Random) -> Exercise:
        """Draws a number as a first function may have made it."""
        return self._of((draw.choice(self.first),), draw.randint(0, draw.choice((20, 199, 597))))

    def _of(self, composition: Composition, number: int) -> Exercise:
        results = [number]
        for name in reversed(composition):
            results.append(FUNCTIONS[name](results[-1]))
        careful, quick = Way((" ".join(map(str, results[1:])),)), Way((str(results[-1]),))
        return Exercise(composition, " ".join((*composition, str(number))), str(results[-1]), careful, quick)

    def simple(self, exercise: Exercise, draw: random.Random) -> tuple[str, ...]:
        """Applies the last function alone."""
        return (str(FUNCTIONS[exercise.composition[0]](int(exercise.question.split()[-1]))),)
