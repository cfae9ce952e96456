"""Credit: from an episode's rewards to a number for each of its tokens or turns.

Rules for whole episodes need nothing from here; these are the finer ones. Episodes are packed to [E, L]: the tokens
the policy drew, in order, without what the environment wrote. Recursions therefore pass over observation tokens
without discounting them.
"""

from __future__ import annotations

from dataclasses import dataclass

from keepworth.episodes.needs import needs_train

import torch
from torch import Tensor

from keepworth.learning.objective.batch import Batch, EpisodeTable, Steps


@dataclass(frozen=True, slots=True)
class Packing:
    """Where each drawn token goes: row, column, line (episode), place (position in the episode), all [N]."""

    row: Tensor
    column: Tensor
    line: Tensor
    place: Tensor
    lengths: Tensor

    @property
    def width(self) -> int:
        return int(self.lengths.max()) if len(self.lengths) else 0

    def pack(self, values: Tensor) -> Tensor:
        """[B,T] -> [E,L] float64, zero past an episode's end."""
        packed = torch.zeros(len(self.lengths), self.width, dtype=torch.float64, device=values.device)
        packed[self.line, self.place] = values[self.row, self.column].to(torch.float64)
        return packed

    def unpack(self, packed: Tensor, shape: tuple[int, int]) -> Tensor:
        """[E,L] -> [B,T], zero where the policy drew nothing."""
        values = torch.zeros(shape, dtype=packed.dtype, device=packed.device)
        values[self.row, self.column] = packed[self.line, self.place]
        return values


def packing(batch: Batch, table: EpisodeTable) -> Packing:
    row, column = torch.nonzero(batch.mask > 0, as_tuple=True)
    line = table.of_row[row]
    order = torch.argsort(line, stable=True)
    row, column, line = row[order], column[order], line[order]
    lengths = torch.bincount(line, minlength=len(table.ids))
    start = torch.cumsum(lengths, 0) - lengths
    place = torch.arange(len(line), device=line.device) - start[line]
    return Packing(row, column, line, place, lengths)


def lines_of(steps: Steps, table: EpisodeTable) -> Tensor:
    """[S]: the line of the episode table a step belongs to."""
    line = torch.searchsorted(table.ids, steps.episode).clamp(max=len(table.ids) - 1)
    if bool((table.ids[line] != steps.episode).any()):
        stray = steps.episode[table.ids[line] != steps.episode][0].item()
        raise ValueError(f"Steps name episode {stray}, which has no row in the batch")
    return line


def step_rewards(steps: Steps, table: EpisodeTable, reward: Tensor) -> Tensor:
    """[S] float64: rewards of the turns, the last turn of an episode also receiving what is left of the episode's.

    So a reward given for the whole episode and the same reward given at its last turn are one thing.
    """
    line = lines_of(steps, table)
    given = steps.reward.to(torch.float64)
    rest = reward.clone().index_add_(0, line, -given)
    last = torch.full_like(table.of_row.new_empty(len(table.ids)), -1)
    last = last.scatter_reduce(0, line, steps.index, "amax")
    return given + torch.where(steps.index == last[line], rest[line], 0.0)


def step_returns(steps: Steps, table: EpisodeTable, reward: Tensor, discount: float) -> Tensor:
    """[S]: U_k = sum over j >= k of discount^(j-k) r_j inside an episode; discount 0 gives the turn's own reward."""
    line, rewards = lines_of(steps, table), step_rewards(steps, table, reward)
    returns = torch.zeros_like(rewards)
    # Walk the turns from the last to the first; one episode is a handful of turns.
    following = torch.zeros(len(table.ids), dtype=torch.float64, device=rewards.device)
    for index in sorted({int(value) for value in steps.index.tolist()}, reverse=True):
        at = steps.index == index
        returns[at] = rewards[at] + discount * following[line[at]]
        following[line[at]] = returns[at]
    return returns


def token_rewards(batch: Batch, table: EpisodeTable, packed: Packing, reward: Tensor, penalty: Tensor | None) -> Tensor:
    """[E,L] float64: each turn's reward on the turn's last token, the rest of the episode's on its last, minus `penalty`.

    reward [E]; penalty [B,T] is subtracted token by token (the KL to the reference).
    """
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


def reward_to_go(rewards: Tensor, lengths: Tensor, discount: float) -> Tensor:
    """[E,L] -> [E,L]: G_t = sum over s >= t of discount^(s-t) r_s.

    Source: REINFORCE++, arXiv 2501.03262.
    """
    returns = torch.zeros_like(rewards)
    following = torch.zeros(len(rewards), dtype=rewards.dtype, device=rewards.device)
    for place in range(rewards.shape[1] - 1, -1, -1):
        following = torch.where(place < lengths, rewards[:, place] + discount * following, following)
        returns[:, place] = torch.where(place < lengths, following, 0.0)
    return returns


