"""KL: estimators of KL(policy, reference) from the log-probabilities of drawn tokens, by value and by gradient.

With x = lp - lp_reference and samples of the policy. As a loss on fixed samples, what counts is the expected gradient:

    k1                    x                    0: it regularises nothing; right only inside the reward
    k2                    x^2 / 2              that of KL(policy, reference)
    k3                    exp(-x) - 1 + x      that of KL(reference, policy), the other direction
    ratio_k3              r (exp(-x) - 1 + x)  that of KL(policy, reference) on-policy
    k3_straight_through   k3's value           k2's gradient: that of KL(policy, reference)

Source: Approximating KL Divergence (Schulman, 2020) for the estimators; the gradients follow from them and are tested
by enumeration.
"""

from __future__ import annotations

from keepworth.episodes.needs import needs_train

import torch
from torch import Tensor

LOG_LIMIT = 20.0
K3_LIMIT = 10.0


def k1(lp: Tensor, lp_reference: Tensor) -> Tensor:
    return lp - lp_reference


def k2(lp: Tensor, lp_reference: Tensor) -> Tensor:
    return (lp - lp_reference).clamp(-LOG_LIMIT, LOG_LIMIT) ** 2 / 2


def k3(lp: Tensor, lp_reference: Tensor) -> Tensor:
    """Never negative, unbiased: the one to watch."""
    x = (lp - lp_reference).clamp(-LOG_LIMIT, LOG_LIMIT)
    return (torch.exp(-x) - 1 + x).clamp(max=K3_LIMIT)


def kl_estimate(estimator: str, lp: Tensor, lp_reference: Tensor, log_ratio: Tensor | None = None) -> Tensor:
    """[B,T]: the estimator of that name; `ratio_k3` needs log_ratio of the current over the sampling policy."""
    if estimator == "k1":
        return k1(lp, lp_reference)
    if estimator == "k2":
        return k2(lp, lp_reference)
    if estimator == "k3":
        return k3(lp, lp_reference)
    if estimator == "ratio_k3":
        if log_ratio is None:
            raise ValueError("ratio_k3 needs the log-ratio of the current over the sampling policy")
        return log_ratio.exp() * k3(lp, lp_reference)
    if estimator == "k3_straight_through":
        quadratic = k2(lp, lp_reference)
        return k3(lp, lp_reference).detach() + quadratic - quadratic.detach()
    raise ValueError(f"unknown KL estimator {estimator!r}: k1, k2, k3, ratio_k3 or k3_straight_through")


def adapted_coefficient(coefficient: float, kl: float, target: float, samples: int, horizon: int) -> float:
    """coefficient * (1 + clip(kl / target - 1, -0.2, 0.2) * samples / horizon).

    Source: Fine-Tuning Language Models from Human Preferences, arXiv 1909.08593, section 2.2.
    """
    if not target > 0:
        raise ValueError(f"adapted_coefficient: target must be positive, got {target}")
    error = min(max(kl / target - 1, -0.2), 0.2)
    return coefficient * (1 + error * samples / horizon)
