"""Simulated users of fixed habits, who comment on each answer before their next question."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from keepworth.records.episode import Observation, RewardTerm, StopReason, Task
from keepworth.worlds.environment import Step

HABIT = "habit"
Split = Literal["train", "dev", "test"]


@dataclass(frozen=True, slots=True)
class User:
    """A simulated user, who wants every answer to name the thing in the question.

    wants: the user's habit, as a request; follows: whether an answer fits it.
    """

    wants: str
    follows: Callable[[str], bool]


USERS = {
    "brief": User("Please answer in at most eight words.", lambda answer: len(answer.split()) <= 8),
    "lists": User("Please write a numbered list.", lambda answer: bool(re.search(r"(?:^|\n)\s*\d+\.", answer))),
}
_PLEASED = ("Thanks, that is how I like it.", "Perfect. {wants}", "Let us go on.")
_DISPLEASED = ("No, not like that. {wants}", "That is not what I like. {wants}", "Wrong, try harder.", "Let us go on.")
_ASKED = {
    "What is the capital of {}?": "France, Italy, Spain, Japan, Egypt, Peru, Norway, Greece",
    "What is the opposite of {}?": "hot, big, fast, happy, old, dark, rich, loud",
    "What color is {}?": "the sky, grass, snow, coal, blood, the sun, a frog, a plum",
    "What do {} eat?": "cows, cats, bees, birds, horses, whales, frogs, bears",
    "What is {} for?": "a spoon, a rope, a lamp, a key, soap, a tent, a map, a clock",
    "What is a {}?": "river, guitar, doctor, bridge, planet, poem, forest, window",
    "How do I cook {}?": "rice, eggs, pasta, fish, beans, potatoes, soup, corn",
    "Where can I find {}?": "gold, salt, sand, wolves, pearls, mushrooms, shade, honey",
}
THINGS = {form.format(thing): thing for form, things in _ASKED.items() for thing in things.split(", ")}
"""Questions, and the thing each is about."""


def questions(split: Split) -> list[str]:
    """Returns the users' questions: of each form four in training, two others in dev, two others in test."""
    part_of = {"train": range(4), "dev": range(4, 6), "test": range(6, 8)}[split]
    return [question for number, question in enumerate(THINGS) if number % 8 in part_of]


class Talk:
    """A session: the user asks `turns` questions, and before each but the first comments on the last answer. hinted: the first
    question comes with the request, which shows how well the model can follow the habit at all."""

    def __init__(self, user: User, turns: int, hinted: bool = False) -> None:
        self._user, self._turns, self._hinted = user, turns, hinted

    async def reset(self, task: Task, seed: int) -> Observation:
        self._draw, self._turn, self._question = random.Random(seed), 0, task.input
        return Observation(f"{task.input} {self._user.wants}" if self._hinted else task.input)

    async def step(self, action: str) -> Step:
        follows = THINGS[self._question].lower() in action.lower() and self._user.follows(action)
        reward, self._turn = RewardTerm(HABIT, float(follows)), self._turn + 1
        if self._turn == self._turns:
            return Step(rewards=(reward,), stop=StopReason.COMPLETED, answer=action)
        reply = self._draw.choice(_PLEASED if follows else _DISPLEASED).format(wants=self._user.wants)
        self._question = self._draw.choice(questions("train"))
        return Step(Observation(f"{reply} {self._question}"), (reward,), answer=action)

    async def close(self) -> None:
        """Does nothing: the session holds no resources."""
