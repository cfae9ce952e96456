"""Formulas of credit on tensors: returns, clusters, baselines, and which tokens are drawn."""

from __future__ import annotations

from dataclasses import dataclass

from keepworth.base.needs import needs_train

import torch
from torch import Tensor


def gae(
    rewards: Tensor,
    values: Tensor,
    lengths: Tensor,
    discount: float,
    trace_decay: float,
    bootstrap: Tensor | None = None,
) -> Tensor:
    """Computes generalised advantage estimates on packed episodes, [E,L].

    delta_t = r_t + discount V_{t+1} - V_t; A_t = delta_t + discount trace_decay A_{t+1}. Source: High-Dimensional Continuous
    Control Using Generalized Advantage Estimation, arXiv 1506.02438.

    Args:
        rewards: [E,L] The reward of each step, padded behind the end.
        values: [E,L] The value of the state before each step.
        lengths: [E] The steps of each episode.
        discount: How much a reward of the next step counts, from 0 to 1.
        trace_decay: Lambda: 0 is the one-step error, 1 the return minus the value.
        bootstrap: [E] The value after the end of an episode that was cut off; None counts as 0.
    """
    advantages = torch.zeros_like(rewards)
    after = torch.zeros(len(rewards), dtype=rewards.dtype, device=rewards.device)
    value_after = after.clone() if bootstrap is None else bootstrap.to(rewards.dtype)
    for t in range(rewards.shape[1] - 1, -1, -1):
        inside = t < lengths
        delta = rewards[:, t] + discount * value_after - values[:, t]
        after = torch.where(inside, delta + discount * trace_decay * after, after)
        value_after = torch.where(inside, values[:, t], value_after)
        advantages[:, t] = torch.where(inside, after, 0.0)
    return advantages


@dataclass(frozen=True, slots=True)
class Moments:
    """Statistics of clusters, each repeated at all members [N]. std has ddof 1; constant: whether all members are equal."""

    mean: Tensor
    std: Tensor
    size: Tensor
    constant: Tensor


def moments(values: Tensor, cluster: Tensor) -> Moments:
    """Returns mean, sample standard deviation and size of each cluster. values, cluster [N]; a cluster of one has std 0."""
    unique, index = torch.unique(cluster, return_inverse=True)
    count = len(unique)
    size = torch.bincount(index, minlength=count).to(values.dtype)
    total = torch.zeros(count, dtype=values.dtype, device=values.device).index_add_(0, index, values)
    mean = total / size
    square = torch.zeros_like(total).index_add_(0, index, (values - mean[index]) ** 2)
    std = torch.sqrt(square / (size - 1).clamp(min=1))
    low = torch.full_like(total, torch.inf).scatter_reduce(0, index, values, "amin")
    high = torch.full_like(total, -torch.inf).scatter_reduce(0, index, values, "amax")
    return Moments(mean[index], std[index], size[index], (low == high)[index])


def center(rewards: Tensor, group: Tensor, rule: str | None, weight: Tensor | None = None) -> Tensor:
    """Returns the rewards minus a baseline, [E]. A group whose rewards are all equal gives exactly zero. Raises ValueError for a
    group of one, which cannot be compared with anything.

    Args:
        rewards: [E] The rewards of the episodes.
        group: [E] The group of each episode.
        rule: "group" subtracts the group's mean (GRPO, arXiv 2402.03300), weighted where there is a weight; "leave_one_out"
            the mean of the others, which gives G/(G-1) times the group's difference (RLOO, arXiv 2402.14740); "batch" the
            mean of all; None subtracts nothing.
        weight: [E] The weight of each episode in its group's mean; None weighs them equally.
    """
    if rule is None:
        return rewards.clone()
    if rule == "batch":
        group = torch.zeros_like(group)
    stats = moments(rewards, group)
    if bool((stats.size < 2).any()):
        lonely = group[stats.size < 2][0].item()
        raise ValueError(
            f"baseline={rule!r}: group {lonely} has one episode and nothing to compare it with; "
            "filter such groups, or use baseline='batch' or a critic"
        )
    if weight is not None:
        mass = moments(weight, group)
        baseline = moments(weight * rewards, group).mean / mass.mean.clamp(min=torch.finfo(rewards.dtype).tiny)
        baseline = torch.where(mass.mean > 0, baseline, stats.mean)
    else:
        baseline = stats.mean
    difference = rewards - baseline
    if rule == "leave_one_out":
        difference = difference * stats.size / (stats.size - 1)
    # The mean of equal floats may miss them by one rounding, which division by a tiny std would blow up.
    return torch.where(stats.constant, 0.0, difference)


def whiten(values: Tensor, mask: Tensor, epsilon: float) -> Tensor:
    """Scales values to mean 0 and variance 1 over the drawn tokens of the batch (REINFORCE++, arXiv 2501.03262). It takes the
    population variance, because the sum runs over all tokens. Constant values become zero.

    Args:
        values: [B,T] The values, of which those outside the mask do not count.
        mask: [B,T] Above 0 where a token was drawn.
        epsilon: It is added to the standard deviation.
    """
    inside = mask > 0
    drawn = values[inside]
    if drawn.numel() == 0 or bool((drawn == drawn[0]).all()):
        return torch.zeros_like(values)
    result = (values - drawn.mean()) / (drawn.std(correction=0) + epsilon)
    return torch.where(inside, result, 0.0)
