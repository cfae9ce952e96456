"""Small batches and policies that the checks of the objective share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from keepworth.training.objective.batch import Batch, Steps
from keepworth.training.objective.options import Objective
from keepworth.training.objective.presets import vary_objective


def bandit_batch(rewards: list[float], group: list[int] | None = None, **changes: Any) -> Batch:
    """One row of one token per episode; log-probabilities 0 unless given."""
    count = len(rewards)
    zeros = torch.zeros(count, 1, dtype=torch.float64)
    fields = {
        "mask": torch.ones_like(zeros),
        "lp_behaviour": zeros,
        "lp_proximal": zeros,
        "rewards": torch.tensor(rewards, dtype=torch.float64),
        "group": torch.tensor(group or [0] * count),
        "episode": torch.arange(count),
    }
    return Batch(**{**fields, **changes})


@dataclass(frozen=True)
class Toy:
    """A batch that has something for every objective, and a policy that gives its log-probabilities.

    The policy is a table of logits [columns, symbols], so the same symbol at the same place has one log-probability
    whatever the row."""

    batch: Batch
    logits: Tensor

    def forward(self, ids: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(lp, entropy) [B,T] with gradient to the logits."""
        assert self.batch.ids is not None
        ids = self.batch.ids if ids is None else ids
        table = torch.log_softmax(self.logits, -1)
        lp = torch.stack([table[t, ids[:, t]] for t in range(ids.shape[1])], 1)
        entropy = -(table.exp() * table).sum(-1)
        return lp, entropy[None].expand_as(lp)


def toy(seed: int = 0, groups: int = 3, size: int = 4, columns: int = 7, symbols: int = 3, lag: float = 0.3) -> Toy:
    """Episodes with an observation in the middle, ragged ends, two rows each for every fourth; rewards in {0, 1} plus
    one all-equal group (the last)."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)

    episodes = groups * size
    episode = [e for e in range(episodes) for _ in range(2 if e % 4 == 1 else 1)]
    rows = len(episode)
    group_of = [e // size for e in range(episodes)]
    reward_of = torch.randint(0, 2, (episodes,), generator=generator).to(torch.float64)
    for g in range(groups):
        reward_of[g * size], reward_of[g * size + 1] = 1.0, 0.0
    reward_of[-size:] = 1.0
    ids = torch.randint(0, symbols, (rows, columns), generator=generator)
    mask = torch.ones(rows, columns, dtype=torch.float64)
    mask[:, columns // 2] = 0
    mask[::2, -1] = 0
    logits = normal(columns, symbols, scale=0.5).requires_grad_(True)
    bare = torch.log_softmax(logits.detach(), -1)
    lp = torch.stack([bare[t, ids[:, t]] for t in range(columns)], 1)
    step = torch.full((rows, columns), -1)
    turns: list[tuple[int, int, int]] = []
    seen: dict[int, int] = {}
    for row, e in enumerate(episode):
        for half in (slice(0, columns // 2), slice(columns // 2 + 1, columns)):
            index = seen.get(e, 0)
            seen[e] = index + 1
            step[row, half] = len(turns)
            turns.append((e, index, index % 2))
    of, index_of, states = map(torch.tensor, zip(*turns, strict=True))
    steps = Steps(of, index_of, 0.1 * index_of.double(), states, 1.0 + torch.arange(len(turns)).double() % 5)
    e = torch.tensor(episode)
    batch = Batch(
        mask=mask,
        lp_behaviour=lp + normal(rows, columns, scale=lag),
        lp_proximal=lp + normal(rows, columns, scale=lag / 3),
        lp_reference=lp + normal(rows, columns, scale=0.2),
        lp_teacher=lp + normal(rows, columns, scale=0.2),
        values=normal(rows, columns, scale=0.2),
        rewards=reward_of[e],
        group=torch.tensor(group_of)[e],
        episode=e,
        task_type=torch.tensor(group_of)[e] % 2,
        version_lag=torch.randint(0, 3, (rows, columns), generator=generator),
        step=step,
        steps=steps,
        ids=ids,
        truncated=(e % 5 == 0),
        metric=reward_of[e],
        bootstrap=torch.zeros(rows, dtype=torch.float64),
        soft_value=torch.full((rows,), 0.5, dtype=torch.float64),
        score_norm=(1 + e.to(torch.float64) / 10),
        branch=torch.tensor(group_of)[e] % 2,
        action_values=normal(rows, columns, scale=0.2),
    )
    return Toy(batch, logits)


def runnable(objective: Objective, budget: int = 12) -> Objective:
    """The objective with the one number a preset leaves to the run."""
    return vary_objective(objective, length_budget=budget) if objective.needs_length_budget else objective
