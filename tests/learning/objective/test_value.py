"""The critic's loss, the effective sample size, and moving a batch."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from keepworth.learning.objective.parts import Gae, Whitened
from keepworth.learning.objective.policy_loss import denominators, value_loss
from keepworth.learning.objective.presets import preset, varied
from tests.learning.objective.toys import bandit_batch, toy

PPO = preset("ppo")


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def test_value_loss_by_hand() -> None:
    """Old values 0; new ones 0.1, 0.5, 0.5; targets 1, 1, 0.1; a step beyond 0.2 is clipped where that is worse."""
    batch = bandit_batch([1.0, 1.0, 0.1], values=column(0.0, 0.0, 0.0))
    targets = column(1.0, 1.0, 0.1)
    values = column(0.1, 0.5, 0.5).requires_grad_(True)
    shared = denominators(batch, PPO)
    got = value_loss(values, targets, batch, PPO, shared)
    # Clipped predictions are 0.1, 0.2, 0.2: errors max(.81, .81), max(.25, .64), max(.16, .01).
    assert float(got.detach()) == pytest.approx(0.5 * 0.5 * (0.81 + 0.64 + 0.16) / 3)
    (grad,) = torch.autograd.grad(got, values)
    assert grad[1] == 0.0
    assert float(grad[2]) == pytest.approx(0.5 * 0.4 / 3)
    free = value_loss(values, targets, batch, varied(PPO, advantage=Gae(0.95, scale=Whitened())), shared)
    assert float(free.detach()) == pytest.approx(0.5 * 0.5 * (0.81 + 0.25 + 0.16) / 3)
    with pytest.raises(ValueError, match=r"Batch\.values"):
        value_loss(values, targets, replace(batch, values=None), PPO, shared)


def test_value_loss_ignores_what_was_not_drawn_and_adds_up() -> None:
    world = toy()
    batch, objective = world.batch, varied(PPO, advantage=Gae(0.95, scale=Whitened()))
    assert batch.values is not None
    targets, shared = torch.randn(batch.shape).double(), denominators(batch, objective)
    whole = value_loss(batch.values, targets, batch, objective, shared)
    parts = [
        value_loss(batch.values[rows], targets[rows], batch.rows(rows), objective, shared)
        for rows in (slice(0, 4), slice(4, None))
    ]
    torch.testing.assert_close(parts[0] + parts[1], whole)
    noisy = torch.where(batch.mask > 0, targets, math.nan)
    torch.testing.assert_close(value_loss(batch.values, noisy, batch, objective, shared), whole)
