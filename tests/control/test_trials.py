"""Trials: the task stays, the memory goes on, and what the first episode found out pays in the second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from keepworth.control.run import TrainedAgent, run
from keepworth.control.settings import PpoSettings
from keepworth.control.trials import Trials
from keepworth.registry import method


class Guess(gymnasium.Env[int, int]):
    """The first of two steps guesses a symbol of two that nothing shows; it pays 1 if it is right."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.symbol, self.time = int(self.np_random.integers(2)), 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return 1, float(self.time == 1 and action == self.symbol), self.time == 2, False, {}


def test_a_trial_has_one_task_and_says_where_its_episodes_begin() -> None:
    world, symbols = Trials(Guess(), 3), []
    (_, begins), _ = world.reset(seed=0)
    for _ in range(20):
        flags, over, seen = [begins], False, []
        while not over:
            seen.append(world.world.unwrapped.symbol)  # type: ignore[attr-defined]
            (_, begins), _, over, _, _ = world.step(0)
            flags.append(begins)
        assert flags == [1, 0, 1, 0, 1, 0, 0]
        assert len(set(seen)) == 1
        symbols.append(seen[0])
        (_, begins), _ = world.reset()
    assert set(symbols) == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize(("memory", "least", "most"), [("trmrl", 1.4, 1.5), ("mlp", 0.85, 1.15)])
def test_what_the_first_episode_found_out_pays_in_the_second(memory: str, least: float, most: float) -> None:
    settings = {"steps": 20_480, "envs": 16, "rollout": 32, "chunk": 32, "width": 16, "learning_rate": 3e-3}
    trainer = method("control_agent", "trmrl_ppo").make(Guess, memory, **settings)
    rows = list(trainer.train())
    assert least <= np.mean([row["return"] for row in rows[-5:]]) <= most + 0.1
    assert rows[-1]["length"] == 4


def test_an_agent_of_trials_is_loaded_with_them(tmp_path: Path) -> None:
    small = PpoSettings("guess", "trmrl", steps=64, envs=4, rollout=16, chunk=16, width=8, trial=2, reward_input=True)
    list(run(small, tmp_path, Guess))
    agent, world = TrainedAgent.load(tmp_path, Guess), Trials(Guess(), 2)
    observation, _ = world.reset(seed=0)
    state, over, reward, steps = None, False, 0.0, 0
    while not over:
        action, state = agent.predict(observation, state, reward=reward)
        observation, reward, over, _, _ = world.step(action)
        steps += 1
    assert steps == 4
