"""Predictions and bonuses for what is new, by hand: what they leave alone, and what they teach."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from keepworth.control.exploration import RIDGE, Bonus, Ellipsoid, FirstVisits
from keepworth.control.ppo import Trainer
from keepworth.control.prediction import Prediction
from keepworth.control.settings import PREDICTIONS, PpoSettings, SettingError
from keepworth.control.spaces import ActionSpace
from keepworth.registry import method
from tests.control.worlds import Recall

SMALL = PpoSettings(world="recall", steps=512, envs=8, rollout=16, chunk=16, width=16, minibatches=2)
GOING_ON = torch.zeros(1, dtype=torch.bool)
TWO = ActionSpace(spaces.Discrete(2))
KINDS = PREDICTIONS[1:]


def constant(kind: str, width: int, features: int, value: float) -> Prediction:
    """A prediction that always predicts this number."""
    prediction = Prediction(kind, width, features, TWO)
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
    y, actions = torch.randn(2, 4, width, generator=draw), torch.randint(2, (2, 4, 1), generator=draw)
    observations, rewards = torch.randn(2, 4, features, generator=draw), torch.randn(2, 4, generator=draw)
    return {"y": y, "actions": actions, "observations": observations, "rewards": rewards, "starts": starts}


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
        Prediction(kind, 3, 2, TWO).loss(**{**given, "y": y}).backward()
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
def test_prediction_loss_falls_in_training(kind: str) -> None:
    trainer = Trainer(replace(SMALL, steps=4096, predict=kind, predict_weight=1.0, learning_rate=3e-3), Recall)
    rows = [float(row["prediction"] or 0.0) for row in trainer.train()]
    assert rows[-1] < 0.7 * rows[0]


def test_prediction_alone_teaches_the_memory_where_all_else_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_ellipsoid_by_hand() -> None:
    """C = 0.1 I; after (1, 0) it is diag(1.1, 0.1), so that (1, 0) pays 1 / 1.1 and (0, 1) still 10."""
    ellipsoid = Ellipsoid(1, 2)
    assert float(ellipsoid.visit(torch.tensor([[1.0, 0.0]]), ~GOING_ON)) == pytest.approx(10.0)
    assert float(ellipsoid.visit(torch.tensor([[1.0, 0.0]]), GOING_ON)) == pytest.approx(1 / 1.1)
    assert float(ellipsoid.visit(torch.tensor([[0.0, 1.0]]), GOING_ON)) == pytest.approx(10.0)
    assert float(ellipsoid.visit(torch.tensor([[1.0, 0.0]]), ~GOING_ON)) == pytest.approx(10.0)


def test_ellipsoid_is_the_inverse_covariance_of_the_episode() -> None:
    ellipsoid = Ellipsoid(3, 4).double()
    draw = torch.Generator().manual_seed(0)
    direct = torch.zeros(3, 4, 4, dtype=torch.float64)
    for step in range(40):
        features = torch.randn(3, 4, generator=draw, dtype=torch.float64)
        starts = torch.rand(3, generator=draw) < 0.1 if step else torch.ones(3, dtype=torch.bool)
        direct[starts] = RIDGE * torch.eye(4, dtype=torch.float64)
        expected = torch.einsum("bi,bij,bj->b", features, direct.inverse(), features)
        torch.testing.assert_close(ellipsoid.visit(features, starts), expected, rtol=1e-6, atol=1e-6)
        direct += features.unsqueeze(2) * features.unsqueeze(1)
    torch.testing.assert_close(ellipsoid.inverse, direct.inverse(), rtol=1e-6, atol=1e-6)


def test_an_observation_is_new_once_in_an_episode() -> None:
    visits, one, other = FirstVisits(1), torch.zeros(1, 2), torch.ones(1, 2)
    steps = [(one, True), (other, False), (one, False), (one, True), (one, False)]
    assert [float(visits.visit(row, torch.tensor([start]))) for row, start in steps] == [1, 1, 0, 1, 0]


@pytest.mark.parametrize("kind", ["e3b", "noveld", "both"])
def test_bonus_of_a_split_rollout_equals_the_whole(kind: str) -> None:
    torch.manual_seed(0)
    observations = torch.randn(3, 11, 5)
    starts = torch.zeros(3, 11, dtype=torch.bool)
    starts[:, 0] = starts[1, 4] = starts[2, 5] = True
    whole, parts = Bonus(kind, 3, 5, TWO), Bonus(kind, 3, 5, TWO)
    parts.load_state_dict(whole.state_dict())
    for bonus in (whole, parts):
        bonus.visit(observations[:, 0], starts[:, 0])
    paid = whole.pay(observations, starts)
    first, second = parts.pay(observations[:, :6], starts[:, :6]), parts.pay(observations[:, 5:], starts[:, 5:])
    shape = [part / part.abs().sum() for part in (paid[:, 5:], second)]  # the deviation grows with what was paid
    torch.testing.assert_close(*shape)
    assert paid[1, 3] == paid[2, 4] == first[2, 4] == 0
    assert (paid[0] > 0).any()


def test_novelty_fades_where_observations_come_back_and_not_elsewhere() -> None:
    torch.manual_seed(0)
    bonus = Bonus("noveld", 1, 6, TWO)
    row, other = torch.eye(6)[0], torch.eye(6)[5]
    before = bonus.error(torch.stack([row, other])).detach()
    observations, starts = row.expand(1, 33, 6), torch.zeros(1, 33, dtype=torch.bool)
    for _ in range(50):
        bonus.learn(observations, starts, torch.zeros(1, 32, 1, dtype=torch.long), torch.Generator())
    after = bonus.error(torch.stack([row, other])).detach()
    assert after[0] < 0.01 * before[0]
    assert after[1] > 0.1 * before[1]


def test_the_encoder_learns_which_action_was_taken() -> None:
    torch.manual_seed(0)
    bonus = Bonus("e3b", 8, 2, TWO)
    done = torch.randint(2, (8, 16, 1))
    observations = torch.cat([torch.zeros(8, 1, 2), torch.nn.functional.one_hot(done[..., 0], 2).float()], 1)
    starts = torch.zeros(8, 17, dtype=torch.bool)
    for _ in range(60):
        bonus.learn(observations, starts, done, torch.Generator().manual_seed(0))
    features = bonus.encoder(observations)
    guess = bonus.action(torch.cat([features[:, :-1], features[:, 1:]], 2)).argmax(-1, keepdim=True)
    assert torch.equal(guess, done)


@pytest.mark.parametrize("kind", ["e3b", "noveld", "both"])
def test_returns_are_those_of_the_world_and_rewards_have_the_bonus(kind: str) -> None:
    row = Trainer(replace(SMALL, steps=1024, bonus=kind, bonus_weight=10.0), Recall).update()
    assert abs(float(row["return"] or 0.0)) <= 1.0
    assert float(row["bonus"] or 0.0) > 0.0


@pytest.mark.parametrize(("setting", "there_are"), [("predict", "observation, latent"), ("bonus", "e3b, noveld, both")])
def test_unknown_auxiliary_names_are_refused(setting: str, there_are: str) -> None:
    with pytest.raises(SettingError, match=f"none of none, {there_are}"):
        PpoSettings(**{setting: "e4b"})  # type: ignore[arg-type]
