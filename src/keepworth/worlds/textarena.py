"""Games of TextArena (https://github.com/LeonGuertler/TextArena) for one player, as environments:

train(rows, environment=lambda: textarena.make("GuessTheNumber-v0-train"))"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from keepworth.records.episode import Observation, RewardTerm, StopReason, Task
from keepworth.worlds.environment import Step
from keepworth.worlds.own import first_observation, seed_of

_drawing = threading.Lock()


class TextArenaGame:
    """A game of TextArena, as a `PlainEnvironment`.

    The row's `prompt` stands before the game's own text, and its `seed` selects the game. Games draw from Python's one random
    generator, so each has its state there while it is called, and is repeated exactly. The reward is the game's, at its end.
    """

    def __init__(self, game: Any) -> None:
        self._game, self._text, self._drawn = game, "", random.Random(0).getstate()
        self.begin(0)

    def begin(self, seed: int) -> None:
        """Begins the game of a seed. Raises what the game raises, such as where it needs several players."""
        self._drawn, self._text = random.Random(seed).getstate(), ""
        with self._own_draws():
            self._game.reset(num_players=1, seed=seed)

    def reset(self, task: Task, seed: int) -> Observation:
        self.begin(seed_of(task))
        return first_observation(task, self._new_text())

    def step(self, action: str) -> Step:
        with self._own_draws():
            done, _ = self._game.step(action.strip())
        if not done:
            return Step(Observation(self._new_text()))
        rewards, _ = self._game.close()
        reward = float((rewards or {}).get(0, 0.0))
        return Step(rewards=(RewardTerm("reward", reward),), stop=StopReason.COMPLETED, answer=action.strip())

    def close(self) -> None:
        """Does nothing: a game holds no resources."""

    def _new_text(self) -> str:
        """Returns what the game says beyond what it has said: some games repeat all of it."""
        with self._own_draws():
            _, seen = self._game.get_observation()
        text, before = str(seen), self._text
        self._text = text
        new = text.removeprefix(before) if before else text
        return new.strip() or "Go on."

    @contextmanager
    def _own_draws(self) -> Iterator[None]:
        with _drawing:
            others = random.getstate()
            random.setstate(self._drawn)
            try:
                yield
            finally:
                self._drawn = random.getstate()
                random.setstate(others)
