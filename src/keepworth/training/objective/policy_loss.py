"""The loss of a micro-batch: the formula of `options.py`, term by term."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from keepworth.base.needs import needs_train

import torch
from torch import Tensor

from keepworth.training.objective.batch import Batch, episode_table, turn_ends
from keepworth.training.objective.formulas import moments
from keepworth.training.objective.options import Controls, Objective, initial
from keepworth.training.objective.parts import LOG_LIMIT, Advised, KlLoss, Ratio

# Ratio: how far the current policy has moved from an anchor, per token or per sequence.
#
# Four log-probabilities: behaviour (the sampler's), proximal (recomputed before the first update on the batch), current
# (with gradient), reference. r = current / anchor, rho = anchor / behaviour; their product is the total weight.


def unit_of(batch: Batch, unit: str) -> Tensor:
    """Returns the index from 0, [B], of the sequence that each row belongs to: the row itself, or its episode."""
    if unit == "row":
        return torch.arange(batch.shape[0], device=batch.mask.device)
    index: Tensor = torch.unique(batch.episode, return_inverse=True)[1]
    return index


def unit_sum(values: Tensor, unit: Tensor) -> Tensor:
    """Sums [B,T] over all tokens of each sequence, and returns the sum at each of its rows, [B]."""
    per_row = values.sum(1)
    count = int(unit.max()) + 1 if len(unit) else 0
    total = torch.zeros(count, dtype=per_row.dtype, device=per_row.device).index_add(0, unit, per_row)
    result: Tensor = total[unit]
    return result


def anchor_log_probs(objective: Objective, lp: Tensor, batch: Batch) -> Tensor:
    """Returns the log-probabilities, [B,T] and detached, that the ratio is taken against.

    Args:
        objective: The objective, whose ratio names its anchor.
        lp: [B,T] The log-probabilities under the current weights.
        batch: The rows, with the log-probabilities of the policy that drew them.
    """
    if objective.ratio.anchor == "current":
        return lp.detach()
    if objective.ratio.anchor == "behaviour":
        return batch.lp_behaviour.to(lp.dtype)
    return batch.require("lp_proximal", f"a ratio of objective {objective.name!r} to the proximal policy").to(lp.dtype)


def log_ratio(lp: Tensor, anchor: Tensor, batch: Batch, ratio: Ratio) -> Tensor:
    """Returns the log-ratio of each token, [B,T], with gradient to every token of its sequence; zero outside the mask.

    Args:
        lp: [B,T] The log-probabilities under the current weights, with gradient.
        anchor: [B,T] Those that the ratio is taken against, detached.
        batch: The rows, which say what a sequence is.
        ratio: The form of the ratio, of tokens or of sequences.
    """
    drawn = batch.mask > 0
    raw = torch.where(drawn, lp - anchor, 0.0)
    return torch.where(drawn, ratio.log(Gap(raw, drawn, batch)), 0.0)


# Correction: detached weights and masks for the gap between the policy that sampled and the one that anchors.
#
# rho = anchor / behaviour per token. Even equal weights give rho != 1 when two engines compute them. Token weights are
# biased with little variance; sequence weights are unbiased with a variance that grows with length; geometric means do
# not depend on length but are only filters. Names follow https://fengyao.notion.site/off-policy-rl and its successors.


@dataclass(frozen=True, slots=True)
class Gap:
    """The log-ratios of a batch that a correction or a ratio is computed from.

    Attributes:
        log_rho: [B,T], of the anchor over the behaviour policy, or of the policy over the anchor; 0 where nothing was drawn.
        drawn: [B,T], whether the policy drew the token.
    """

    log_rho: Tensor
    drawn: Tensor
    batch: Batch

    def sum(self, values: Tensor, unit: str) -> Tensor:
        """Returns the sum over the drawn tokens of each row's sequence (the row or its episode), [B,1]."""
        return unit_sum(values.to(self.log_rho.dtype), unit_of(self.batch, unit))[:, None]

    def total(self, unit: str) -> Tensor:
        """Returns the log_rho of the whole sequence at each of its tokens, [B,T]."""
        return self.sum(self.log_rho, unit).expand_as(self.log_rho)

    def length(self, unit: str) -> Tensor:
        """Returns the number of drawn tokens of the sequence, at least 1, [B,1]."""
        return self.sum(self.drawn, unit).clamp(min=1)

    def mean(self, values: Tensor, unit: str) -> Tensor:
        """Returns the mean over the drawn tokens of the sequence, [B,1]."""
        return self.sum(values, unit) / self.length(unit)


