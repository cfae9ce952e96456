"""Exploration bonuses that are added to the reward of a world: E3B, NovelD and their product.

    e3b      b_t = phi_{t+1}^T C^-1 phi_{t+1},  C = ridge I + sum of phi phi^T over the episode so far
    noveld   b_t = max(0, N(o_{t+1}) - 0.5 N(o_t)) if the episode sees o_{t+1} for the first time, else 0
    both     e3b * max(0, N(o_{t+1}) - 0.5 N(o_t))

phi is computed by a network that learns which action led from one observation to the next. N is the squared error with which a
network predicts the output of another, untrained one for an observation. A bonus is divided by its running deviation. The step
that ends an episode earns none: the observation after it belongs to another episode.
Source: Henaff et al., "Exploration via elliptical episodic bonuses", arXiv 2210.05805; Zhang et al., "NovelD: a simple yet
effective exploration criterion", NeurIPS 2021; the product: Henaff et al., "A study of global and episodic bonuses for
exploration in contextual MDPs", arXiv 2306.03236."""

from __future__ import annotations

from hashlib import blake2b

from keepworth.base.needs import needs_control

import torch
from torch import Tensor, nn

from keepworth.control.network import layers
from keepworth.control.spaces import ActionSpace

RIDGE, SCALE = 0.1, 0.5
"""The ridge of C, and the factor of the previous observation's novelty, which is subtracted."""
HIDDEN, FEATURES, PARTS = 64, 32, 4
"""Widths of the networks, and the number of minibatches of a rollout."""


class Ellipsoid(nn.Module):
    """C^-1 of each world's episode.

    Attributes:
        inverse: [worlds, size, size].
    """

    inverse: Tensor

    def __init__(self, count: int, size: int) -> None:
        super().__init__()
        self.register_buffer("inverse", (torch.eye(size) / RIDGE).repeat(count, 1, 1))

    def visit(self, features: Tensor, starts: Tensor) -> Tensor:
        """Returns the bonuses of features, [worlds, size], which then count as visited. `starts` marks worlds whose episode
        begins. The update is that of Sherman and Morrison: u = C^-1 phi, C^-1 <- C^-1 - u u^T / (1 + phi^T u)."""
        fresh = torch.eye(features.shape[1]) / RIDGE
        inverse = torch.where(starts[:, None, None], fresh, self.inverse)
        u = (inverse @ features.unsqueeze(2)).squeeze(2)
        bonus = (features * u).sum(1)
        self.inverse.copy_(inverse - u.unsqueeze(2) * u.unsqueeze(1) / (1 + bonus)[:, None, None])
        return bonus


class FirstVisits(nn.Module):
    """The observations that each world's episode has seen."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.seen: list[set[int]] = [set() for _ in range(count)]

    def visit(self, observations: Tensor, starts: Tensor) -> Tensor:
        """Returns 1 where an observation, [worlds, size], occurs for the first time in its episode, else 0."""
        first = torch.zeros(len(starts))
        for world, (row, start) in enumerate(zip(observations.numpy(), starts.tolist(), strict=True)):
            visited = self.seen[world]
            if start:
                visited.clear()
            code = int.from_bytes(blake2b(row.tobytes(), digest_size=7).digest(), "big")
            first[world] = code not in visited
            visited.add(code)
        return first

    def get_extra_state(self) -> list[list[int]]:
        """Returns the state for a checkpoint."""
        return [sorted(visited) for visited in self.seen]

    def set_extra_state(self, state: list[list[int]]) -> None:
        """Restores the state of a checkpoint."""
        self.seen = [set(visited) for visited in state]


class Bonus(nn.Module):
    """The bonus of a run, with the networks that it trains.

    Attributes:
        sums: The number of bonuses so far, their sum and the sum of their squares.
    """

    sums: Tensor

    def __init__(self, kind: str, count: int, observation_size: int, actions: ActionSpace) -> None:
        """Makes the bonus `kind`, "e3b", "noveld" or "both", for `count` worlds."""
        super().__init__()
        self.actions = actions
        self.elliptical, self.novelty = kind != "noveld", kind != "e3b"
        self.episode: Ellipsoid | FirstVisits = FirstVisits(count)
        if self.elliptical:
            self.episode = Ellipsoid(count, FEATURES)
            self.encoder = layers(observation_size, HIDDEN, FEATURES)
            self.action = layers(2 * FEATURES, HIDDEN, actions.size)
        if self.novelty:
            self.target = layers(observation_size, HIDDEN, FEATURES).requires_grad_(False)
            self.predictor = layers(observation_size, HIDDEN, HIDDEN, FEATURES)
        self.register_buffer("sums", torch.zeros(3, dtype=torch.float64))
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        self.optimiser = torch.optim.Adam(trained, 1e-3)

    @torch.no_grad()
    def visit(self, observations: Tensor, starts: Tensor) -> Tensor:
        """Returns the part of the bonus that is per episode, [worlds], for a step of all worlds."""
        return self.episode.visit(self.encoder(observations) if self.elliptical else observations, starts)

    @torch.no_grad()
    def pay(self, observations: Tensor, starts: Tensor) -> Tensor:
        """Returns the bonuses of the steps between observations, [worlds, steps].

        Args:
            observations: [worlds, steps + 1, size]. The first of them was visited already.
            starts: Where they begin an episode, [worlds, steps + 1].
        """
        after = zip(observations[:, 1:].unbind(1), starts[:, 1:].unbind(1), strict=True)
        bonus = torch.stack([self.visit(*step) for step in after], 1)
        if self.novelty:
            error = self.error(observations)
            bonus = bonus * (error[:, 1:] - SCALE * error[:, :-1]).clamp(min=0.0)
        going_on = ~starts[:, 1:]
        paid = bonus[going_on].double()
        self.sums += torch.stack([torch.tensor(float(len(paid))), paid.sum(), paid.square().sum()])
        count, total, squares = self.sums.tolist()
        deviation = max(squares / max(count, 1) - (total / max(count, 1)) ** 2, 0.0) ** 0.5
        return bonus * going_on / (deviation + 1e-8)

    def error(self, observations: Tensor) -> Tensor:
        """Returns N, [...], of observations, [..., size]."""
        return (self.predictor(observations) - self.target(observations)).square().mean(-1)

    def learn(self, observations: Tensor, starts: Tensor, actions: Tensor, draw: torch.Generator) -> None:
        """Trains on a rollout once.

        Args:
            observations: [worlds, steps + 1, size], as for `pay`.
            starts: Where they begin an episode, [worlds, steps + 1].
            actions: The actions between them, [worlds, steps, parts].
            draw: The source of the order in which steps are trained.
        """
        before, after = observations[:, :-1].flatten(0, 1), observations[:, 1:].flatten(0, 1)
        going_on, actions_taken = ~starts[:, 1:].flatten(), actions.flatten(0, 1)
        log_std = torch.zeros(0 if self.actions.categorical else self.actions.size)
        for rows in torch.randperm(len(before), generator=draw).tensor_split(PARTS):
            loss = torch.zeros(())
            if self.elliptical:
                ends = torch.cat([self.encoder(before[rows]), self.encoder(after[rows])], 1)
                log_prob, _ = self.actions.judge(self.action(ends), log_std, actions_taken[rows])
                loss = loss - (log_prob * going_on[rows]).mean()
            if self.novelty:
                loss = loss + self.error(before[rows]).mean()
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
