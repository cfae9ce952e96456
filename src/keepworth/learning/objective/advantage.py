"""Advantages: centre and scale, after credit. Detached, per token, zero where the policy drew nothing."""

from __future__ import annotations

from dataclasses import dataclass

from keepworth.episodes.needs import needs_train

import torch
from torch import Tensor

from keepworth.learning.objective import credit
from keepworth.learning.objective.batch import Batch, EpisodeTable, episode_table
from keepworth.learning.objective.options import Objective, ObjectiveError
from keepworth.learning.objective.parts import (
    BatchStd,
    Gae,
    GroupStd,
    KlReward,
    OptimalBaseline,
    Outcome,
    OverlongPenalty,
    PrefixTree,
    Scale,
    SoftValue,
    StepIndex,
    StepState,
    Whitened,
)


@dataclass(frozen=True, slots=True)
class Moments:
    """Statistics of clusters, each read back at the members [N]. std has ddof 1; constant: all members are equal."""

    mean: Tensor
    std: Tensor
    size: Tensor
    constant: Tensor


def moments(values: Tensor, cluster: Tensor) -> Moments:
    """Mean, sample standard deviation and size of each cluster. values, cluster [N]; a cluster of one has std 0."""
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


def centered(rewards: Tensor, group: Tensor, rule: str | None, weight: Tensor | None = None) -> Tensor:
    """rewards minus a baseline; rewards, group, weight [E].

    group: the group's mean (GRPO, arXiv 2402.03300). leave_one_out: mean of the others, equal to G/(G-1) times the
    group's (RLOO, arXiv 2402.14740). batch: mean of all. optimal: mean weighted by w^2 ||g||^2, which minimises
    sum w^2 ||g||^2 (R - b)^2 (VCPO, arXiv 2602.17616). A group whose rewards are all equal gives exactly zero.
    Raises ValueError on a group of one, which has nothing to be compared with.
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
    if rule == "optimal":
        if weight is None:
            raise ValueError("baseline='optimal' needs a weight per episode")
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


def scaled(
    advantage: Tensor, rewards: Tensor, group: Tensor, scale: Scale | None, task: Tensor | None = None
) -> Tensor:
    """advantage / (std + epsilon); all [E]. The std is of the raw rewards: of the group (GRPO), of the batch (Lite PPO,
    arXiv 2508.08221), or of all episodes of the same task type (QwenLong-L1.5, arXiv 2512.12967), where a type with
    a single episode falls back to the batch. Sample standard deviation (ddof 1)."""
    if scale is None or isinstance(scale, Whitened):
        return advantage
    whole = torch.zeros_like(group)
    if isinstance(scale, GroupStd):
        stats = moments(rewards, group)
    elif isinstance(scale, BatchStd):
        stats = moments(rewards, whole)
    else:
        if task is None:
            raise ValueError("TaskStd needs Batch.task_type")
        stats, batch = moments(rewards, task), moments(rewards, whole)
        alone = stats.size < 2
        stats = Moments(stats.mean, torch.where(alone, batch.std, stats.std), stats.size, stats.constant & ~alone)
    # Advantages of a constant cluster are zero by centring; without centring, dividing by epsilon alone would explode.
    return torch.where(stats.constant, advantage, advantage / (stats.std + scale.epsilon))


def whitened(values: Tensor, mask: Tensor, epsilon: float) -> Tensor:
    """Mean 0, variance 1 over the drawn tokens of the batch (REINFORCE++, arXiv 2501.03262); [B,T].

    Population variance, as the sum runs over all tokens there are. Constant values become zero.
    """
    inside = mask > 0
    drawn = values[inside]
    if drawn.numel() == 0 or bool((drawn == drawn[0]).all()):
        return torch.zeros_like(values)
    result = (values - drawn.mean()) / (drawn.std(correction=0) + epsilon)
    return torch.where(inside, result, 0.0)


def overlong_penalty(tokens: Tensor, budget: int, share: float) -> Tensor:
    """0 up to (1 - share) * budget drawn tokens, then linear to -1 at the budget. tokens [E].

    Source: soft overlong punishment, DAPO, arXiv 2503.14476, section 3.4.
    """
    if not 0 < share <= 1:
        raise ValueError(f"OverlongPenalty: buffer={share} is a share of the length budget and must lie in (0, 1]")
    buffer = share * budget
    return ((budget - buffer - tokens) / buffer).clamp(-1.0, 0.0)


def episode_rewards(batch: Batch, objective: Objective, table: EpisodeTable) -> Tensor:
    """[E] float64: the reward that credit starts from, overlong penalty included."""
    reward = table.reward
    if isinstance(objective.overlong, OverlongPenalty):
        reward = reward + overlong_penalty(table.tokens, length_budget(objective), objective.overlong.buffer)
    return reward


def length_budget(objective: Objective) -> int:
    if objective.length_budget is None:
        raise ObjectiveError(
            f"objective {objective.name!r} divides by the generation limit, and length_budget is not set.",
            f"Set it to the run's max new tokens, as in preset({objective.name!r}, length_budget=64).",
        )
    return objective.length_budget


def kl_penalty(batch: Batch, objective: Objective) -> Tensor | None:
    """[B,T]: coefficient * (lp - lp_reference) on drawn tokens, for a `KlReward`; None otherwise."""
    if not isinstance(objective.kl, KlReward):
        return None
    if batch.lp_reference is None:
        raise ValueError(f"objective {objective.name!r} puts the KL in the reward and needs Batch.lp_reference")
    policy = batch.lp_behaviour if batch.lp_proximal is None else batch.lp_proximal
    return torch.where(batch.mask > 0, objective.kl.coefficient * (policy - batch.lp_reference), 0.0).detach()


def episode_advantages(
    batch: Batch, table: EpisodeTable, reward: Tensor, baseline: str | None, scale: Scale | None
) -> Tensor:
    """[E] float64: centred and scaled rewards of whole episodes."""
    weight = None
    if baseline == "optimal":
        if batch.score_norm is None:
            raise ValueError(
                "OptimalBaseline needs Batch.score_norm, the gradient norm of each episode's log-probability"
            )
        weight = table.first(batch.score_norm.to(torch.float64)) ** 2
        if batch.lp_proximal is not None:
            gap = torch.where(batch.mask > 0, batch.lp_proximal - batch.lp_behaviour, 0.0).to(torch.float64).sum(1)
            log_weight = torch.zeros_like(reward).index_add_(0, table.of_row, gap)
            weight = weight * torch.exp(2 * log_weight.clamp(-20, 20))
    task = None if batch.task_type is None else table.first(batch.task_type)
    return scaled(centered(reward, table.group, baseline, weight), reward, table.group, scale, task)


def step_advantages(batch: Batch, chosen: StepState | StepIndex, table: EpisodeTable, reward: Tensor) -> Tensor:
    """[S] float64: the turn's return minus the mean of its cluster, 0 for a turn alone in its cluster.

    StepState: turns of one group taken from the same environment state, at any time (GiGPO, arXiv 2505.10978).
    StepIndex: turns of one group with the same index (UI-S1, arXiv 2509.11543; Fine-Mem, arXiv 2601.08435).
    """
    if batch.steps is None or batch.step is None:
        raise ValueError(f"{type(chosen).__name__} needs Batch.steps and Batch.step")
    steps = batch.steps
    returns = credit.step_returns(steps, table, reward, chosen.discount)
    group = table.group[credit.lines_of(steps, table)]
    key = steps.state if isinstance(chosen, StepState) else steps.index
    alone = -1 - torch.arange(len(key), device=key.device)
    _, cluster = torch.unique(torch.stack((group, torch.where(key >= 0, key, alone))), dim=1, return_inverse=True)
    stats = moments(returns, cluster)
    difference = torch.where(stats.constant, 0.0, returns - stats.mean)
    return scaled(difference, returns, cluster, chosen.scale)


def advantages(batch: Batch, objective: Objective) -> Tensor:
    """[B,T], detached, in the dtype of lp_behaviour; zero where the mask is.

    Every statistic is over episodes of the whole optimiser step, so call it on the whole batch, never on a micro-batch.
    """
    table = episode_table(batch)
    reward = episode_rewards(batch, objective, table)
    per_token = torch.where(batch.mask > 0, _unscaled(batch, objective, table, reward), 0.0)
    scale = getattr(objective.advantage, "scale", None)
    if isinstance(scale, Whitened):
        per_token = whitened(per_token, batch.mask, scale.epsilon)
    if objective.advantage_clamp is not None:
        per_token = per_token.clamp(-objective.advantage_clamp, objective.advantage_clamp)
    return per_token.to(batch.lp_behaviour.dtype).detach()


def _unscaled(batch: Batch, objective: Objective, table: EpisodeTable, reward: Tensor) -> Tensor:
    """[B,T] float64: that of the objective's part, before it is whitened over tokens."""
    chosen = objective.advantage
    if isinstance(chosen, Outcome | OptimalBaseline):
        penalty = kl_penalty(batch, objective)
        if penalty is not None:
            reward = reward.index_add(0, table.of_row, -penalty.to(torch.float64).sum(1))
        baseline = chosen.baseline if isinstance(chosen, Outcome) else "optimal"
        whole = episode_advantages(batch, table, reward, baseline, chosen.scale)
        return whole[table.of_row][:, None].expand(batch.shape)
    if isinstance(chosen, SoftValue):
        if batch.soft_value is None:
            raise ValueError("SoftValue needs Batch.soft_value, one value per task from reference samples")
        gain = reward - table.first(batch.soft_value.to(torch.float64))
        return gain[table.of_row][:, None].expand(batch.shape)
    if isinstance(chosen, StepState | StepIndex):
        whole = episode_advantages(batch, table, reward, "group", chosen.scale)[table.of_row][:, None]
        turn = step_advantages(batch, chosen, table, reward)
        assert batch.step is not None
        finer = torch.where(batch.step >= 0, turn[batch.step.clamp(min=0)], 0.0)
        return chosen.episode_weight * whole + chosen.step_weight * finer
    packed = credit.packing(batch, table)
    if isinstance(chosen, PrefixTree):
        return credit.prefix_tree(batch, table, packed, reward).advantage
    if isinstance(chosen, Gae):
        return _gae(batch, objective, chosen, table, packed, reward)
    base = centered(reward, table.group, chosen.baseline)
    rewards = credit.token_rewards(batch, table, packed, base, kl_penalty(batch, objective))
    return packed.unpack(credit.reward_to_go(rewards, packed.lengths, chosen.discount), batch.shape)


def _gae(
    batch: Batch, objective: Objective, chosen: Gae, table: EpisodeTable, packed: credit.Packing, reward: Tensor
) -> Tensor:
    if batch.values is None:
        raise ValueError("Gae needs Batch.values from a critic")
    rewards = credit.token_rewards(batch, table, packed, reward, kl_penalty(batch, objective))
    bootstrap = None if batch.bootstrap is None else table.first(batch.bootstrap)
    values = packed.pack(batch.values)
    estimate = credit.gae(rewards, values, packed.lengths, chosen.discount, chosen.trace_decay, bootstrap)
    return packed.unpack(estimate, batch.shape)


def value_targets(batch: Batch, objective: Objective) -> Tensor:
    """[B,T]: what the critic is trained towards, advantage before whitening plus old value; zero outside the mask."""
    table = episode_table(batch)
    reward = episode_rewards(batch, objective, table)
    assert isinstance(objective.advantage, Gae)
    estimate = _gae(batch, objective, objective.advantage, table, credit.packing(batch, table), reward)
    assert batch.values is not None
    return torch.where(batch.mask > 0, estimate.to(batch.values.dtype) + batch.values, 0.0).detach()
