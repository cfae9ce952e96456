"""Encoders and rewards that are learned from demonstrations, before play."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import gymnasium
import pytest
import torch

from keepworth.control.dials import Transition, behave
from keepworth.control.settings import SettingError
from keepworth.methods.control.contrastive_pretraining import increase, nce_loss
from keepworth.registry import method
from tests.control.resumed import check_resumed_weights
from tests.control.test_demonstrations import SMALL, earned


class Row(gymnasium.Env[Any, int]):
    """Fourteen places in a row, from the first one on. Action 1 goes right, the others go left, and the last place pays 1."""

    observation_space = gymnasium.spaces.Discrete(14)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = 0, 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.place, self.time = max(0, self.place + (1 if action == 1 else -1)), self.time + 1
        over = self.place == 13
        return self.place, float(over), over, self.time == 40, {}


def ways(episodes: int) -> list[list[Transition]]:
    """Ways to the last place whose actions are not known."""
    logs = list(behave(Row(), "conservative", lambda seen: 1, episodes))
    return [[(step[0], None, None, *step[3:]) for step in log] for log in logs]


def test_a_reward_of_progress_finds_a_goal_that_play_alone_does_not() -> None:
    settings = SMALL | {"steps": 4096, "learning_rate": 3e-3}
    alone = method("control_agent", "recurrent_ppo").make(Row, "gru", **settings)
    taught = method("control_agent", "nce_pretraining").make(Row, "gru", demonstrations=ways(2), **settings)
    for trainer in (alone, taught):
        list(trainer.train())
    assert earned(taught, Row()) > 0.7
    assert earned(alone, Row()) < 0.2
    assert taught.curve[0]["progress"] is not None


def test_contrast_and_increase_by_hand() -> None:
    """Scores [[1, 0], [0, 2]]: -log softmax is log(1 + e^-1) and log(1 + e^-2). p = .2, .5, end, .1, .3."""
    anchors, later = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    by_hand = (math.log(1 + math.exp(-1)) + math.log(1 + math.exp(-2))) / 2
    assert float(nce_loss(anchors, later)) == pytest.approx(by_hand)
    paid = increase(torch.tensor([[0.2, 0.5, 0.1, 0.3]]), torch.tensor([[False, True, False]]))
    assert paid[0].tolist() == pytest.approx([0.3, 0.0, 0.2])


def test_encoder_tells_later_observations_apart_and_progress_grows_along_the_way() -> None:
    make = method("control_agent", "nce_pretraining").make
    trainer = make(Row, "gru", demonstrations=ways(2), **SMALL | {"learning_rate": 1e-9})  # play teaches nothing
    rows = torch.arange(14)
    with torch.no_grad():
        before = float(trainer._told_apart(rows))
    trainer.update()
    with torch.no_grad():
        assert float(trainer._told_apart(rows)) < 0.75 * before
        progress = trainer.progress(trainer.features[rows]).squeeze(-1)
    assert bool((progress.diff() > 0).all())
    assert float(progress[-1] - progress[0]) > 0.8


def test_a_pretrained_run_that_was_stopped_goes_on_to_the_same_weights() -> None:
    make = partial(method("control_agent", "nce_pretraining").make, Row, "gru", before=5, **SMALL)
    check_resumed_weights(lambda: make(demonstrations=ways(2)), "network")


def test_settings_without_an_effect_are_named() -> None:
    make = method("control_agent", "nce_pretraining").make
    with pytest.raises(SettingError, match="1 demonstrations with a step tell nothing apart"):
        make(Row, "gru", demonstrations=ways(1), **SMALL)
    with pytest.raises(SettingError, match="learn nothing of demonstrations"):
        make(Row, "gru", demonstrations=ways(2), before=0, weight=0.0, **SMALL)
    with pytest.raises(SettingError, match="encoder = False"):
        make(Row, "gru", demonstrations=ways(2), encoder=False, **SMALL)
