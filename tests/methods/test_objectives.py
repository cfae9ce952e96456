"""Every objective of the registry: its gradient is that of its loss, and its parts change the update."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from torch import Tensor

from keepworth.learning.objective.advantage import advantages, select
from keepworth.learning.objective.policy_loss import denominators, loss
from keepworth.learning.objective.presets import preset
from keepworth.registry import methods
from tests.learning.objective.toys import Toy, runnable, toy

STOPPED = ("cispo",)
"""Whose loss holds a weight without gradient, so that its value says nothing of it."""


def loss_of(name: str, logits: Tensor) -> Tensor:
    """The objective's loss on the toy batch, as a function of the policy's logits."""
    world, objective = toy(), runnable(preset(name))
    estimate = advantages(world.batch, objective)
    batch = select(world.batch, objective, estimate, generator=torch.Generator().manual_seed(0))
    lp, entropy = Toy(batch, logits).forward()
    return loss(objective, lp, entropy, estimate, batch, denominators(batch, objective))[0]


@pytest.mark.parametrize("name", [name for name in methods("objective") if name not in STOPPED])
def test_the_gradient_is_a_finite_difference(name: str) -> None:
    logits = toy().logits.detach().requires_grad_(True)
    assert torch.autograd.gradcheck(lambda each: loss_of(name, each), (logits,), atol=1e-6, rtol=1e-4)


def test_no_two_objectives_make_the_same_update() -> None:
    updates = {}
    for name in methods("objective"):
        logits = toy().logits.detach().requires_grad_(True)
        (updates[name],) = torch.autograd.grad(loss_of(name, logits), logits)
    alike = [pair for pair in combinations(updates, 2) if torch.allclose(updates[pair[0]], updates[pair[1]], atol=1e-9)]
    assert not alike
