"""Surrogates: what is maximised at a token, from its log-ratio and its (detached) advantage. All tensors [B,T]."""

from __future__ import annotations

from keepworth.episodes.needs import needs_train

import torch
from torch import Tensor

from keepworth.learning.objective import parts
from keepworth.learning.objective.options import Objective


def plain(log_ratio: Tensor, advantage: Tensor) -> Tensor:
    """r A. At r = 1 its gradient is REINFORCE's."""
    return log_ratio.exp() * advantage


def clip(log_ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """min(r A, clip(r, 1 - low, 1 + high) A). A > 0 has a gradient iff r < 1 + high, A < 0 iff r > 1 - low.

    Source: Proximal Policy Optimization Algorithms, arXiv 1707.06347, eq. 7; unequal bounds from DAPO,
    arXiv 2503.14476.
    """
    ratio = log_ratio.exp()
    return torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)


def dual_clip(log_ratio: Tensor, advantage: Tensor, low: float, high: float, bound: float) -> Tensor:
    """`clip`, but for A < 0 never below bound * A: a negative token with a huge ratio stops pulling.

    Source: Mastering Complex Control in MOBA Games with Deep Reinforcement Learning, arXiv 1912.09729; bound 3 there.
    """
    clipped = clip(log_ratio, advantage, low, high)
    return torch.where(advantage < 0, torch.maximum(clipped, bound * advantage), clipped)


def cispo(log_ratio: Tensor, advantage: Tensor, lp: Tensor, low: float, high: float) -> Tensor:
    """sg[clip(r, 1 - low, 1 + high)] A lp: the weight is capped, no token loses its gradient.

    Source: MiniMax-M1, arXiv 2506.13585. low >= 1 switches the lower bound off.
    """
    weight = log_ratio.detach().exp().clamp(max(0.0, 1 - low), 1 + high)
    return weight * advantage * lp


def soft_gate(log_ratio: Tensor, advantage: Tensor, positive: float, negative: float) -> Tensor:
    """(4 / tau) sigmoid(tau (r - 1)) A, tau = positive where A > 0, negative elsewhere; slope 1 at r = 1.

    Source: Soft Adaptive Policy Optimization, arXiv 2511.20347.
    """
    tau = torch.full_like(advantage, negative).masked_fill(advantage > 0, positive)
    return 4 / tau * torch.sigmoid(tau * (log_ratio.exp() - 1)) * advantage


def log_prob(lp: Tensor, advantage: Tensor) -> Tensor:
    """lp A: the score-function estimator, no ratio.

    Source: Simple statistical gradient-following algorithms for connectionist reinforcement learning (Williams, 1992).
    """
    return lp * advantage


def surrogate(objective: Objective, lp: Tensor, log_ratio: Tensor | None, advantage: Tensor) -> Tensor:
    """That of an objective's part; log_ratio is None exactly where it has no ratio."""
    if log_ratio is None:
        return log_prob(lp, advantage)
    chosen = objective.surrogate
    if isinstance(chosen, parts.SoftGate):
        return soft_gate(log_ratio, advantage, chosen.positive, chosen.negative)
    if isinstance(chosen, parts.Cispo):
        return cispo(log_ratio, advantage, lp, chosen.low, chosen.high)
    if isinstance(chosen, parts.DualClip):
        return dual_clip(log_ratio, advantage, chosen.low, chosen.high, chosen.bound)
    if isinstance(chosen, parts.Clip):
        return clip(log_ratio, advantage, chosen.low, chosen.high)
    return plain(log_ratio, advantage)


def clip_shares(objective: Objective, log_ratio: Tensor, advantage: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Shares of drawn tokens whose gradient the surrogate cut (for cispo: whose weight it capped), by bound."""
    ratio = log_ratio.detach().exp()
    chosen = objective.surrogate
    if not isinstance(chosen, parts.Clip | parts.DualClip | parts.Cispo):
        return {}
    low, high = chosen.low, chosen.high
    tokens = mask.sum().clamp(min=1)
    below, above = ratio < 1 - low, ratio > 1 + high
    if not isinstance(chosen, parts.Cispo):
        below, above = below & (advantage < 0), above & (advantage > 0)
    shares = {"clip_fraction_low": (below * mask).sum() / tokens, "clip_fraction_high": (above * mask).sum() / tokens}
    shares["clip_fraction"] = shares["clip_fraction_low"] + shares["clip_fraction_high"]
    if isinstance(chosen, parts.DualClip):
        cut = (ratio > chosen.bound) & (advantage < 0)
        shares["dual_clip_fraction"] = (cut * mask).sum() / tokens
    return shares
