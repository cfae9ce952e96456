"""The loss of a micro-batch: the formula of `options.py`, term by term."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from keepworth.episodes.needs import needs_train

import torch
from torch import Tensor

from keepworth.learning.objective.advantage import moments
from keepworth.learning.objective.aggregation import Denominators, aggregate, line_of, row_weights
from keepworth.learning.objective.batch import Batch, episode_table
from keepworth.learning.objective.control import Controls, initial
from keepworth.learning.objective.correction import correction, effective_sample_size, k3_gap
from keepworth.learning.objective.kl import k2, k3, kl_estimate
from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.parts import Gae, KlLoss
from keepworth.learning.objective.ratio import anchor_log_probs, log_ratio, unit_of, unit_sum
from keepworth.learning.objective.regression import regression
from keepworth.learning.objective.surrogate import clip_shares, surrogate

_MAXIMA = ("ratio_max", "mismatch_max", "lag_max")
_SUMS = ("loss", "policy_loss", "kl_loss", "entropy_loss", "teacher_loss", "tokens")


def loss(
    objective: Objective,
    lp: Tensor,
    entropy: Tensor | None,
    advantages: Tensor,
    batch: Batch,
    denominators: Denominators,
    controls: Controls | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """Scalar to minimise, and numbers to log; the losses of a step's micro-batches add up to the step's loss.

    lp [B,T]: log-probabilities of the drawn tokens under the current weights, with gradient. entropy [B,T]: of the
    current distribution, with gradient if the objective has an entropy term, else None or anything to be logged.
    advantages [B,T]: these rows of `advantages(...)`. denominators: of the whole step. Raises ValueError naming what
    the objective needs and the batch lacks.
    """
    controls = initial(objective) if controls is None else controls
    _check(objective, lp, entropy, advantages, batch, denominators)
    mask = (batch.mask > 0).to(lp.dtype)
    lp = torch.where(mask > 0, lp, 0.0)
    advantages = advantages.detach().to(lp.dtype)
    weights = row_weights(batch, objective, denominators)
    anchor = anchor_log_probs(objective, lp, batch)
    unit = unit_of(batch, getattr(objective.ratio, "unit", "row"))
    log_r = log_ratio(lp, anchor, mask, objective.ratio, unit) if objective.has_ratio else None
    corrected = correction(objective, anchor, batch)
    kept = mask * corrected.keep.to(lp.dtype)
    if batch.keep is not None:
        kept = kept * batch.keep.to(lp.dtype)
    # The regularisers share the policy term's denominators, so they count the tokens those count.
    regular = (kept > 0).to(lp.dtype) if objective.denominator == "kept" else mask
    if objective.regresses:
        policy = regression(objective, lp, advantages, batch, denominators)
    else:
        per_token = surrogate(objective, lp, log_r, advantages) * corrected.weight.to(lp.dtype)
        policy = -aggregate(kept * per_token, weights, kept)
    terms = {"policy_loss": policy}
    if isinstance(objective.kl, KlLoss):
        assert batch.lp_reference is not None
        estimate = kl_estimate(objective.kl.estimator, lp, batch.lp_reference.to(lp.dtype), log_r)
        terms["kl_loss"] = objective.kl.coefficient * aggregate(estimate, weights, regular)
    if objective.needs_entropy:
        assert entropy is not None
        coefficient = controls.entropy_coefficient if controls.entropy_active else 0.0
        terms["entropy_loss"] = -coefficient * aggregate(entropy, weights, regular)
    if objective.needs_teacher:
        assert batch.lp_teacher is not None
        assert batch.teacher_rows is not None
        taught = regular * batch.teacher_rows.to(lp.dtype)[:, None]
        distance = k2(lp, batch.lp_teacher.to(lp.dtype))
        terms["teacher_loss"] = controls.teacher_coefficient * aggregate(distance, weights, taught)
    total = torch.stack(list(terms.values())).sum()
    metrics = _metrics(objective, lp, log_r, anchor, entropy, advantages, batch, kept)
    metrics.update({name: value.detach() for name, value in terms.items()}, loss=total.detach())
    values = torch.stack([value.to(torch.float64).reshape(()) for value in metrics.values()]).tolist()
    return total, dict(zip(metrics, values, strict=True))


def _check(
    objective: Objective,
    lp: Tensor,
    entropy: Tensor | None,
    advantages: Tensor,
    batch: Batch,
    denominators: Denominators,
) -> None:
    name = f"objective {objective.name!r}"
    for what, value in (("lp", lp), ("advantages", advantages), ("entropy", entropy)):
        if value is not None and tuple(value.shape) != batch.shape:
            raise ValueError(f"{name}: {what} has shape {list(value.shape)}, the batch {list(batch.shape)}")
    if denominators.mode != objective.aggregation or denominators.unit != objective.aggregation_unit:
        raise ValueError(f"{name}: the denominators were computed for another objective")
    if objective.needs_selection and batch.keep is None:
        raise ValueError(f"{name} leaves tokens out: call select(batch, objective, advantages) before the loss")
    if objective.needs_reference and batch.lp_reference is None:
        raise ValueError(f"{name} reads a reference: fill Batch.lp_reference")
    if objective.needs_teacher and batch.lp_teacher is None:
        raise ValueError(f"{name} reads a teacher: fill Batch.lp_teacher")
    if objective.needs_entropy and entropy is None:
        raise ValueError(f"{name} has an entropy term: pass the entropy [B,T] with gradient")
    if objective.needs_whole_episodes:
        _refuse_split_episodes(name, batch, denominators)


def _refuse_split_episodes(name: str, batch: Batch, denominators: Denominators) -> None:
    """A sequence-level quantity over an episode needs all its rows in one micro-batch."""
    here = unit_sum((batch.mask > 0).to(torch.float64), unit_of(batch, "episode"))
    missing = here < denominators.drawn[line_of(batch, denominators)]
    if bool(missing.any()):
        short = batch.episode[missing][0].item()
        raise ValueError(f"{name} weighs whole episodes: all rows of episode {short} must be in one micro-batch")


@torch.no_grad()
def _metrics(
    objective: Objective,
    lp: Tensor,
    log_r: Tensor | None,
    anchor: Tensor,
    entropy: Tensor | None,
    advantages: Tensor,
    batch: Batch,
    kept_mask: Tensor,
) -> dict[str, Tensor]:
    mask = (batch.mask > 0).to(lp.dtype)
    tokens = mask.sum()
    count = tokens.clamp(min=1)

    def mean(values: Tensor) -> Tensor:
        return torch.where(mask > 0, values, 0.0).sum() / count

    against = batch.lp_behaviour if batch.lp_proximal is None else batch.lp_proximal
    moved = torch.where(mask > 0, lp - against.to(lp.dtype), 0.0)
    total = torch.where(mask > 0, lp - batch.lp_behaviour.to(lp.dtype), 0.0)
    shown = moved if log_r is None else log_r
    metrics = {
        "tokens": tokens,
        "ratio_mean": mean(shown.exp()),
        "ratio_max": (shown.exp() * mask).max() if mask.numel() else tokens,
        "approx_kl": mean(k3_gap(-moved)),
        "ess": effective_sample_size(unit_sum(total, unit_of(batch, "row"))),
        "masked_share": 1 - (kept_mask > 0).to(lp.dtype).sum() / count,
        "advantage_abs_mean": mean(advantages.abs()),
    }
    if batch.lp_proximal is not None:
        gap = torch.where(mask > 0, batch.lp_proximal - batch.lp_behaviour, 0.0).abs()
        metrics["mismatch_mean"], metrics["mismatch_max"] = mean(gap), gap.max()
    if batch.lp_reference is not None:
        metrics["reference_kl"] = mean(k3(lp, batch.lp_reference.to(lp.dtype)))
    if batch.version_lag is not None:
        lag = batch.version_lag.to(lp.dtype)
        metrics["lag_mean"], metrics["lag_max"] = mean(lag), (lag * mask).max()
    if entropy is not None:
        metrics["entropy"] = mean(entropy.detach())
    if log_r is not None:
        metrics.update(clip_shares(objective, log_r, advantages, mask))
    return metrics


def merge_metrics(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """A step's metrics from its micro-batches': losses and tokens add, maxima take the largest, the rest is averaged
    by tokens (ess too: `mismatch` gives the whole step's)."""
    tokens = sum(part["tokens"] for part in parts) or 1.0
    result = {}
    for name in parts[0]:
        values = [part[name] for part in parts]
        if name in _SUMS:
            result[name] = sum(values)
        elif name in _MAXIMA:
            result[name] = max(values)
        else:
            result[name] = sum(value * part["tokens"] for value, part in zip(values, parts, strict=True)) / tokens
    return result


@torch.no_grad()
def mismatch(parts: Sequence[tuple[Batch, Tensor]]) -> dict[str, float]:
    """How far the learner's log-probabilities [B,T] are from those that the tokens were drawn with, in nats a token: mean and
    largest, and the mean for each lag where tokens of several versions are trained on.

    Under the weights that drew them, what is left is the arithmetic of two batch shapes, or of two machines."""
    gap = torch.cat([(lp - batch.lp_behaviour)[batch.mask > 0].abs() for batch, lp in parts])
    found = {"mismatch_mean": float(gap.mean()), "mismatch_max": float(gap.max())}
    if all(batch.version_lag is not None for batch, _ in parts):
        lags = torch.cat([batch.version_lag[batch.mask > 0] for batch, _ in parts if batch.version_lag is not None])
        if bool((lags != 0).any()):
            for lag in torch.unique(lags).tolist():
                found[f"lag/{int(lag)}/tokens"] = float((lags == lag).sum())
                found[f"lag/{int(lag)}/mismatch"] = float(gap[lags == lag].mean())
    return found


def group_metrics(batch: Batch) -> dict[str, float]:
    """Groups of the step whose rewards are all equal, as a share, and split into all right and all wrong by sign."""
    table = episode_table(batch)
    stats = moments(table.reward, table.group)
    share = stats.constant.to(torch.float64) / stats.size / max(1, table.groups)
    positive = table.reward > 0
    return {
        "groups": float(table.groups),
        "zero_variance_groups": float(share.sum()),
        "all_right_groups": float(share[positive].sum()),
        "all_wrong_groups": float(share[~positive].sum()),
        "reward_mean": float(table.reward.mean()),
        "reward_std": float(table.reward.std()) if len(table.reward) > 1 else 0.0,
    }


def value_loss(
    values: Tensor, targets: Tensor, batch: Batch, objective: Objective, denominators: Denominators
) -> Tensor:
    """`Gae.value_coefficient` * 0.5 * max((V - target)^2, (V_old + clip(V - V_old) - target)^2), aggregated; [B,T] in.

    Source: PPO, arXiv 1707.06347, in the clipped form of its released code. targets: from `value_targets`.
    """
    if batch.values is None:
        raise ValueError("value_loss needs Batch.values, the critic before this step")
    chosen = objective.advantage
    assert isinstance(chosen, Gae)
    error = (values - targets) ** 2
    if chosen.value_clip is not None:
        old = batch.values.to(values.dtype)
        near = old + (values - old).clamp(-chosen.value_clip, chosen.value_clip)
        error = torch.maximum(error, (near - targets) ** 2)
    weights = row_weights(batch, objective, denominators)
    return chosen.value_coefficient * 0.5 * aggregate(error, weights, batch.mask)
