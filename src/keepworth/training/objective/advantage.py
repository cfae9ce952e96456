"""Advantages: from the rewards of episodes to a number for each token that the policy drew.

This module decides which groups count, computes credit inside an episode and baseline and scale between episodes, and selects the
tokens that the loss keeps. All results are detached, and zero where the policy drew nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from keepworth.base.needs import needs_train

import torch
from torch import Tensor

from keepworth.training.objective.batch import Batch, EpisodeTable, Steps, episode_table, turn_ends
from keepworth.training.objective.formulas import center, whiten
from keepworth.training.objective.options import Controls, Objective
from keepworth.training.objective.parts import Advised, KlReward, OverlongMask, Scale, Whitened

# Filter: which groups enter an optimiser step.


def rejection(scores: Sequence[float], objective: Objective) -> str:
    """Returns why a group with these unshaped scores, one for each episode, is not trained on; "" where it is.

    Use the raw metric, not the shaped reward: a length penalty makes every group look mixed. An objective that compares within
    groups drops a group of one, whatever its filter."""
    if len(scores) < 2 and objective.compares:
        return "one episode, nothing to compare it with"
    return "" if objective.group_filter is None else objective.group_filter.rejection(tuple(scores))


# Credit: from an episode's rewards to a number for each of its tokens or turns.
#
# Rules for whole episodes need nothing from here; these are the finer ones. Episodes are packed to [E, L]: the tokens
# the policy drew, in order, without what the environment wrote. Recursions therefore pass over observation tokens
# without discounting them.


@dataclass(frozen=True, slots=True)
class Packing:
    """Maps each of N drawn tokens from its cell (row, column) to its line (episode) and its place in the episode, all [N]."""

    row: Tensor
    column: Tensor
    line: Tensor
    place: Tensor
    lengths: Tensor

    @property
    def width(self) -> int:
        return int(self.lengths.max()) if len(self.lengths) else 0

    def pack(self, values: Tensor, *, total: bool = False) -> Tensor:
        """Copies [B,T] to [E,L] float64, with zeros after an episode's end. `total` sums the tokens that share a place."""
        packed = torch.zeros(len(self.lengths), self.width, dtype=torch.float64, device=values.device)
        given = values[self.row, self.column].to(torch.float64)
        return packed.index_put_((self.line, self.place), given, accumulate=total)

    def unpack(self, packed: Tensor, shape: tuple[int, int]) -> Tensor:
        """Copies [E,L] to [B,T], with zeros where the policy drew nothing."""
        values = torch.zeros(shape, dtype=packed.dtype, device=packed.device)
        values[self.row, self.column] = packed[self.line, self.place]
        return values


def lines_of(steps: Steps, table: EpisodeTable) -> Tensor:
    """Returns the line of the episode table that each step belongs to, [S]."""
    return torch.searchsorted(table.ids, steps.episode)


def scale_advantage(
    advantage: Tensor, rewards: Tensor, group: Tensor, scale: Scale | None, task: Tensor | None = None
) -> Tensor:
    """Returns advantage / (std + epsilon), all [E]. The std is the sample std (ddof 1) of the raw rewards in the clusters of the
    scale.

    Args:
        advantage: [E] The centred rewards.
        rewards: [E] The rewards of the episodes as they were.
        group: [E] The group of each episode.
        scale: What is divided by; None divides by nothing.
        task: [E] The kind of task of each episode, for a scale that tells kinds apart.
    """
    stats = None if scale is None else scale.statistics(rewards, group, task)
    if scale is None or stats is None:
        return advantage
    # Advantages of a constant cluster are zero by centring; without centring, dividing by epsilon alone would explode.
    return torch.where(stats.constant, advantage, advantage / (stats.std + scale.epsilon))


