"""Auxiliary losses that make a memory predict the next observation and reward, or its own later outputs.

    observation   |P(y_t, a_t) - o_{t+1}|^2 + (R(y_t, a_t) - r_t)^2
    latent        mean over k of |P_k(y_t, a_t) - sg(y_{t+k})|^2  +  exp(-|y_i - y_j|) over pairs of steps

y is the memory's output, a the action, sg stops the gradient; the exponential repels outputs of different steps, without which
all would become the same. Squares are means over features. A step whose target lies in another episode or beyond the chunk
predicts only its reward. The heads P and R have an optimiser of their own, so that with weight 0 the network learns exactly as
without them.
Source: "Predictive auxiliary objectives in deep RL mimic learning in the brain", arXiv 2310.06089; predicting observations and
rewards is older than that."""

from __future__ import annotations

from keepworth.base.needs import needs_control

import torch
from torch import Tensor, nn

from keepworth.control.network import layers
from keepworth.control.spaces import ActionSpace

AHEAD = (1, 5)
"""k, how many steps ahead `latent` predicts."""
HIDDEN = 64


class Prediction(nn.Module):
    """The heads of a run's prediction, and its loss.

    Attributes:
        optimiser: The optimiser of the heads; the memory learns with the network.
    """

    def __init__(
        self, kind: str, width: int, observation_size: int, actions: ActionSpace, learning_rate: float = 1e-3
    ) -> None:
        """Makes the heads of `kind`, "observation" or "latent"; `width` is that of the memory's output."""
        super().__init__()
        self.actions, self.latent = actions, kind == "latent"
        size = width + actions.features
        self.heads = nn.ModuleList(
            [layers(size, HIDDEN, width) for _ in AHEAD]
            if self.latent
            else [layers(size, HIDDEN, observation_size), layers(size, HIDDEN, 1)]
        )
        self.optimiser = torch.optim.Adam(self.parameters(), learning_rate)

    def loss(self, y: Tensor, actions: Tensor, observations: Tensor, rewards: Tensor, starts: Tensor) -> Tensor:
        """Returns the loss of a batch of chunks.

        Args:
            y: The memory's outputs, [batch, time, width].
            actions: The actions, [batch, time, parts].
            observations: The observations, [batch, time, features].
            rewards: The world's rewards for the actions, [batch, time].
            starts: Where episodes begin, [batch, time].
        """
        inputs = torch.cat([y, self.actions.describe(actions)], -1)
        losses = []
        for head, (ahead, target) in zip(self.heads, self.targets(y, observations, rewards), strict=True):
            error = (head(inputs[:, : target.shape[1]]) - target).square().mean(-1)
            same = same_episode(starts, ahead)
            losses.append((error * same).sum() / same.sum().clamp(min=1))
        if not self.latent:
            return torch.stack(losses).sum()
        rows = y.flatten(0, 1)
        repulsion = (-(rows - rows.roll(len(rows) // 2, 0)).norm(dim=1)).exp().mean()
        return torch.stack(losses).mean() + repulsion

    def targets(self, y: Tensor, observations: Tensor, rewards: Tensor) -> list[tuple[int, Tensor]]:
        """Returns for each head how many steps ahead its target lies, and the targets that lie in the chunk.

        Args:
            y: The memory's outputs, [batch, time, width], which a latent prediction has for targets.
            observations: [batch, time, size].
            rewards: The reward of each step, [batch, time].
        """
        if self.latent:
            return [(ahead, y[:, ahead:].detach()) for ahead in AHEAD]
        return [(1, observations[:, 1:]), (0, rewards.unsqueeze(-1))]


def same_episode(starts: Tensor, ahead: int) -> Tensor:
    """Whether a step and the one `ahead` steps later are in one episode, [batch, time - ahead]; starts: [batch, time]."""
    episode = starts.long().cumsum(1)
    return episode[:, ahead:] == episode[:, : max(episode.shape[1] - ahead, 0)]
