"""The regression's optimum."""

from __future__ import annotations

import pytest
import torch

from keepworth.learning.objective.advantage import advantages
from keepworth.learning.objective.policy_loss import denominators, loss
from keepworth.learning.objective.presets import preset
from keepworth.methods.objectives.a_star_po import Regression, SoftValue
from tests.learning.objective.toys import bandit_batch


def test_regression_is_zero_at_the_optimal_policy() -> None:
    beta = 0.4
    reference = torch.log_softmax(torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64), 0)
    arms = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64)
    best = beta * torch.logsumexp(reference + arms / beta, 0)
    policy = reference + (arms - best) / beta
    assert float(policy.exp().sum()) == pytest.approx(1.0)
    objective = preset("a_star_po", surrogate=Regression(beta), advantage=SoftValue(beta))
    batch = bandit_batch(arms.tolist(), [0, 1, 2], lp_reference=reference[:, None], soft_value=best.expand(3))
    lp = policy[:, None].clone().requires_grad_(True)
    value, _ = loss(objective, lp, None, advantages(batch, objective), batch, denominators(batch, objective))
    (grad,) = torch.autograd.grad(value, lp)
    assert float(value.detach()) == pytest.approx(0.0, abs=1e-12)
    assert grad.abs().max() < 1e-10
