"""Objectives that learn: bandits for every preset, and coins in the place of rewards."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from keepworth.methods.objectives.a_star_po import soft_value
from keepworth.methods.objectives.spurious import Spurious
from keepworth.training.objective.advantage import advantages, select
from keepworth.training.objective.batch import Batch, Steps
from keepworth.training.objective.options import Objective, advance, initial
from keepworth.training.objective.policy_loss import denominators, effective_sample_size, loss
from keepworth.training.objective.presets import preset, presets
from tests.learning.objective.toys import bandit_batch, runnable

EIGHT_ARMS = torch.tensor([0.1, 0.3, 0.0, 0.5, 0.2, 1.0, 0.4, 0.6], dtype=torch.float64)


@dataclass
class Bandit:
    """A softmax policy over arms with fixed rewards, sampled in groups; one token an episode."""

    rewards: Tensor
    seed: int
    groups: int = 4
    size: int = 8

    def __post_init__(self) -> None:
        self.logits = torch.zeros(len(self.rewards), dtype=torch.float64, requires_grad=True)
        self.generator = torch.Generator().manual_seed(self.seed)

    def sample(self, objective: Objective) -> Batch:
        with torch.no_grad():
            lp = torch.log_softmax(self.logits, 0)
            count = self.groups * self.size
            arms = torch.multinomial(lp.exp(), count, replacement=True, generator=self.generator)
            rewards = self.rewards[arms]
            index = torch.arange(count)
            drawn = lp[arms][:, None]
            return bandit_batch(
                rewards.tolist(),
                (index // self.size).tolist(),
                lp_behaviour=drawn,
                lp_proximal=drawn,
                lp_reference=torch.full_like(drawn, -math.log(len(self.rewards))),
                lp_teacher=torch.log_softmax(self.rewards, 0)[arms][:, None],
                values=0 * drawn,
                action_values=rewards[:, None],
                task_type=0 * index,
                step=index[:, None],
                steps=Steps(index, 0 * index, rewards * 0, 0 * index, 1.0 + index % 3),
                ids=arms[:, None],
                soft_value=soft_value(self.rewards, getattr(objective.advantage, "temperature", 1.0)).expand(count),
                score_norm=(1 - 2 * lp[arms].exp() + (lp.exp() ** 2).sum()).sqrt(),
                branch=index // self.size % 2,
                metric=(rewards >= self.rewards.max()).double(),
            )

    def best(self) -> float:
        return float(torch.softmax(self.logits.detach(), 0)[self.rewards.argmax()])


def train(objective: Objective, bandit: Bandit, steps: int, learning_rate: float = 0.1) -> None:
    """Runs `steps` updates with Adam."""
    optimiser = torch.optim.Adam([bandit.logits], lr=learning_rate)
    controls = initial(objective)
    for _ in range(steps):
        batch: Any = bandit.sample(objective)
        size = float(effective_sample_size((batch.lp_proximal - batch.lp_behaviour).sum(1)))
        estimate = advantages(batch, objective)
        batch = select(batch, objective, estimate, controls, bandit.generator)
        table = torch.log_softmax(bandit.logits, 0)
        lp = table[batch.ids]
        entropy = -(table.exp() * table).sum().expand_as(lp)
        value, metrics = loss(objective, lp, entropy, estimate, batch, denominators(batch, objective), controls)
        optimiser.zero_grad()
        value.backward()
        scale = 1.0 if objective.step_control is None else objective.step_control.scale(size)
        optimiser.param_groups[0]["lr"] = learning_rate * scale
        optimiser.step()
        controls = advance(controls, objective, entropy=metrics["entropy"], kl=metrics["reference_kl"])


@pytest.mark.parametrize("name", sorted(set(presets()) - {"spurious"}))
def test_every_preset_solves_the_eight_armed_bandit(name: str) -> None:
    bandit = Bandit(EIGHT_ARMS, 0)
    train(runnable(preset(name)), bandit, 120)
    assert bandit.best() > 0.95


def test_random_rewards_do_not_teach_the_best_arm() -> None:
    bandits = [Bandit(EIGHT_ARMS, seed) for seed in range(8)]
    for bandit in bandits:
        train(runnable(preset("spurious")), bandit, 120)
    favourites = [int(bandit.logits.argmax()) for bandit in bandits]
    assert len(set(favourites)) >= 3
    assert sum(bandit.best() for bandit in bandits) / len(bandits) == pytest.approx(1 / 8, abs=0.2)


def test_random_rewards_depend_on_samples_only() -> None:
    objective, batch = preset("spurious"), Bandit(EIGHT_ARMS, 0).sample(preset("spurious"))
    other = replace(batch, rewards=1 - batch.rewards)
    assert torch.equal(advantages(batch, objective), advantages(other, objective))
    assert not torch.equal(advantages(batch, objective), advantages(Bandit(EIGHT_ARMS, 1).sample(objective), objective))
    for share in (0.0, 1.0):
        assert not advantages(batch, preset("spurious", advantage=Spurious(share))).any()
