"""Regression: A*-PO's squared loss on whole episodes instead of a surrogate."""

from __future__ import annotations

from keepworth.episodes.needs import needs_train

import torch
from torch import Tensor

from keepworth.learning.objective.aggregation import Denominators
from keepworth.learning.objective.batch import Batch
from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.parts import Regression
from keepworth.learning.objective.ratio import unit_of


def regression(
    objective: Objective, lp: Tensor, advantages: Tensor, batch: Batch, denominators: Denominators
) -> Tensor:
    """Mean over episodes of (beta * sum over drawn tokens of (lp - lp_reference) - (R - V*))^2.

    advantages [B,T] hold R - V* on every drawn token of an episode. The loss is on the summed log-ratio, so its scale
    grows with length. At pi = reference * exp((R - V*) / beta) it is zero.
    Source: Accelerating RL for LLM Reasoning with Optimal Advantage Regression (A*-PO), arXiv 2505.20686.
    """
    if batch.lp_reference is None:
        raise ValueError("surrogate=Regression(...) needs Batch.lp_reference")
    assert isinstance(objective.surrogate, Regression)
    beta = objective.surrogate.coefficient
    mask = (batch.mask > 0).to(lp.dtype)
    keep = mask if batch.keep is None else mask * (batch.keep > 0)
    unit = unit_of(batch, "episode")
    count = int(unit.max()) + 1 if len(unit) else 0
    zeros = torch.zeros(count, dtype=lp.dtype, device=lp.device)
    log_ratio = zeros.index_add(0, unit, (torch.where(keep > 0, lp - batch.lp_reference.to(lp.dtype), 0.0)).sum(1))
    tokens = zeros.index_add(0, unit, keep.sum(1))
    gain = zeros.index_add(0, unit, (advantages * keep).sum(1)) / tokens.clamp(min=1)
    error = torch.where(tokens > 0, beta * log_ratio - gain, 0.0)
    return (error**2).sum() / denominators.units.sum().clamp(min=1).to(lp.dtype)