def correction(objective: Objective, anchor: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Returns each token's weight >= 0 and whether to keep it, 0 or 1, both [B,T] without gradient. Both are 1 everywhere where
    the objective has no correction.

    Args:
        objective: What is optimised.
        anchor: [B,T] The log-probabilities that the ratio is taken against.
        batch: The rows, with the log-probabilities of the policy that drew them.
    """
    mask = batch.mask > 0
    log_rho = torch.where(mask, (anchor - batch.lp_behaviour.to(anchor.dtype)).detach(), 0.0)
    ones = torch.ones_like(log_rho)
    if objective.correction is None:
        return ones, ones
    weight, keep = objective.correction.weigh(Gap(log_rho, mask, batch))
    return ones if weight is None else weight, ones if keep is None else keep.to(ones.dtype)


def effective_sample_size(log_weight: Tensor) -> Tensor:
    """Returns (sum w)^2 / (N sum w^2) of sequence weights [N], between 1/N and 1. A collapse is an early sign of staleness.
    Source: Stable Asynchrony (VCPO), arXiv 2602.17616. It is taken before any truncation."""
    # A common factor cancels, so the largest weight may be scaled to 1: no overflow.
    weight = (log_weight.to(torch.float64) - log_weight.max()).exp()
    return weight.sum() ** 2 / (len(weight) * (weight**2).sum())


# KL: estimators of KL(policy, reference) from the log-probabilities of drawn tokens, by value and by gradient.
#
# With x = lp - lp_reference and samples of the policy. As a loss on fixed samples, what counts is the expected gradient:
#
#     k1    x                 0: it regularises nothing; right only inside the reward
#     k2    x^2 / 2           that of KL(policy, reference)
#     k3    exp(-x) - 1 + x   that of KL(reference, policy), the other direction
#
# Source: Approximating KL Divergence (Schulman, 2020) for the estimators; the gradients follow from them and are tested
# by enumeration.


K3_LIMIT = 10.0


def k2(lp: Tensor, lp_reference: Tensor) -> Tensor:
    return (lp - lp_reference).clamp(-LOG_LIMIT, LOG_LIMIT) ** 2 / 2


def k3(lp: Tensor, lp_reference: Tensor) -> Tensor:
    """The k3 estimator, which is never negative and unbiased: the one to monitor."""
    x = (lp - lp_reference).clamp(-LOG_LIMIT, LOG_LIMIT)
    return (torch.exp(-x) - 1 + x).clamp(max=K3_LIMIT)


def k3_gap(log_rho: Tensor) -> Tensor:
    clamped = log_rho.clamp(-LOG_LIMIT, LOG_LIMIT)
    return clamped.exp() - clamped - 1


# Aggregation: from per-token terms to one number, with denominators that no micro-batch can change.


@dataclass(frozen=True, slots=True)
class Denominators:
    """The denominators of one optimiser step, which count all its rows on all machines.

    Attributes:
        tokens: [branches], counted tokens of each branch.
        units: [branches], sequences of each branch.
        ids: [U], the episodes.
        lengths: [U], counted tokens of each episode.
    """

    tokens: Tensor
    units: Tensor
    ids: Tensor
    lengths: Tensor


def _branch(batch: Batch, objective: Objective) -> Tensor:
    if objective.local_weight is None:
        return torch.zeros_like(batch.episode)
    return batch.require("branch", f"a local_weight of objective {objective.name!r}")


def denominators(batch: Batch, objective: Objective) -> Denominators:
    """Computes the denominators of a whole optimiser step, once; every micro-batch is given the same.

    denominator='original' counts every drawn token, so a token that a mask drops makes the gradient smaller. 'kept' counts the
    tokens that `select` and the correction leave, so these weigh more. A sequence with none left still counts as one of the
    units. Under 'kept', a correction with anchor 'current' is not known beforehand and is not counted."""
    branch = _branch(batch, objective)
    per_row = _counted(batch, objective)
    ids, inverse = torch.unique(batch.episode, return_inverse=True)
    lengths = per_row.new_zeros(len(ids)).index_add_(0, inverse, per_row)
    unit_branch = branch
    if objective.aggregation_unit == "episode":
        unit_branch = torch.zeros_like(ids).scatter_reduce_(0, inverse, branch, "amax")
    tokens = per_row.new_zeros(2).index_add_(0, branch, per_row)
    units = per_row.new_zeros(2).index_add_(0, unit_branch, torch.ones_like(unit_branch, dtype=per_row.dtype))
    return Denominators(tokens, units, ids, lengths)


def _counted(batch: Batch, objective: Objective) -> Tensor:
    """Returns how many tokens of each row the denominators count, [B] float64."""
    counted = (batch.mask > 0).to(torch.float64)
    if objective.denominator == "kept":
        if batch.keep is not None:
            counted = counted * (batch.keep if objective.shares_nodes else batch.keep > 0)
        if objective.correction and objective.ratio.anchor == "proximal" and batch.lp_proximal is not None:
            counted = counted * correction(objective, batch.lp_proximal, batch)[1]
    return counted.sum(1)


def row_weights(batch: Batch, objective: Objective, denominators: Denominators) -> Tensor:
    """Returns the factor, [B] float64, by which the term of each of a row's tokens is multiplied before the sum.

    token-mean: 1 / all tokens (DAPO, arXiv 2503.14476). seq-mean-token-mean: 1 / (sequences * the sequence's tokens) (GRPO,
    arXiv 2402.03300). seq-mean-token-sum: 1 / sequences (RLOO, arXiv 2402.14740). constant: 1 / (sequences * length budget)
    (Dr. GRPO, arXiv 2503.20783). Two branches are aggregated separately and added.

    Args:
        batch: The rows.
        objective: The objective, which names the aggregation.
        denominators: The counts over the whole optimiser step, not over these rows alone.
    """
    branch = _branch(batch, objective)
    if objective.aggregation == "token-mean":
        weight = 1 / denominators.tokens.clamp(min=1)[branch]
    else:
        scale = float(objective.budget) if objective.aggregation == "constant" else 1.0
        weight = 1 / (denominators.units.clamp(min=1)[branch] * scale)
        if objective.aggregation == "seq-mean-token-mean":
            if objective.aggregation_unit == "row":
                length = _counted(batch, objective)
            else:
                length = denominators.lengths[torch.searchsorted(denominators.ids, batch.episode)]
            weight = weight / length.clamp(min=1)
    return torch.where(branch > 0, weight * (objective.local_weight or 1.0), weight)


def aggregate(values: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
    """Sums values times their row's weight over the drawn tokens, to a scalar.

    Args:
        values: [B,T] The terms of the tokens. A NaN at a masked token has no effect.
        weights: [B] The factors of `row_weights`.
        mask: [B,T] Above 0 where a token was drawn.
    """
    return (torch.where(mask > 0, values, 0.0).sum(1) * weights.to(values.dtype)).sum()


# The loss: ratio, correction, KL and aggregation combined.


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
    """Returns the scalar to minimise and the metrics to log. The losses of a step's micro-batches add up to the step's loss.

    Args:
        objective: What is optimised.
        lp: [B,T], log-probabilities of the drawn tokens under the current weights, with gradient.
        entropy: [B,T], entropies of the current distribution: with gradient if the objective has an entropy term, else None or
            values to log.
        advantages: [B,T], the result of `advantages(...)` for these rows.
        batch: The rows of this micro-batch.
        denominators: Those of the whole step.
        controls: The controls of this update; None takes those of the first.

    Raises:
        ValueError: The batch lacks a field that the objective needs; the message names it.
    """
    controls = initial(objective) if controls is None else controls
    if objective.needs_selection and batch.keep is None:
        raise ValueError(f"objective {objective.name!r} leaves tokens out: call select(...) before the loss")
    mask = (batch.mask > 0).to(lp.dtype)
    lp = torch.where(mask > 0, lp, 0.0)
    advantages = advantages.detach().to(lp.dtype)
    weights = row_weights(batch, objective, denominators)
    anchor = anchor_log_probs(objective, lp, batch)
    log_r = log_ratio(lp, anchor, batch, objective.ratio) if objective.ratio.acts else None
    correcting, sound = correction(objective, anchor, batch)
    weight_mask = mask * sound.to(lp.dtype)
    if batch.keep is not None:
        weight_mask = weight_mask * batch.keep.to(lp.dtype)
    # The regularisers share the policy term's denominators, so they count the tokens those count.
    regular = (weight_mask > 0).to(lp.dtype) if objective.denominator == "kept" else mask
    if objective.surrogate.regresses:
        policy = objective.surrogate.whole(lp, advantages, batch, denominators)
    else:
        # Without a ratio, the gain is the score function: Simple statistical gradient-following algorithms (Williams, 1992).
        gain = lp * advantages if log_r is None else objective.surrogate.value(lp, log_r, advantages)
        per_token = gain * correcting.to(lp.dtype)
        policy = -aggregate(weight_mask * per_token, weights, weight_mask)
    terms = {"policy_loss": policy}
    if isinstance(objective.kl, KlLoss):
        reference = batch.require("lp_reference", objective.kl).to(lp.dtype)
        estimate = (k2 if objective.kl.estimator == "k2" else k3)(lp, reference)
        terms["kl_loss"] = objective.kl.coefficient * aggregate(estimate, weights, regular)
    if objective.entropy is not None:
        assert entropy is not None
        terms["entropy_loss"] = -objective.entropy.coefficient * aggregate(entropy, weights, regular)
    if objective.teacher is not None:
        taught = regular * batch.require("teacher_rows", objective.teacher).to(lp.dtype)[:, None]
        distance = k2(lp, batch.require("lp_teacher", objective.teacher).to(lp.dtype))
        terms["teacher_loss"] = controls.teacher_coefficient * aggregate(distance, weights, taught)
    total = torch.stack(list(terms.values())).sum()
    metrics = _metrics(objective, lp, log_r, entropy, advantages, batch, weight_mask)
    metrics.update({name: value.detach() for name, value in terms.items()}, loss=total.detach())
    values = torch.stack([value.to(torch.float64).reshape(()) for value in metrics.values()]).tolist()
    return total, dict(zip(metrics, values, strict=True))


@torch.no_grad()
def _metrics(
    objective: Objective,
    lp: Tensor,
    log_r: Tensor | None,
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
        "ess": effective_sample_size(total.sum(1)),
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
        cut = objective.surrogate.cut(log_r.exp(), advantages)
        metrics |= {name: (tokens_cut * mask).sum() / count for name, tokens_cut in cut.items()}
        if "clip_fraction_low" in metrics:
            metrics["clip_fraction"] = metrics["clip_fraction_low"] + metrics["clip_fraction_high"]
    return metrics


def merge_metrics(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Combines the metrics of a step's micro-batches. Losses and tokens are added, maxima take the largest, the rest is averaged
    by tokens (ess too; `mismatch` gives the whole step's)."""
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
    """Measures how far the learner's log-probabilities [B,T] are from those that the tokens were drawn with.

    Returns the mean and the largest gap, in nats a token, and the ess of all rows together. Under the weights that drew the
    tokens, the gap is the rounding of two batch shapes, or of two machines."""
    gap = torch.cat([(lp - batch.lp_behaviour)[batch.mask > 0].abs() for batch, lp in parts])
    drift = torch.cat([torch.where(batch.mask > 0, lp - batch.lp_behaviour, 0.0).sum(1) for batch, lp in parts])
    return {
        "mismatch_mean": float(gap.mean()),
        "mismatch_max": float(gap.max()),
        "ess": float(effective_sample_size(drift)),
    }


def group_metrics(batch: Batch) -> dict[str, float]:
    """Returns statistics of the rewards, and the share of groups whose rewards are all equal, in all and split by sign."""
    table = episode_table(batch)
    stats = moments(table.reward, table.group)
    groups = len(torch.unique(table.group))
    share = stats.constant.to(torch.float64) / stats.size / max(1, groups)
    positive = table.reward > 0
    return {
        "groups": float(groups),
        "zero_variance_groups": float(share.sum()),
        "all_right_groups": float(share[positive].sum()),
        "all_wrong_groups": float(share[~positive].sum()),
        "reward_mean": float(table.reward.mean()),
        "reward_std": float(table.reward.std()) if len(table.reward) > 1 else 0.0,
    }


def value_loss(
    values: Tensor, targets: Tensor, batch: Batch, objective: Objective, denominators: Denominators
) -> Tensor:
    """Returns `value_coefficient` * 0.5 * max((V - target)^2, (V_old + clip(V - V_old) - target)^2), aggregated from [B,T].

    A value of a turn counts once, at its first token. Source: PPO, arXiv 1707.06347, in the clipped form of its released
    code.

    Args:
        values: [B,T] The critic's values, with gradient.
        targets: [B,T] What `value_targets` returned.
        batch: The rows, with the values from before the step where they are clipped.
        objective: The objective, whose advantage is an `Advised`.
        denominators: The counts over the whole optimiser step.
    """
    chosen = objective.advantage
    assert isinstance(chosen, Advised)
    error = (values - targets) ** 2
    if chosen.value_clip is not None:
        old = batch.require("values", chosen).to(values.dtype)
        near = old + (values - old).clamp(-chosen.value_clip, chosen.value_clip)
        error = torch.maximum(error, (near - targets) ** 2)
    weights = row_weights(batch, objective, denominators)
    value: Tensor = chosen.value_coefficient * 0.5 * aggregate(error, weights, mask_valued_tokens(batch, chosen))
    return value


def mask_valued_tokens(batch: Batch, part: Advised) -> Tensor:
    """Returns 1 at tokens where a value is learned, [B,T]: at each drawn token, or at the first of each turn."""
    if not part.by_turn:
        return batch.mask
    columns = torch.arange(batch.shape[1], device=batch.mask.device)
    first: Tensor = batch.mask * (turn_ends(batch)[0] == columns)
    return first
