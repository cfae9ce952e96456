"""Batch: the padded rows of one optimiser step, as tensors.

An episode may have several rows (its context was rewritten between two model calls); its rows are in order of time. B rows, T
columns, E episodes, S steps (turns)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from keepworth.base.needs import needs_train

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Steps:
    """The turns of the batch's episodes, for credit finer than the episode. All tensors are [S].

    Attributes:
        episode: Its id, as in `Batch.episode`.
        index: 0, 1, 2 ... within the episode.
        reward: The environment's reward for the turn.
        state: An integer key of the environment's state before acting. Equal states have equal keys (step counters and timestamps
            are left out); -1 is never compared.
        duration: Seconds that the turn's action took, NaN where it was not measured; None where no turn was.
    """

    episode: Tensor
    index: Tensor
    reward: Tensor
    state: Tensor
    duration: Tensor | None = None


PerRow = Tensor
"""A tensor [B]; the other tensors of a batch are [B,T]."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The fields that an objective reads.

    mask [B,T]: 1 exactly at tokens the policy drew. lp_behaviour [B,T]: log-probabilities under the policy that drew them, at the
    sampling temperature. lp_proximal [B,T]: recomputed by the trainer before its first optimiser step on this batch.
    lp_reference, lp_teacher, values [B,T]: by the reference model, a teacher, the critic, without gradient. action_values [B,T]:
    the critic's value of each token's turn once it is taken. rewards [B]: the episode's combined reward, the same on each of its
    rows. group, episode, task_type [B]: integer ids, not necessarily contiguous. version_lag [B,T]: trainer's version minus the
    token's. step [B,T]: position in `steps` of the turn a token belongs to, -1 where none. ids [B,T]: sampled token ids.
    truncated [B]: whether the answer hit the length limit. metric [B]: score before shaping (1 is right), for teacher masks; the
    reward where absent. bootstrap [B]: critic's value after a truncated end. soft_value [B]: the task's optimal value under the
    reference. score_norm [B]: ||grad log pi(episode)||, the same on each row. branch [B]: 0 for whole rollouts, 1 for local
    re-rolls.

    keep [B,T] and teacher_rows [B] are written by `select`."""

    mask: Tensor
    lp_behaviour: Tensor
    rewards: PerRow
    group: PerRow
    episode: PerRow
    lp_proximal: Tensor | None = None
    lp_reference: Tensor | None = None
    lp_teacher: Tensor | None = None
    values: Tensor | None = None
    action_values: Tensor | None = None
    task_type: PerRow | None = None
    version_lag: Tensor | None = None
    step: Tensor | None = None
    steps: Steps | None = None
    ids: Tensor | None = None
    truncated: PerRow | None = None
    metric: PerRow | None = None
    bootstrap: PerRow | None = None
    soft_value: PerRow | None = None
    score_norm: PerRow | None = None
    branch: PerRow | None = None
    keep: Tensor | None = None
    teacher_rows: PerRow | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value, shape = getattr(self, field.name), self.mask.shape[: 1 if "PerRow" in str(field.type) else 2]
            if isinstance(value, Tensor) and value.shape != shape:
                raise ValueError(f"Batch.{field.name} must be {list(shape)} like the mask, got {list(value.shape)}")
        if not bool(torch.isfinite(self.rewards).all()):
            bad = self.episode[~torch.isfinite(self.rewards)].tolist()
            raise ValueError(f"Batch.rewards is not finite for episodes {bad}: drop them or give them a stated reward")

    def require(self, name: str, by: object) -> Tensor:
        """Returns the field of that name. Raises ValueError, which names the reader `by`, where the batch does not have it."""
        value: Tensor | None = getattr(self, name)
        if value is None:
            raise ValueError(f"{by} needs Batch.{name}")
        return value

    @property
    def shape(self) -> tuple[int, int]:
        return self.mask.shape[0], self.mask.shape[1]

    def rows(self, index: Tensor | Sequence[int] | slice) -> Batch:
        """Returns the rows of a micro-batch; `steps` stays whole because `step` points into it."""
        where = torch.as_tensor(index, device=self.mask.device) if isinstance(index, Sequence) else index
        named = ((field.name, getattr(self, field.name)) for field in fields(self))
        taken: dict[str, Any] = {name: value[where] for name, value in named if isinstance(value, Tensor)}
        return replace(self, **taken)


def turn_ends(batch: Batch) -> tuple[Tensor, Tensor]:
    """Returns the columns, each [B,T], of the first and the last drawn token of each drawn token's turn. A turn lies within one
    row. A token that belongs to no turn gets its own column."""
    step = batch.require("step", "credit of turns")
    columns = torch.arange(batch.shape[1], device=step.device).expand(batch.shape)
    inside = (batch.mask > 0) & (step >= 0)
    turns = step.clamp(min=0)
    blank = turns.new_zeros(int(turns.max()) + 1 if turns.numel() else 0)
    ends = []
    for reduce in ("amin", "amax"):
        end = blank.scatter_reduce(0, step[inside], columns[inside], reduce, include_self=False)
        ends.append(torch.where(inside, end[turns], columns))
    return ends[0], ends[1]


@dataclass(frozen=True, slots=True)
class EpisodeTable:
    """One line per episode.

    Attributes:
        of_row: [B], the line of each row.
        ids, reward, group, tokens: [E], of each episode.
    """

    of_row: Tensor
    ids: Tensor
    reward: Tensor
    group: Tensor
    tokens: Tensor

    def first(self, per_row: Tensor) -> Tensor:
        """Returns the value at each episode's first row: [B] -> [E]."""
        count, rows = len(self.ids), len(self.of_row)
        position = torch.full((count,), rows, dtype=torch.long, device=self.of_row.device)
        order = torch.arange(rows, device=self.of_row.device)
        position = position.scatter_reduce(0, self.of_row, order, "amin")
        return per_row[position]


def episode_table(batch: Batch) -> EpisodeTable:
    """Collapses rows to episodes, so that an episode of many rows counts once in every statistic."""
    ids, of_row = torch.unique(batch.episode, return_inverse=True)
    tokens = torch.zeros(len(ids), dtype=torch.float64, device=batch.mask.device)
    tokens.index_add_(0, of_row, batch.mask.to(torch.float64).sum(1))
    bare = EpisodeTable(of_row, ids, ids, ids, tokens)
    return replace(bare, reward=bare.first(batch.rewards.to(torch.float64)), group=bare.first(batch.group))
