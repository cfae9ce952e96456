"""The optimal off-policy baseline, from gradients of single episodes and without keeping any of them.

Source: Stable Asynchrony (VCPO), arXiv 2602.17616. b* = sum w^2 |g|^2 R / sum w^2 |g|^2 over a group, g the gradient of
an episode's log-probability, w its unclipped sequence weight, minimises sum w^2 |g|^2 (R - b)^2. Since the advantage
R - b* enters the gradient linearly, two buffers are enough: sum c w R g and sum c w g; their combination is made when
the group is complete. Norms are of the unscaled g, so w is counted exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from keepworth.episodes.needs import needs_train

import torch
from torch import Tensor

from keepworth.learning.objective.advantage import moments
from keepworth.learning.objective.aggregation import Denominators, row_weights
from keepworth.learning.objective.batch import Batch, EpisodeTable, episode_table
from keepworth.learning.objective.correction import correction
from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.parts import OptimalBaseline

Forward = Callable[[list[int]], Tensor]


def score_norms(parameters: Sequence[Tensor], batch: Batch, forward: Forward) -> Tensor:
    """[B] float64 for Batch.score_norm: |grad sum of lp| of each row's episode; one backward pass an episode.

    forward: row numbers -> log-probabilities [b,T] with gradient to the parameters.
    """
    table = episode_table(batch)
    norms = torch.zeros(batch.shape[0], dtype=torch.float64)
    for rows in _rows_of_episodes(table):
        norms[rows] = _norm(_score(parameters, batch, forward, rows))
    return norms.to(batch.mask.device)


def optimal_baseline_gradient(
    parameters: Sequence[Tensor], batch: Batch, objective: Objective, denominators: Denominators, forward: Forward
) -> dict[str, float]:
    """Adds the gradient of the objective's loss to every parameter's `grad`; returns each group's baseline, averaged.

    Equal to `loss` with advantages from exact score norms, at the price of one backward pass an episode instead of two.
    """
    chosen = objective.advantage
    if not isinstance(chosen, OptimalBaseline) or objective.needs_selection:
        raise ValueError(f"objective {objective.name!r}: optimal_baseline_gradient is for OptimalBaseline alone")
    if batch.lp_proximal is None:
        raise ValueError(f"objective {objective.name!r} weighs by the proximal policy: fill Batch.lp_proximal")
    table = episode_table(batch)
    gap = torch.where(batch.mask > 0, batch.lp_proximal - batch.lp_behaviour, 0.0).to(torch.float64).sum(1)
    log_weight = torch.zeros_like(table.reward).index_add_(0, table.of_row, gap).clamp(-20, 20)
    fixed = correction(objective, batch.lp_proximal, batch)
    scale = row_weights(batch, objective, denominators)
    stats = moments(table.reward, table.group)
    if bool((stats.size < 2).any()):
        raise ValueError("OptimalBaseline: a group has one episode and nothing to compare it with; filter such groups")
    rows_of = _rows_of_episodes(table)
    baselines = []
    for group in torch.unique(table.group).tolist():
        members = [line for line in range(len(table.ids)) if int(table.group[line]) == group]
        if bool(stats.constant[members[0]]):
            continue
        with_reward = [torch.zeros_like(parameter) for parameter in parameters]
        without = [torch.zeros_like(parameter) for parameter in parameters]
        mass = weighted = 0.0
        for line in members:
            rows = rows_of[line]
            reward = float(table.reward[line])
            plain = _score(parameters, batch, forward, rows)
            coefficient = float(torch.exp(2 * log_weight[line])) * float(_norm(plain)) ** 2
            mass, weighted = mass + coefficient, weighted + coefficient * reward
            # With a sequence-level correction every token of the episode has the same weight.
            weight = float((fixed.weight * fixed.keep)[rows[0]][batch.mask[rows[0]] > 0].mean()) if plain else 0.0
            factor = -float(scale[rows[0]]) * weight
            for total, bare, gradient in zip(with_reward, without, plain, strict=True):
                total.add_(gradient, alpha=factor * reward)
                bare.add_(gradient, alpha=factor)
        baseline = weighted / mass if mass > 0 else float(stats.mean[members[0]])
        baselines.append(baseline)
        spread = float(stats.std[members[0]]) + chosen.scale.epsilon if chosen.scale else 1.0
        for parameter, total, bare in zip(parameters, with_reward, without, strict=True):
            step = (total - baseline * bare) / spread
            parameter.grad = step if parameter.grad is None else parameter.grad + step
    return {"optimal_baseline": sum(baselines) / len(baselines) if baselines else 0.0}


def _rows_of_episodes(table: EpisodeTable) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(len(table.ids))]
    for row, line in enumerate(table.of_row.tolist()):
        rows[line].append(row)
    return rows


def _score(parameters: Sequence[Tensor], batch: Batch, forward: Forward, rows: list[int]) -> list[Tensor]:
    """Gradient of the log-probability of the drawn tokens of one episode."""
    mask = batch.mask[rows] > 0
    total = torch.where(mask, forward(rows), 0.0).sum()
    gradients = torch.autograd.grad(total, list(parameters), allow_unused=True)
    return [
        torch.zeros_like(parameter) if gradient is None else gradient
        for parameter, gradient in zip(parameters, gradients, strict=True)
    ]


def _norm(gradients: Sequence[Tensor]) -> Tensor:
    return torch.stack([(gradient.detach().to(torch.float64) ** 2).sum() for gradient in gradients]).sum().sqrt().cpu()
