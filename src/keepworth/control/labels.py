"""Fills in rewards and actions that logs lack, by networks that learn them from the steps that have them.

    a_t = g(o_{t-k}, ..., o_t, o_{t+1})                      an inverse model
    r_t = f(o_{t-k}, ..., o_t, a_{t-k}, ..., a_t, o_{t+1})   a reward model

A tenth of the episodes with labels is held out, and the weights that predict them best are kept. The inverse model is that of
Zheng et al., "Semi-supervised offline reinforcement learning with action-free trajectories", arXiv 2210.06518; k = 1 there."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from keepworth.base.needs import needs_control

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from keepworth.control.dials import Transition
from keepworth.control.logs import Episode, LogError, Space
from keepworth.control.network import as_tensor
from keepworth.control.spaces import ActionSpace, ObservationSpace

LEAST = 2
"""Episodes with labels: one to learn from, one to check with."""
HELD_OUT = 0.1


@dataclass(frozen=True, slots=True)
class Filled:
    """Logs without gaps.

    Attributes:
        episodes: The logs.
        rewards: How many rewards were filled in.
        actions: How many actions were filled in.
        explained: Of "rewards" and "actions", where some were filled in, the share of the variance on held-out episodes that the
            model explains; of actions that are choices, the share that it gets right.
    """

    episodes: list[list[Transition]]
    rewards: int
    actions: int
    explained: dict[str, float]


def fill_in(
    episodes: Sequence[Episode],
    observation_space: Space,
    action_space: Space,
    *,
    past: int = 1,
    width: int = 128,
    updates: int = 1000,
    seed: int = 0,
) -> Filled:
    """Learns rewards and actions from the steps that have them, and fills in the others: first actions, then rewards.

    Args:
        episodes: Logs, in which a reward or an action that is missing is None or NaN.
        observation_space: The space of observations.
        action_space: The space of actions.
        past: Steps before a step that the networks see.
        width: The width of the two hidden layers of each network.
        updates: Optimiser steps of each network, with 256 steps of the logs at a time.
        seed: The seed of the networks and of what they learn from.

    Raises:
        LogError: Too few episodes have labels, or a network predicts those that were held out no better than their mean.
    """
    observations, actions = ObservationSpace(observation_space), ActionSpace(action_space)
    rows = [list(episode) for episode in episodes]
    seen = [observations.encode([*(step[0] for step in episode), episode[-1][3]]) for episode in rows]
    table = _Table([len(episode) for episode in rows], past, width, updates, seed)
    before = table.windows([features[:-1] for features in seen])
    after = as_tensor(np.concatenate([features[1:] for features in seen]))
    explained = dict[str, float]()
    done = [step[1] for episode in rows for step in episode]
    lacking = torch.tensor([_is_missing(action) for action in done])
    if lacking.any():
        first = next((action for action in done if not _is_missing(action)), None)
        if first is None:
            raise LogError("No step of the logs has an action.", "Give those of some episodes.")
        logged = actions.from_world([first if _is_missing(action) else action for action in done])
        made, explained["actions"] = table.learn("actions", torch.cat([before, after], 1), logged, ~lacking, actions)
        done = [b if gap else a for a, b, gap in zip(done, _to_world(made, actions), lacking.tolist(), strict=True)]
    paid = [np.nan if step[2] is None else float(step[2]) for episode in rows for step in episode]
    missing = torch.tensor(paid).isnan()
    if missing.any():
        acted = actions.describe(actions.from_world(done)).split(table.lengths)
        x = torch.cat([before, table.windows([part.numpy() for part in acted]), after], 1)
        target = torch.tensor(paid).nan_to_num().unsqueeze(1)
        predicted, explained["rewards"] = table.learn("rewards", x, target, ~missing, None)
        paid = [b if gap else a for a, b, gap in zip(paid, predicted[:, 0].tolist(), missing.tolist(), strict=True)]
    labels = zip(done, paid, strict=True)  # in the order of the steps
    filled = [[(a, *next(labels), b, over) for a, _, _, b, over in episode] for episode in rows]
    return Filled(filled, int(missing.sum()), int(lacking.sum()), explained)


class _Table:
    """The steps of all episodes as rows, and the networks that learn from some of them."""

    def __init__(self, lengths: list[int], past: int, width: int, updates: int, seed: int) -> None:
        self.lengths, self.past, self.width, self.updates, self.seed = lengths, past, width, updates, seed
        self.episode = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))

    def windows(self, columns: Sequence[Any]) -> Tensor:
        """Returns the values of each step and of those before it, [steps, (past + 1) * features]; of the first, repeated."""
        padded = [np.concatenate([column[:1].repeat(self.past, 0), column]) for column in columns]
        parts = [np.concatenate([c[k : len(c) - self.past + k] for c in padded]) for k in range(self.past + 1)]
        return as_tensor(np.concatenate(parts, 1).astype(np.float32))

    def learn(self, name: str, x: Tensor, y: Tensor, mask: Tensor, choices: ActionSpace | None) -> tuple[Tensor, float]:
        """Learns y of the masked rows from x; returns what is predicted for all rows, and how well for episodes held out."""
        draw = torch.Generator().manual_seed(self.seed)
        labelled = self.episode[mask].unique()
        if len(labelled) < LEAST:
            raise LogError(
                f"{len(labelled)} episodes have {name}, and {LEAST} are needed.", f"Give the {name} of more episodes."
            )
        chosen = labelled[torch.randperm(len(labelled), generator=draw)[: max(1, round(HELD_OUT * len(labelled)))]]
        checked = mask & torch.isin(self.episode, chosen)
        learned = (mask & ~checked).nonzero()[:, 0]
        categorical = choices is not None and choices.categorical
        scaled, mean, deviation = y, y[learned].float().mean(0), y[learned].float().std(0).clamp(min=1e-6)
        if not categorical:
            scaled = (y - mean) / deviation
        middle, spread = x[learned].mean(0), x[learned].std(0).clamp(min=1e-3)
        x = (x - middle) / spread
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            size = choices.size if choices is not None and categorical else y.shape[1]
            network = nn.Sequential(
                nn.Linear(x.shape[1], self.width), nn.ReLU(), nn.Linear(self.width, self.width), nn.ReLU(),
                nn.Linear(self.width, size),
            )  # fmt: skip
        optimiser = torch.optim.Adam(network.parameters(), 1e-3)
        best, least = deepcopy(network.state_dict()), float("inf")
        for update in range(1, self.updates + 1):
            rows = learned[torch.randint(len(learned), (256,), generator=draw)]
            loss = _loss(network(x[rows]), scaled[rows], choices if categorical else None)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if update % 50 == 0 or update == self.updates:
                with torch.no_grad():
                    error = float(_loss(network(x[checked]), scaled[checked], choices if categorical else None))
                if error < least:
                    best, least = deepcopy(network.state_dict()), error
        network.load_state_dict(best)
        with torch.no_grad():
            outputs = network(x)
        if choices is not None and categorical:
            made = choices.best(outputs)
            usual = y[learned].mode(0).values
            right, base = ((made == y)[checked].all(1).float().mean(), (usual == y)[checked].all(1).float().mean())
            explained, better = float(right), bool(right > base or right == 1.0)
        else:
            made = outputs * deviation + mean
            spread_of = (y[checked] - mean).square().mean().clamp(min=1e-12)
            explained = float(1 - (made - y)[checked].square().mean() / spread_of)
            better = explained > 0
        if not better:
            raise LogError(
                f"The {name} of {int(mask.sum())} steps teach nothing of those held out: what a step has before and after it "
                "says no more than the usual one.",
                "Give more of them, or raise past, where they depend on what was earlier.",
            )
        return made, explained


def _loss(outputs: Tensor, targets: Tensor, choices: ActionSpace | None) -> Tensor:
    if choices is None:
        return (outputs - targets).square().mean()
    parts = zip(outputs.split(choices.choices, -1), targets.unbind(-1), strict=True)
    return torch.stack([nn.functional.cross_entropy(part, target) for part, target in parts]).sum()


def _is_missing(action: Any) -> bool:
    return action is None or (isinstance(action, np.ndarray | float) and bool(np.isnan(action).any()))


def _to_world(made: Tensor, actions: ActionSpace) -> list[Any]:
    """Returns actions that worlds take; numbers are clipped to their bounds."""
    space = actions.space
    if isinstance(space, spaces.Box):
        shaped = made.numpy().reshape(-1, *space.shape).astype(space.dtype)
        return list(np.clip(shaped, space.low, space.high))
    return actions.to_world(made)
