"""A calculator: "58 gets 7 times 3" takes two calls, "58+7" and "65*3", before the answer."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from keepworth.worlds.laboratory.composed import ComposedWorld, Composition, Exercise, Way

SIGNS = {
    "gets": "+",
    "loses": "-",
    "times": "*",
    "among": "/",
    "finds": "+",
    "gives": "-",
    "fold": "*",
    "split": "/",
}
"""What happens to a number, and the sign by which it is computed."""
COMPUTE: dict[str, Callable[[int, int], int]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left // right if right else 0,
}
_CALL = re.compile(r"(-?\d{1,9})([-+*/])(\d{1,9})")


class CalculatorWorld(ComposedWorld):
    """Two things happen to a number. An action like "58+7" is a call, to which the world replies with the value; any other is
    the answer. The quick way guesses the size of the result."""

    name = "calculator"
    about = "call a calculator twice, and answer with its result"
    first = tuple(SIGNS)
    then = tuple(SIGNS)
    offsets = tuple(range(8))
    taught = (1, 4, 6)
    care = 0.4
    dials: ClassVar[tuple[int, ...]] = (19, 99, 999)
    dial = "the largest number at the beginning"
    turns = 4
    tokens = 16
    words = tuple(SIGNS)

    def exercise(self, composition: Composition, draw: random.Random, level: int) -> Exercise:
        value = number = draw.randint(level // 10 + 1, level)
        words, actions = [str(number)], []
        for name in reversed(composition):
            sign = SIGNS[name]
            other = draw.randint(2, 9)
            words += [name, str(other)]
            actions.append(f"{value}{sign}{other}")
            value = COMPUTE[sign](value, other)
        digits = len(str(abs(value)))
        guess = str(draw.randint(10 ** (digits - 1) - (digits == 1), 10**digits - 1))
        return Exercise(composition, " ".join(words), str(value), Way((*actions, str(value))), Way((guess,)))

    def reply(self, state: Mapping[str, Any], actions: Sequence[str]) -> str | None:
        call = _CALL.fullmatch(actions[-1])
        return None if call is None else str(COMPUTE[call[2]](int(call[1]), int(call[3])))

    def simple(self, exercise: Exercise, draw: random.Random) -> tuple[str, ...]:
        """Calls for the first step alone."""
        call = exercise.careful.actions[0]
        return call, str(self.reply({}, (call,)))
