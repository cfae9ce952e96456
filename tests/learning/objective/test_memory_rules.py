"""Credit rules made for memory: attribution, branching, episodic reward."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from keepworth.learning.objective.advantage import advantages
from keepworth.learning.objective.parts import Outcome
from keepworth.learning.objective.policy_loss import denominators, loss
from keepworth.learning.objective.presets import preset, varied
from keepworth.methods.recipes._bank.rerolls import sampled_sessions
from keepworth.methods.recipes._episodic import EpisodicReward
from tests.learning.objective.toys import bandit_batch


def test_local_and_global_branches_are_compared_and_averaged_apart() -> None:
    """Two rollouts of the task, three re-rolls of one session; each branch is a mean over its own rows."""
    rewards, group = [1.0, 0.0, 0.9, 0.1, 0.5], [0, 0, 1, 1, 1]
    branch = torch.tensor([0, 0, 1, 1, 1])
    objective = varied(preset("memory_r2"), kl=None, advantage=Outcome("group"), local_weight=2.0, entropy=None)
    batch = bandit_batch(rewards, group, branch=branch)
    estimate = advantages(batch, objective)[:, 0]
    torch.testing.assert_close(estimate, torch.tensor([0.5, -0.5, 0.4, -0.4, 0.0], dtype=torch.float64))
    lp = torch.zeros(5, 1, dtype=torch.float64, requires_grad=True)
    value, _ = loss(objective, lp, None, estimate[:, None], batch, denominators(batch, objective))
    (grad,) = torch.autograd.grad(value, lp)
    divisor = torch.tensor([2.0, 2.0, 1.5, 1.5, 1.5], dtype=torch.float64)
    torch.testing.assert_close(grad[:, 0], -estimate / divisor)
    with pytest.raises(ValueError, match=r"Batch\.branch"):
        denominators(bandit_batch(rewards, group), objective)


def test_branching() -> None:
    chosen = [sampled_sessions(20, 0.5, seed) for seed in range(200)]
    assert sum(map(len, chosen)) / 4000 == pytest.approx(0.5, abs=0.03)
    assert chosen[7] == sampled_sessions(20, 0.5, 7)


QUERY, RIGHT, WRONG = np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([1.0, 1.0])


def test_warm_up_windows_eviction_and_restoring() -> None:
    reward = EpisodicReward(queries=2, responses=2, warmup=3)
    for angle in range(4):
        query = np.array([np.cos(angle), np.sin(angle)])
        reward.score_group(query, np.stack([RIGHT, WRONG, RIGHT * 2]), [1.0, 0.0, 1.0])
    assert len(reward.successes.entries) == 2
    assert all(len(responses) == 2 for _, responses in reward.successes.entries.values())
    copy = EpisodicReward(queries=2, responses=2, warmup=3)
    copy.restore(reward.state())
    batch = np.stack([RIGHT, WRONG * 1.5])
    assert copy.score_group(QUERY, batch, [1.0, 0.0]) == reward.score_group(QUERY, batch, [1.0, 0.0])
    assert copy.state() == reward.state()
