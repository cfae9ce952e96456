"""KL estimators by exact enumeration on a softmax bandit: values, gradients as losses, fixed points."""

from __future__ import annotations

import torch
from torch import Tensor

from keepworth.learning.objective.policy_loss import k2, k3

LOGITS = torch.tensor([0.4, -0.3, 0.8, 0.1], dtype=torch.float64)
REFERENCE = torch.log_softmax(torch.tensor([-0.2, 0.5, 0.3, -0.6], dtype=torch.float64), 0)


ESTIMATORS = {"k1": lambda lp, reference: lp - reference, "k2": k2, "k3": k3}


def expected_gradient(estimator: str, logits: Tensor) -> Tensor:
    """Gradient of E[estimator] with the samples' probabilities held fixed, as a loss on samples sees it."""
    logits = logits.clone().requires_grad_(True)
    lp = torch.log_softmax(logits, 0)
    (grad,) = torch.autograd.grad((lp.exp().detach() * ESTIMATORS[estimator](lp, REFERENCE)).sum(), logits)
    return grad


def reverse(logits: Tensor) -> Tensor:
    lp = torch.log_softmax(logits, 0)
    return (lp.exp() * (lp - REFERENCE)).sum()


def forward(logits: Tensor) -> Tensor:
    lp = torch.log_softmax(logits, 0)
    return (REFERENCE.exp() * (REFERENCE - lp)).sum()


def gradient_of(function: object, logits: Tensor) -> Tensor:
    logits = logits.clone().requires_grad_(True)
    (grad,) = torch.autograd.grad(function(logits), logits)  # type: ignore[operator]
    return grad


def test_values() -> None:
    lp = torch.log_softmax(LOGITS, 0)
    kl = reverse(LOGITS)
    torch.testing.assert_close((lp.exp() * k3(lp, REFERENCE)).sum(), kl)
    assert (k3(lp, REFERENCE) >= 0).all()
    assert float(k3(torch.tensor(-100.0), torch.tensor(0.0))) == 10.0


def test_gradients_as_losses() -> None:
    kl, backward = gradient_of(reverse, LOGITS), gradient_of(forward, LOGITS)
    assert expected_gradient("k1", LOGITS).abs().max() < 1e-12
    torch.testing.assert_close(expected_gradient("k2", LOGITS), kl, atol=1e-12, rtol=1e-9)
    torch.testing.assert_close(expected_gradient("k3", LOGITS), backward, atol=1e-12, rtol=1e-9)
    assert (kl - backward).abs().max() > 1e-2
