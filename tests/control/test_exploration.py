"""Bonuses for what is new: by hand, by a direct inverse, and over the borders of episodes and rollouts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from gymnasium import spaces

from keepworth.control.exploration import RIDGE, Bonus, Ellipsoid, FirstVisits
from keepworth.control.ppo import Trainer
from keepworth.control.settings import PpoSettings, SettingError
from keepworth.control.spaces import ActionSpace
from tests.control.worlds import Recall

SMALL = PpoSettings(world="recall", steps=1024, envs=8, rollout=16, chunk=16, width=16, minibatches=2)
GOING_ON = torch.zeros(1, dtype=torch.bool)


def test_the_ellipsoid_by_hand() -> None:
    """C = 0.1 I; after (1, 0) it is diag(1.1, 0.1), so that (1, 0) pays 1 / 1.1 and (0, 1) still 10."""
    ellipsoid = Ellipsoid(1, 2)
    assert float(ellipsoid.visit(torch.tensor([[1.0, 0.0]]), ~GOING_ON)) == pytest.approx(10.0)
    assert float(ellipsoid.visit(torch.tensor([[1.0, 0.0]]), GOING_ON)) == pytest.approx(1 / 1.1)
    assert float(ellipsoid.visit(torch.tensor([[0.0, 1.0]]), GOING_ON)) == pytest.approx(10.0)
    assert float(ellipsoid.visit(torch.tensor([[1.0, 0.0]]), ~GOING_ON)) == pytest.approx(10.0)


def test_the_ellipsoid_is_the_inverse_of_what_an_episode_visited() -> None:
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
def test_a_rollout_in_two_parts_is_paid_as_one_and_ends_earn_nothing(kind: str) -> None:
    torch.manual_seed(0)
    actions = ActionSpace(spaces.Discrete(2))
    observations = torch.randn(3, 11, 5)
    starts = torch.zeros(3, 11, dtype=torch.bool)
    starts[:, 0] = starts[1, 4] = starts[2, 5] = True
    whole, parts = Bonus(kind, 3, 5, actions), Bonus(kind, 3, 5, actions)
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
    bonus = Bonus("noveld", 1, 6, ActionSpace(spaces.Discrete(2)))
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
    bonus = Bonus("e3b", 8, 2, ActionSpace(spaces.Discrete(2)))
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
    trainer = Trainer(replace(SMALL, bonus=kind, bonus_weight=10.0), Recall)
    row = trainer.update()
    assert abs(float(row["return"] or 0.0)) <= 1.0
    assert float(row["bonus"] or 0.0) > 0.0


def test_a_bonus_that_there_is_not_is_named() -> None:
    with pytest.raises(SettingError, match="none of none, e3b, noveld, both"):
        PpoSettings(bonus="e4b")
