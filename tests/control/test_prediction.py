"""Auxiliary predictions: their losses by hand, what they leave alone, and what they teach a memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from keepworth.control.ppo import Trainer
from keepworth.control.prediction import Prediction
from keepworth.control.settings import PREDICTIONS, PpoSettings, SettingError
from keepworth.control.spaces import ActionSpace
from keepworth.registry import method
from tests.control.worlds import Recall

SMALL = PpoSettings(world="recall", steps=512, envs=8, rollout=16, chunk=16, width=16, minibatches=2)
KINDS = PREDICTIONS[1:]


def constant(kind: str, width: int, features: int, value: float) -> Prediction:
    """A prediction that always predicts this number."""
    prediction = Prediction(kind, width, features, ActionSpace(spaces.Discrete(2)))
    with torch.no_grad():
        for head in prediction.heads:
            last = head[-1]  # type: ignore[index]
            last.weight.zero_()
            last.bias.fill_(value)
    return prediction


def chunk(width: int = 3, features: int = 2) -> dict[str, Tensor]:
    """Two chunks of four steps, of which the second begins an episode in its third step."""
    draw = torch.Generator().manual_seed(0)
    starts = torch.zeros(2, 4, dtype=torch.bool)
    starts[1, 2] = True
    return {
        "y": torch.randn(2, 4, width, generator=draw),
        "actions": torch.randint(2, (2, 4, 1), generator=draw),
        "observations": torch.randn(2, 4, features, generator=draw),
        "rewards": torch.randn(2, 4, generator=draw),
        "starts": starts,
    }


def test_the_loss_of_an_observation_is_that_computed_by_hand() -> None:
    given = chunk()
    pairs = [(0, 1), (0, 2), (0, 3), (1, 1), (1, 3)]  # not (1, 2): the step before belongs to another episode
    of_observations = torch.stack([(given["observations"][at] - 0.5).square().mean() for at in pairs]).mean()
    expected = of_observations + (given["rewards"] - 0.5).square().mean()
    torch.testing.assert_close(constant("observation", 3, 2, 0.5).loss(**given), expected)


def test_the_latent_loss_is_that_computed_by_hand() -> None:
    given = chunk()
    y = given["y"]
    ahead_1 = torch.stack([(y[at] - 0.5).square().mean() for at in [(0, 1), (0, 2), (0, 3), (1, 1), (1, 3)]]).mean()
    # Five steps ahead lies beyond the chunk. Of eight steps the first is paired with the fifth, and so on.
    repulsion = torch.stack([(-(y[0, at] - y[1, at]).norm()).exp() for at in range(4)]).mean()
    torch.testing.assert_close(constant("latent", 3, 2, 0.5).loss(**given), ahead_1 / 2 + repulsion)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_reaches_the_memory_and_stays_finite_where_all_outputs_are_the_same(kind: str) -> None:
    given = chunk()
    for y in (given["y"], torch.ones_like(given["y"])):
        y = y.clone().requires_grad_()
        Prediction(kind, 3, 2, ActionSpace(spaces.Discrete(2))).loss(**{**given, "y": y}).backward()
        assert y.grad is not None
        assert y.grad.isfinite().all()
        assert (y.grad != 0).any()


def weights(**settings: Any) -> tuple[list[Tensor], list[Any]]:
    trainer = Trainer(replace(SMALL, **settings), Recall)
    rows = list(trainer.train())
    return [part.detach() for part in trainer.network.parameters()], [row["return"] for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_weight_0_changes_no_bit_of_the_network_and_another_weight_does(kind: str) -> None:
    without, returns = weights()
    zero, same = weights(predict=kind, predict_weight=0.0)
    assert all(torch.equal(one, other) for one, other in zip(without, zero, strict=True))
    assert returns == same
    some, _ = weights(predict=kind, predict_weight=0.5)
    assert not all(torch.equal(one, other) for one, other in zip(without, some, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_predicted_is_learned(kind: str) -> None:
    trainer = Trainer(replace(SMALL, steps=4096, predict=kind, predict_weight=1.0, learning_rate=3e-3), Recall)
    rows = [float(row["prediction"] or 0.0) for row in trainer.train()]
    assert rows[-1] < 0.7 * rows[0]


def test_prediction_alone_teaches_the_memory_where_policy_and_value_learn_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the last action of Recall pays can be predicted only by who remembers the symbol."""
    monkeypatch.setattr(Trainer, "_advantages", lambda self, rollout: torch.zeros_like(rollout.values))
    settings = replace(SMALL, steps=9216, envs=32, predict="observation", predict_weight=1.0, learning_rate=1e-2)
    losses = {}
    for memory in ("gru", "mlp"):
        trainer = Trainer(replace(settings, memory=memory, action_input=False, value_weight=0.0, entropy=0.0), Recall)
        losses[memory] = [float(row["prediction"] or 0.0) for row in trainer.train()][-1]
    assert losses["gru"] < 0.1
    assert losses["mlp"] > 0.2


@pytest.mark.parametrize("name", ["predict_observation", "predict_latent"])
def test_the_methods_are_the_one_trainer_with_a_prediction(name: str) -> None:
    trainer = method("control_agent", name).make(Recall, "gru", steps=512, envs=8, rollout=16, chunk=16, width=16)
    assert "prediction" in trainer.update()


def test_a_prediction_that_there_is_not_is_named() -> None:
    with pytest.raises(SettingError, match="none of none, observation, latent"):
        PpoSettings(predict="future")