def gae(
    rewards: Tensor,
    values: Tensor,
    lengths: Tensor,
    discount: float,
    trace_decay: float,
    bootstrap: Tensor | None = None,
) -> Tensor:
    """Generalised advantage estimation on packed episodes [E,L]; bootstrap [E] is the value after a truncated end.

    delta_t = r_t + discount V_{t+1} - V_t;  A_t = delta_t + discount trace_decay A_{t+1}.
    Source: High-Dimensional Continuous Control Using Generalized Advantage Estimation, arXiv 1506.02438.
    """
    advantages = torch.zeros_like(rewards)
    after = torch.zeros(len(rewards), dtype=rewards.dtype, device=rewards.device)
    value_after = after.clone() if bootstrap is None else bootstrap.to(rewards.dtype)
    for place in range(rewards.shape[1] - 1, -1, -1):
        inside = place < lengths
        delta = rewards[:, place] + discount * value_after - values[:, place]
        after = torch.where(inside, delta + discount * trace_decay * after, after)
        value_after = torch.where(inside, values[:, place], value_after)
        advantages[:, place] = torch.where(inside, after, 0.0)
    return advantages


def soft_value(rewards: Tensor, temperature: float) -> Tensor:
    """V* = temperature log mean exp(R / temperature) over the last axis, from samples of the reference.

    Source: Accelerating RL for LLM Reasoning with Optimal Advantage Regression (A*-PO), arXiv 2505.20686. It lies
    between mean and maximum; the reference that gave the samples must be the one in the regression's log-ratio.
    """
    if not temperature > 0:
        raise ValueError(f"soft_value: temperature must be positive, got {temperature}")
    count = torch.tensor(rewards.shape[-1], dtype=torch.float64)
    log_mean = torch.logsumexp(rewards.to(torch.float64) / temperature, -1) - torch.log(count)
    return (temperature * log_mean).to(rewards.dtype)


@dataclass(frozen=True, slots=True)
class PrefixTreeCredit:
    """Per drawn token of the batch [B,T]: the node's advantage, how many completions share it, whether it is used."""

    advantage: Tensor
    count: Tensor
    informative: Tensor


def prefix_tree(batch: Batch, table: EpisodeTable, packed: Packing, reward: Tensor) -> PrefixTreeCredit:
    """A(v | p) = mean reward of completions that begin with p v, minus that of completions that begin with p.

    A node (p, v) is used if p has at least two completions and at least two distinct continuations; an ended
    completion counts towards p's mean. Nodes are shared within a group only, by the tokens the policy drew: what the
    environment wrote in between is taken to be a function of them.
    Source: T-SPMO in Token-Efficient RL for LLM Reasoning, arXiv 2504.20834; its formula could not be verified.
    """
    if batch.ids is None:
        raise ValueError("PrefixTree needs Batch.ids, the sampled token ids")
    shape = batch.shape
    advantage = torch.zeros(len(table.ids), packed.width, dtype=torch.float64)
    count = torch.ones(len(table.ids), packed.width, dtype=torch.float64)
    informative = torch.zeros(len(table.ids), packed.width, dtype=torch.float64)
    ids, lengths = packed.pack(batch.ids).long().tolist(), packed.lengths.tolist()
    rewards, groups = reward.tolist(), table.group.tolist()
    # A node is its members; children of a node split the members by their next token. Depth first, no hashing of
    # long prefixes: every token is visited once.
    pending = [([e for e in range(len(ids)) if groups[e] == g], 0) for g in sorted(set(groups))]
    while pending:
        members, depth = pending.pop()
        children: dict[int, list[int]] = {}
        for episode in members:
            if depth < lengths[episode]:
                children.setdefault(ids[episode][depth], []).append(episode)
        base = sum(rewards[e] for e in members) / len(members) if members else 0.0
        for child in children.values():
            mean = sum(rewards[e] for e in child) / len(child)
            for episode in child:
                count[episode, depth] = len(child)
                if len(children) >= 2:
                    advantage[episode, depth] = mean - base
                    informative[episode, depth] = 1.0
            if len(child) >= 2:
                pending.append((child, depth + 1))
    device = batch.mask.device
    return PrefixTreeCredit(*(packed.unpack(part.to(device), shape) for part in (advantage, count, informative)))
