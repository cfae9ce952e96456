"""Correction: detached weights and masks for the gap between the policy that sampled and the one that anchors.

rho = anchor / behaviour per token. Even equal weights give rho != 1 when two engines compute them. Token weights are
biased with little variance; sequence weights are unbiased with a variance that grows with length; geometric means do
not depend on length but are only filters. Names follow https://fengyao.notion.site/off-policy-rl and its successors.
"""

from __future__ import annotations

from dataclasses import dataclass

from keepworth.episodes.needs import needs_train

import torch
from torch import Tensor

from keepworth.learning.objective import parts
from keepworth.learning.objective.batch import Batch
from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.ratio import LOG_LIMIT, unit_of, unit_sum


@dataclass(frozen=True, slots=True)
class Correction:
    """weight [B,T] >= 0 and keep [B,T] in {0, 1}, both without gradient."""

    weight: Tensor
    keep: Tensor


def truncated(log_rho: Tensor, low: float, high: float) -> Tensor:
    """clip(rho, low, high): truncated importance sampling (TIS). Works on tokens or on sequence sums."""
    return log_rho.clamp(-LOG_LIMIT, LOG_LIMIT).exp().clamp(low, high)


def inside(log_rho: Tensor, low: float, high: float) -> Tensor:
    """1 where low <= rho <= high, else 0. With the weight rho itself this is IcePop's M(rho), arXiv 2510.18855."""
    rho = log_rho.clamp(-LOG_LIMIT, LOG_LIMIT).exp()
    return ((rho >= low) & (rho <= high)).to(log_rho.dtype)


def k2_gap(log_rho: Tensor) -> Tensor:
    return log_rho**2 / 2


def k3_gap(log_rho: Tensor) -> Tensor:
    clamped = log_rho.clamp(-LOG_LIMIT, LOG_LIMIT)
    return clamped.exp() - clamped - 1


def correction(objective: Objective, anchor: Tensor, batch: Batch) -> Correction:
    """Weight and keep of every token, those of the objective's corrections multiplied; 1 and 1 where it corrects nothing.

    Truncate: TIS. Mask: IcePop. SequenceTruncate: VCPO (arXiv 2602.17616) with 8. SequenceMask: MIS. A sequence is a row, or the
    whole episode.
    """
    mask = batch.mask > 0
    log_rho = torch.where(mask, (anchor - batch.lp_behaviour.to(anchor.dtype)).detach(), 0.0)
    weight, keep = torch.ones_like(log_rho), torch.ones_like(log_rho)
    for each in objective.correction:
        own_weight, own_keep = _one(each, log_rho, mask, batch)
        weight = weight if own_weight is None else weight * own_weight
        keep = keep if own_keep is None else keep * own_keep
    return Correction(weight, keep)


def _one(chosen: parts.Correction, log_rho: Tensor, mask: Tensor, batch: Batch) -> tuple[Tensor | None, Tensor | None]:
    if isinstance(chosen, parts.Truncate):
        return truncated(log_rho, chosen.low, chosen.high), None
    if isinstance(chosen, parts.Mask):
        return truncated(log_rho, 0.0, torch.inf), inside(log_rho, chosen.low, chosen.high)
    unit = unit_of(batch, chosen.unit)
    length = unit_sum(mask.to(log_rho.dtype), unit).clamp(min=1)
    total = unit_sum(log_rho, unit)[:, None].expand_as(log_rho)
    if isinstance(chosen, parts.SequenceTruncate):
        return truncated(total, 0.0, chosen.high), None
    if isinstance(chosen, parts.SequenceMask):
        return truncated(total, 0.0, torch.inf), inside(total, chosen.low, chosen.high)
    if isinstance(chosen, parts.GeometricMask):
        return None, inside(total / length[:, None], chosen.low, chosen.high)
    if isinstance(chosen, parts.Veto):
        low_tokens = (mask & (log_rho.exp() < chosen.below)).to(log_rho.dtype)
        return None, (unit_sum(low_tokens, unit) == 0).to(log_rho.dtype)[:, None].expand_as(log_rho)
    gap = k2_gap(log_rho) if isinstance(chosen, parts.K2Mask) else k3_gap(log_rho)
    return None, (unit_sum(gap, unit) / length <= chosen.high).to(log_rho.dtype)[:, None].expand_as(log_rho)


def effective_sample_size(log_weight: Tensor) -> Tensor:
    """(sum w)^2 / (N sum w^2) of sequence weights [N], between 1/N and 1; its collapse is the early alarm of staleness.

    Source: Stable Asynchrony (VCPO), arXiv 2602.17616. Taken before any truncation.
    """
    # A common factor cancels, so the largest weight may be scaled to 1: no overflow.
    weight = (log_weight.to(torch.float64) - log_weight.max()).exp()
    return weight.sum() ** 2 / (len(weight) * (weight**2).sum())


def mismatch(batch: Batch, unit: str = "episode") -> dict[str, float]:
    """Gap between proximal and behaviour log-probabilities over a batch: mean and max |gap|, k3, and ESS."""
    if batch.lp_proximal is None:
        return {}
    mask = batch.mask > 0
    gap = torch.where(mask, batch.lp_proximal - batch.lp_behaviour.to(batch.lp_proximal.dtype), 0.0).detach()
    tokens = mask.sum().clamp(min=1)
    index = unit_of(batch, unit)
    first = torch.zeros(int(index.max()) + 1, dtype=gap.dtype, device=gap.device).index_add(0, index, gap.sum(1))
    rho = gap.clamp(-LOG_LIMIT, LOG_LIMIT).exp()
    values = torch.stack(
        (
            gap.abs().sum() / tokens,
            gap.abs().max(),
            (k3_gap(gap) * mask).sum() / tokens,
            (rho * mask).max(),
            (rho * rho * mask).sum() / tokens - 1,
            effective_sample_size(first).to(gap.dtype),
        )
    )
    names = ("mismatch_mean", "mismatch_max", "mismatch_k3", "rho_max", "rho_chi2", "ess")
    return dict(zip(names, values.tolist(), strict=True))