@dataclass(frozen=True)
class CreditTable:
    """The quantities that advantages are computed from: `reward` [E] float64 of each episode of the table, and `penalty` [B,T],
    which is subtracted token by token (the KL to the reference), or None."""

    batch: Batch
    table: EpisodeTable
    reward: Tensor
    penalty: Tensor | None

    @cached_property
    def packed(self) -> Packing:
        """The place of each drawn token in its episode."""
        batch, table = self.batch, self.table
        row, column = torch.nonzero(batch.mask > 0, as_tuple=True)
        line = table.of_row[row]
        order = torch.argsort(line, stable=True)
        row, column, line = row[order], column[order], line[order]
        lengths = torch.bincount(line, minlength=len(table.ids))
        start = torch.cumsum(lengths, 0) - lengths
        position = torch.arange(len(line), device=line.device) - start[line]
        return Packing(row, column, line, position, lengths)

    @cached_property
    def turns(self) -> Packing:
        """The place of each drawn token's turn in its episode: [E,L] counts turns instead of tokens."""
        packed = self.packed
        step = self.batch.require("step", "credit of turns")[packed.row, packed.column]
        begins = torch.ones_like(step, dtype=torch.bool)
        begins[1:] = (step[1:] != step[:-1]) | (packed.line[1:] != packed.line[:-1])
        lengths = torch.bincount(packed.line[begins], minlength=len(packed.lengths))
        start = torch.cumsum(lengths, 0) - lengths
        position = torch.cumsum(begins.long(), 0) - 1 - start[packed.line]
        return Packing(packed.row, packed.column, packed.line, position, lengths)

    def state_values(self, part: Advised) -> Tensor:
        """Returns the critic's values before each token, or before the first token of its turn, [B,T]."""
        values = self.batch.require("values", part)
        return values.gather(1, turn_ends(self.batch)[0]) if part.by_turn else values

    def action_values(self, part: Advised) -> Tensor:
        """Returns the critic's values of each token's turn once it is taken, [B,T]."""
        return self.batch.require("action_values", part).gather(1, turn_ends(self.batch)[1])

    def unpack(self, values: Tensor) -> Tensor:
        """Copies [E,L] to [B,T]."""
        return self.packed.unpack(values, self.batch.shape)

    def spread(self, values: Tensor) -> Tensor:
        """Copies each episode's value to all its tokens: [E] -> [B,T]."""
        return values[self.table.of_row][:, None].expand(self.batch.shape)

    def reward_less_penalty(self) -> Tensor:
        """Returns the reward minus the sum of the penalty, [E]."""
        if self.penalty is None:
            return self.reward
        return self.reward.index_add(0, self.table.of_row, -self.penalty.to(torch.float64).sum(1))

    def token_rewards(self, reward: Tensor) -> Tensor:
        """Distributes rewards to tokens, [E,L] float64. Each turn's reward goes to the turn's last token, the rest of the
        episode's `reward` [E] to its last token. The penalty (the KL to the reference) is subtracted token by token."""
        batch, table, packed, penalty = self.batch, self.table, self.packed, self.penalty
        rewards = torch.zeros(len(table.ids), packed.width, dtype=torch.float64, device=reward.device)
        rest = reward.clone()
        if batch.steps is not None and batch.step is not None:
            step = batch.step[packed.row, packed.column]
            inside = step >= 0
            last = torch.full((len(batch.steps.episode),), -1, dtype=torch.long, device=reward.device)
            last = last.scatter_reduce(0, step[inside], packed.place[inside], "amax")
            placed = last >= 0
            line = lines_of(batch.steps, table)[placed]
            given = batch.steps.reward.to(torch.float64)[placed]
            rewards.index_put_((line, last[placed]), given, accumulate=True)
            rest.index_add_(0, line, -given)
        spoke = packed.lengths > 0
        rewards[spoke, packed.lengths[spoke] - 1] += rest[spoke]
        if penalty is not None:
            rewards = rewards - packed.pack(penalty)
        return rewards

    def compare(
        self, reward: Tensor, baseline: str | None, scale: Scale | None, weight: Tensor | None = None
    ) -> Tensor:
        """Returns the centred and scaled rewards of whole episodes, [E].

        Args:
            reward: [E] The rewards of the episodes.
            baseline: The mean that is subtracted, as for `center`; None subtracts nothing.
            scale: What is divided by; None divides by nothing.
            weight: [E] The weight of each episode in its group's mean; None weighs them equally.
        """
        batch, table = self.batch, self.table
        task = None if batch.task_type is None else table.first(batch.task_type)
        return scale_advantage(center(reward, table.group, baseline, weight), reward, table.group, scale, task)


