"""Aggregation: from per-token terms to one number, with denominators that no micro-batch can change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from keepworth.episodes.needs import needs_train

import torch
from torch import Tensor

from keepworth.learning.objective.advantage import length_budget
from keepworth.learning.objective.batch import Batch
from keepworth.learning.objective.correction import correction
from keepworth.learning.objective.options import Objective


@dataclass(frozen=True, slots=True)
class Denominators:
    """Constants of one optimiser step, over all its rows on all machines.

    tokens, units [branches]: counted tokens and sequences of each branch. ids, lengths, drawn [U]: the episodes, their
    counted and their drawn tokens. scale: an extra divisor (the length budget of 'constant').
    """

    mode: str
    unit: str
    tokens: Tensor
    units: Tensor
    ids: Tensor
    lengths: Tensor
    drawn: Tensor
    scale: float
    local_weight: float


def _branch(batch: Batch, objective: Objective) -> Tensor:
    if objective.local_weight is None:
        return torch.zeros_like(batch.episode)
    if batch.branch is None:
        raise ValueError(f"objective {objective.name!r} has a local_weight and needs Batch.branch")
    return batch.branch


def denominators(batch: Batch, objective: Objective) -> Denominators:
    """Computed once from the whole optimiser step and handed to every micro-batch.

    denominator='original' counts every drawn token, so what a mask drops shrinks the gradient; 'kept' counts what
    survives `select` and the correction, so the survivors weigh more. A sequence with nothing left still counts as
    one of the units. Under 'kept', a correction with anchor 'current' or 'interpolated' is not known beforehand and
    is not counted.
    """
    branch = _branch(batch, objective)
    per_row = _counted(batch, objective)
    ids, inverse = torch.unique(batch.episode, return_inverse=True)
    lengths = per_row.new_zeros(len(ids)).index_add_(0, inverse, per_row)
    drawn = per_row.new_zeros(len(ids)).index_add_(0, inverse, (batch.mask > 0).to(per_row.dtype).sum(1))
    unit_branch = branch
    if objective.aggregation_unit == "episode":
        unit_branch = torch.zeros_like(ids).scatter_reduce_(0, inverse, branch, "amax")
    tokens = per_row.new_zeros(2).index_add_(0, branch, per_row)
    units = per_row.new_zeros(2).index_add_(0, unit_branch, torch.ones_like(unit_branch, dtype=per_row.dtype))
    scale = float(length_budget(objective)) if objective.aggregation == "constant" else 1.0
    weight = 1.0 if objective.local_weight is None else objective.local_weight
    mode, unit = objective.aggregation, objective.aggregation_unit
    return Denominators(mode, unit, tokens, units, ids, lengths, drawn, scale, weight)


def _counted(batch: Batch, objective: Objective) -> Tensor:
    """[B] float64: the tokens of a row that its denominators count."""
    counted = (batch.mask > 0).to(torch.float64)
    if objective.denominator == "kept":
        if batch.keep is not None:
            counted = counted * (batch.keep if objective.shares_nodes else batch.keep > 0)
        if objective.correction and objective.anchor == "proximal" and batch.lp_proximal is not None:
            counted = counted * correction(objective, batch.lp_proximal, batch).keep
    return counted.sum(1)


def merged(parts: Sequence[Denominators]) -> Denominators:
    """One step's denominators from those of its shards, an episode being on one shard only."""
    ids = torch.cat([part.ids for part in parts])
    if len(torch.unique(ids)) != len(ids):
        raise ValueError("an episode has rows on two shards: its length would be counted wrongly")
    order = torch.argsort(ids)
    first = parts[0]
    return Denominators(
        first.mode,
        first.unit,
        torch.stack([part.tokens for part in parts]).sum(0),
        torch.stack([part.units for part in parts]).sum(0),
        ids[order],
        torch.cat([part.lengths for part in parts])[order],
        torch.cat([part.drawn for part in parts])[order],
        first.scale,
        first.local_weight,
    )


def row_weights(batch: Batch, objective: Objective, denominators: Denominators) -> Tensor:
    """[B] float64: what one token's term is multiplied by before everything is summed.

    token-mean: 1 / all tokens (DAPO, arXiv 2503.14476). seq-mean-token-mean: 1 / (sequences * the sequence's tokens)
    (GRPO, arXiv 2402.03300). seq-mean-token-sum: 1 / sequences (RLOO, arXiv 2402.14740). constant:
    1 / (sequences * length budget) (Dr. GRPO, arXiv 2503.20783). Two branches are aggregated apart and added.
    """
    branch = _branch(batch, objective)
    if denominators.mode == "token-mean":
        weight = 1 / denominators.tokens.clamp(min=1)[branch]
    else:
        weight = 1 / (denominators.units.clamp(min=1)[branch] * denominators.scale)
        if denominators.mode == "seq-mean-token-mean":
            weight = weight / _lengths(batch, objective, denominators).clamp(min=1)
    return torch.where(branch > 0, weight * denominators.local_weight, weight)


def _lengths(batch: Batch, objective: Objective, denominators: Denominators) -> Tensor:
    if denominators.unit == "row":
        return _counted(batch, objective)
    return denominators.lengths[line_of(batch, denominators)]


def line_of(batch: Batch, denominators: Denominators) -> Tensor:
    """[B]: where a row's episode stands in `ids`. Raises ValueError if it is not there."""
    line = torch.searchsorted(denominators.ids, batch.episode).clamp(max=len(denominators.ids) - 1)
    if bool((denominators.ids[line] != batch.episode).any()):
        raise ValueError("the micro-batch holds an episode that the denominators were not computed from")
    return line


def aggregate(values: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
    """Scalar: sum over drawn tokens of values [B,T] times the row's weight [B]; what is masked cannot leak a NaN."""
    return (torch.where(mask > 0, values, 0.0).sum(1) * weights.to(values.dtype)).sum()
