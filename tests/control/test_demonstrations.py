"""Demonstrations beside reinforcement: a few of them teach what a world pays too seldom to be found by chance."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from keepworth.control.dials import Transition, behave
from keepworth.control.errors import WorldError
from keepworth.control.ppo import Trainer
from keepworth.control.run import TrainedAgent, play
from keepworth.control.settings import SettingError
from keepworth.methods.control.few_demonstrations import imitation_loss
from keepworth.registry import method
from tests.control.resumed import check_resumed_weights

SMALL: dict[str, Any] = {"steps": 1024, "envs": 8, "rollout": 16, "chunk": 16, "width": 16, "minibatches": 2}


class Lock(gymnasium.Env[Any, int]):
    """Shows a symbol of three, which are drawn, at each of eight steps. Its last step pays 1 where all actions had the numbers of
    the symbols: by chance in one episode of 6,561."""

    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.symbol, self.time, self.right = int(self.np_random.integers(3)), 0, True
        return self.symbol, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.right, self.time = self.right and action == self.symbol, self.time + 1
        self.symbol = int(self.np_random.integers(3))
        over = self.time == 8
        return self.symbol, float(over and self.right), over, False, {}


def demonstrate(episodes: int, seed: int = 0) -> list[list[Transition]]:
    return list(behave(Lock(), "conservative", lambda seen: seen, episodes, seed))


def earned(trainer: Trainer, world: gymnasium.Env[Any, int]) -> float:
    logs = play(TrainedAgent(trainer.network, trainer.worlds), world, 30, seed=1000, deterministic=False)
    return float(np.mean([sum(step[2] for step in log) for log in logs]))


@pytest.mark.parametrize("how", [{"before": 60, "weight": 0.0}, {"before": 0, "weight": 1.0}])
def test_four_demonstrations_open_a_lock_that_play_alone_does_not(how: dict[str, Any]) -> None:
    settings = SMALL | {"steps": 2048, "learning_rate": 5e-3}
    alone = method("control_agent", "recurrent_ppo").make(Lock, "gru", **settings)
    taught = method("control_agent", "il_rl").make(Lock, "gru", demonstrations=demonstrate(4), **how, **settings)
    for trainer in (alone, taught):
        list(trainer.train())
    assert earned(taught, Lock()) > 0.7
    assert earned(alone, Lock()) < 0.2


def test_loss_is_that_of_single_steps_and_of_an_even_policy_the_logarithm_of_the_choices() -> None:
    short = demonstrate(2)
    short[1] = short[1][:3]  # cut off: its last observation is no step
    trainer = method("control_agent", "il_rl").make(Lock, "gru", demonstrations=short, **SMALL)
    network, logged = trainer.network, trainer.logged
    assert logged["valid"].sum(1).tolist() == [8, 3]
    logs = list[float]()
    with torch.no_grad():
        network.policy[-1].weight.mul_(100.0)
        for log in short:
            state, action = network.memory.initial_state(1), torch.zeros(1, 1, dtype=torch.long)
            for place, step in enumerate(log):
                seen, start = torch.eye(3)[step[0]].unsqueeze(0), torch.tensor([place == 0])
                outputs, _, state = network.step(network.input(seen, action, torch.zeros(1), start), state, start)
                action = torch.tensor([[step[1]]])
                logs.append(float(outputs.log_softmax(-1)[0, step[1]]))
        assert float(imitation_loss(network, logged)) == pytest.approx(-np.mean(logs), abs=1e-5)
        network.policy[-1].weight.zero_()
        assert float(imitation_loss(network, logged)) == pytest.approx(math.log(3))


def test_a_run_that_was_stopped_goes_on_to_the_same_weights() -> None:
    make = partial(method("control_agent", "il_rl").make, Lock, "gru", before=5, **SMALL)
    check_resumed_weights(lambda: make(demonstrations=demonstrate(10)), "network")


def test_settings_that_imitate_no_demonstration_are_named() -> None:
    make = method("control_agent", "il_rl").make
    with pytest.raises(SettingError, match="no demonstration"):
        make(Lock, "gru", demonstrations=[], **SMALL)
    with pytest.raises(SettingError, match="imitate nothing"):
        make(Lock, "gru", demonstrations=demonstrate(1), before=0, weight=0.0, **SMALL)
    with pytest.raises(WorldError, match="has an action 5"):
        make(Lock, "gru", demonstrations=[[(0, 5, 0.0, 1, True)]], **SMALL)
    with pytest.raises(WorldError, match="has no step"):
        make(Lock, "gru", demonstrations=[[]], **SMALL)