def credit_of(batch: Batch, objective: Objective) -> CreditTable:
    """Builds the credit table: the reward includes the overlong penalty, and a `KlReward` gives the penalty of tokens."""
    table = episode_table(batch)
    reward, penalty = table.reward, None
    if objective.overlong is not None:
        reward = objective.overlong.shape(reward, table.tokens, objective.budget)
    if isinstance(objective.kl, KlReward):
        policy = batch.lp_behaviour if batch.lp_proximal is None else batch.lp_proximal
        gap = objective.kl.coefficient * (policy - batch.require("lp_reference", objective.kl))
        penalty = torch.where(batch.mask > 0, gap, 0.0).detach()
    return CreditTable(batch, table, reward, penalty)


def advantages(batch: Batch, objective: Objective) -> Tensor:
    """Returns the advantages, [B,T], detached and in the dtype of lp_behaviour; zero where the mask is. Every statistic is over
    the episodes of the whole optimiser step, so call it on the whole batch, never on a micro-batch."""
    per_token = torch.where(batch.mask > 0, objective.advantage.tokens(credit_of(batch, objective)), 0.0)
    scale = objective.advantage.scale
    if isinstance(scale, Whitened):
        per_token = whiten(per_token, batch.mask, scale.epsilon)
    if objective.weight is not None:
        per_token = per_token * objective.weight.weigh(batch)
    return per_token.to(batch.lp_behaviour.dtype).detach()


def value_targets(batch: Batch, objective: Objective, *, of: Literal["states", "actions"] = "states") -> Tensor:
    """Returns the targets of the critic's values, [B,T], without gradient; zero outside the mask.

    Args:
        batch: The whole optimiser step, with the critic's `values`.
        objective: The objective, whose advantage is an `Advised`.
        of: Whether they are targets of states, or of turns once taken.
    """
    advantage = objective.advantage
    assert isinstance(advantage, Advised)
    credit = credit_of(batch, objective)
    targets = advantage.state_targets(credit) if of == "states" else advantage.action_targets(credit)
    return torch.where(batch.mask > 0, targets.to(batch.require("values", advantage).dtype), 0.0).detach()


# Selection: which drawn tokens the loss keeps, decided once per optimiser step and written into the batch.


def select(
    batch: Batch,
    objective: Objective,
    advantages: Tensor,
    controls: Controls | None = None,
    generator: torch.Generator | None = None,
) -> Batch:
    """Returns the batch with `keep` [B,T] (and `teacher_rows` [B]) filled in. A keep between 0 and 1 is a shared tree node that
    is counted once.

    Args:
        batch: The whole optimiser step: micro-batches would choose differently.
        objective: The objective, which says what is kept.
        advantages: [B,T] The advantages of the batch.
        controls: The run's controls, which may leave out what is below average; None for none.
        generator: The source of random choices, for a selection that draws.
    """
    keep = (batch.mask > 0).to(batch.lp_behaviour.dtype)
    if objective.selection is not None:
        keep = (keep * objective.selection.keep(batch, generator)).to(keep.dtype)
    elif objective.shares_nodes:
        table = episode_table(batch)
        shared = objective.advantage.keep(CreditTable(batch, table, table.reward, None))
        keep = keep if shared is None else keep * shared.to(keep.dtype)
    if isinstance(objective.overlong, OverlongMask):
        keep = keep * ~batch.require("truncated", objective.overlong).bool()[:, None]
    if objective.negatives is not None and controls is not None and controls.positives_only:
        # The authors do the same: a member of a group that earned nothing is not below average, and teaches nothing good.
        keep = keep * ((advantages >= 0) & (batch.rewards > 0)[:, None])
    taught = None if objective.teacher is None else objective.teacher.rows(batch)
    return replace(batch, keep=keep, teacher_rows=taught)
