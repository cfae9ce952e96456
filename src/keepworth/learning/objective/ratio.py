"""Ratio: how far the current policy has moved from an anchor, per token or per sequence.

Four log-probabilities: behaviour (the sampler's), proximal (recomputed before the first update on the batch), current
(with gradient), reference. r = current / anchor, rho = anchor / behaviour; their product is the total weight.
"""

from __future__ import annotations

from keepworth.episodes.needs import needs_train

import torch
from torch import Tensor

from keepworth.learning.objective.batch import Batch
from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.parts import Ratio, SequenceProduct, SequenceToken, Token

LOG_LIMIT = 20.0
GEOMETRIC_LOG_LIMIT = 10.0


def unit_of(batch: Batch, unit: str) -> Tensor:
    """[B]: index of the sequence each row belongs to, counted from 0: the row itself, or its episode."""
    if unit == "row":
        return torch.arange(batch.shape[0], device=batch.mask.device)
    index: Tensor = torch.unique(batch.episode, return_inverse=True)[1]
    return index


def unit_sum(values: Tensor, unit: Tensor) -> Tensor:
    """[B,T] -> [B]: sum over all tokens of a row's sequence, read back at each of its rows."""
    per_row = values.sum(1)
    count = int(unit.max()) + 1 if len(unit) else 0
    total = torch.zeros(count, dtype=per_row.dtype, device=per_row.device).index_add(0, unit, per_row)
    result: Tensor = total[unit]
    return result


def interpolated(lp: Tensor, lp_behaviour: Tensor, version_lag: Tensor) -> Tensor:
    """Proximal log-probabilities without a forward pass: behaviour + alpha (current - behaviour), detached.

    alpha = (lag - 1) / lag, at least 0: the proximal policy is taken to be the version before the trained one, so a
    token that is at most one version old keeps its own log-probability. lag: the trained version minus the token's.
    Source: AReaL, arXiv 2505.24298; the log-linear option in the code of inclusionAI/AReaL.
    """
    lag = version_lag.to(lp.dtype).clamp(min=1)
    return (lp_behaviour + (lag - 1) / lag * (lp - lp_behaviour)).detach()


def anchor_log_probs(objective: Objective, lp: Tensor, batch: Batch) -> Tensor:
    """[B,T], detached: what the ratio is taken against."""
    if objective.anchor == "current":
        return lp.detach()
    if objective.anchor == "behaviour":
        return batch.lp_behaviour.to(lp.dtype)
    if objective.anchor == "interpolated":
        if batch.version_lag is None:
            raise ValueError("an anchor of 'interpolated' needs Batch.version_lag")
        return interpolated(lp, batch.lp_behaviour.to(lp.dtype), batch.version_lag)
    if batch.lp_proximal is None:
        raise ValueError(
            f"objective {objective.name!r} anchors its ratio at the proximal policy: fill Batch.lp_proximal with "
            "log-probabilities recomputed before the first update, or set ratio=Token('behaviour')"
        )
    return batch.lp_proximal.to(lp.dtype)


def log_ratio(lp: Tensor, anchor: Tensor, mask: Tensor, ratio: Ratio, unit: Tensor) -> Tensor:
    """[B,T] with gradient to every token of the sequence: log of the ratio each token is given.

    Token: lp - anchor. Sequence: mean over the sequence's drawn tokens (GSPO, arXiv 2507.18071). SequenceProduct:
    their sum. SequenceToken: the value of `Sequence`, the gradient of the token alone (GSPO-token), which lets the
    advantage vary inside the sequence. mask [B,T] is 0 or 1, unit [B] as from `unit_of`.
    """
    raw = torch.where(mask > 0, lp - anchor, 0.0)
    if isinstance(ratio, Token):
        return raw.clamp(-LOG_LIMIT, LOG_LIMIT)
    total = unit_sum(raw, unit)
    if isinstance(ratio, SequenceProduct):
        whole = total.clamp(-LOG_LIMIT, LOG_LIMIT)
    else:
        length = unit_sum(mask.to(raw.dtype), unit).clamp(min=1)
        whole = (total / length).clamp(-LOG_LIMIT, GEOMETRIC_LOG_LIMIT)
    spread = whole[:, None].expand_as(raw)
    if isinstance(ratio, SequenceToken):
        spread = spread.detach() + raw - raw.detach()
    return torch.where(mask > 0, spread, 0.0)
