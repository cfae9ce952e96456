"""Worlds around worlds: dials and behaviours step by step, by hand; and trials, where the task stays and the memory goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.control.dials import BEHAVIOURS, Dialled, Dials, behave, dialled
from keepworth.control.ppo import Trainer
from keepworth.control.run import TrainedAgent, run
from keepworth.control.settings import PpoSettings
from keepworth.control.trials import Trials
from keepworth.registry import method


class Counter(gymnasium.Env[Any, Any]):
    """Starts at 0, adds each action, shows and pays the sum, and ends after six steps."""

    def __init__(self, action: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = spaces.Box(-99, 99, (1,), np.float32), action

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.sum, self.time = 0.0, 0
        return np.array([0], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.sum, self.time = self.sum + float(np.ravel(action)[0]), self.time + 1
        return np.array([self.sum], np.float32), self.sum, self.time == 6, False, {}


DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-2, 2, (1,), np.float32)


def rolled(dials: Dials, actions: list[Any], space: spaces.Space[Any] = DISCRETE) -> tuple[list[Any], ...]:
    """What is seen from the reset on, what is paid and whether a bound was passed, step by step."""
    world = Dialled(Counter(space), dials)
    first, _ = world.reset(seed=0)
    seen, rewards, _, _, more = (
        list(column) for column in zip(*(world.step(action) for action in actions), strict=True)
    )
    return [first, *seen], rewards, [info.get("violation") for info in more]


def test_without_a_dial_a_world_is_as_it_was() -> None:
    seen, rewards, violations = rolled(Dials(), [1, 2, 0])
    assert np.ravel(seen).tolist() == [0, 1, 3, 3]
    assert rewards == [1, 3, 3]
    assert violations == [None] * 3


def test_delay_shifts_observations_and_not_rewards() -> None:
    seen, rewards, _ = rolled(Dials(delay=2), [1, 1, 1, 1])
    assert np.ravel(seen).tolist() == [0, 0, 0, 1, 2]
    assert rewards == [1, 2, 3, 4]


def test_lag_shifts_actions_with_idle_ones_first() -> None:
    seen, _, _ = rolled(Dials(lag=2), [1, 2, 0, 0])
    assert np.ravel(seen).tolist() == [0, 0, 0, 1, 3]
    seen, _, _ = rolled(Dials(lag=1), [np.array([2.0])] * 2, spaces.Box(0, 2, (1,), np.float32))
    assert np.ravel(seen).tolist() == [0, 1, 3], "the middle of a box"


def test_outside_the_bound_a_step_costs_its_price() -> None:
    _, rewards, violations = rolled(Dials(bound=2, price=5), [1, 1, 1, 1])
    assert rewards == [1, 2, 3 - 5, 4 - 5]
    assert violations == [False, False, True, True]
    late, _, violations = rolled(Dials(bound=2, delay=3), [1, 1, 1])
    assert (np.ravel(late)[-1], violations[-1]) == (0, True), "the world as it is, not as it is shown"


def test_a_drive_is_shown_and_follows_its_recursion() -> None:
    noise = np.random.default_rng(0).standard_normal(4)
    levels = [0.0]
    for draw in noise:
        levels.append(0.9 * levels[-1] + 5 * draw)
    seen, _, _ = rolled(Dials(drive=5), [0] * 4)
    assert [float(level[0]) for _, level in seen] == pytest.approx(levels, rel=1e-6)
    done = [float(abs(level) > 1) for level in levels[:-1]]
    assert [float(state[0]) for state, _ in seen] == [0, *np.cumsum(done)], "the next action in the place of the first"
    seen, _, _ = rolled(Dials(drive=1), [np.array([0.5])], BOX)
    assert float(seen[1][0][0]) == 0.5, "the drive begins at 0"


def test_behaviours_log_their_actions() -> None:
    def logs(name: str) -> list[list[Any]]:
        return list(behave(Counter(DISCRETE), name, lambda observation: 2, 40, seed=1))

    actions = {name: [[step[1] for step in episode] for episode in logs(name)] for name in BEHAVIOURS}
    assert all(set(episode) == {2} for episode in actions["conservative"])
    assert 10 <= sum(set(episode) == {2} for episode in actions["mixed"]) <= 30
    assert {action for episode in actions["play"] for action in episode} == {0, 1, 2}
    assert len({tuple(episode) for episode in actions["play"]}) > 20
    observation, action, reward, after, over = logs("conservative")[0][-1]
    assert (float(observation[0]), action, reward, float(after[0]), over) == (10, 2, 12, 12, True)
    assert str(logs("play")) == str(logs("play"))
    with pytest.raises(UnknownName):
        next(behave(Counter(DISCRETE), "careless", lambda observation: 2, 1))


def test_a_dialled_world_is_trained_on() -> None:
    settings = PpoSettings("cartpole", "gru", steps=64, envs=2, rollout=16, chunk=16, width=8, minibatches=1)
    trainer = Trainer(settings, lambda: dialled("CartPole-v1", lag=1, drive=0.5, bound=1.0))
    assert len(list(trainer.train())) == 2


@pytest.mark.parametrize("dials", [{"delay": -1}, {"lag": -2}, {"drive": -0.1}, {"feature": -1}])
def test_a_dial_below_zero_is_refused(dials: dict[str, Any]) -> None:
    with pytest.raises(KeepworthError, match="0 or more"):
        Dials(**dials)


@pytest.mark.parametrize("action", [spaces.MultiDiscrete([2, 2]), spaces.Box(-np.inf, np.inf, (1,))])
def test_a_lag_needs_actions_of_which_one_can_stand_first(action: spaces.Space[Any]) -> None:
    with pytest.raises(KeepworthError, match="a box with bounds"):
        Dialled(Counter(action), Dials(lag=1))


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
def test_knowledge_of_the_first_episode_pays_in_the_second(memory: str, least: float, most: float) -> None:
    settings = {"steps": 20_480, "envs": 16, "rollout": 32, "chunk": 32, "width": 16, "learning_rate": 3e-3}
    rows = list(method("control_agent", "trmrl_ppo").make(Guess, memory, **settings).train())
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
