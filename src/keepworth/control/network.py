"""Networks with a memory over time, and the one of PPO: a policy and a value function with one memory for both."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from keepworth.base.needs import needs_control

import numpy as np
import torch
from torch import Tensor, nn

from keepworth.control import memory
from keepworth.control.memory_base import State
from keepworth.control.settings import PpoSettings, RunSettings
from keepworth.control.spaces import ActionSpace


def layers(*sizes: int) -> nn.Sequential:
    """Makes linear layers with tanh between them and orthogonal initial weights."""
    parts: list[nn.Module] = []
    for before, after in pairwise(sizes):
        linear = nn.Linear(before, after)
        nn.init.orthogonal_(linear.weight, 2**0.5)
        nn.init.zeros_(linear.bias)
        parts += [linear, nn.Tanh()]
    return nn.Sequential(*parts[:-1])


class HistoryNetwork(nn.Module):
    """A network that sees all inputs so far: input -> encoder -> memory.

    An input is [features of the observation; features of the previous action; the previous reward; 1 at the start of an episode],
    of which all but the first are optional."""

    def __init__(self, observation_size: int, actions: ActionSpace, settings: RunSettings) -> None:
        """Makes the encoder and the memory that the settings ask for, with fresh weights."""
        super().__init__()
        self.actions, width = actions, settings.width
        self.action_input, self.reward_input = settings.action_input, settings.reward_input
        size = observation_size + (actions.features + 1 if self.action_input else 0) + self.reward_input
        self.input_size = size
        self.encoder = nn.Sequential(layers(size, width), nn.Tanh()) if settings.encoder else nn.Identity()
        memory_input = width if settings.encoder else size
        self.memory = memory(settings.memory, memory_input, width, **settings.memory_settings)

    def input(self, features: Tensor, action: Tensor, reward: Tensor, starts: Tensor) -> Tensor:
        """Returns the inputs, [..., input_size].

        Args:
            features: The observations, [..., size].
            action: The actions before them, [..., parts]; those before a start do not count.
            reward: The rewards before them, [...]; those before a start do not count.
            starts: Where an episode begins, [...], Boolean.
        """
        parts = [features]
        going_on = (~starts).unsqueeze(-1)
        if self.action_input:
            parts += [self.actions.describe(action) * going_on, starts.unsqueeze(-1).float()]
        if self.reward_input:
            parts.append(reward.unsqueeze(-1) * going_on)
        return torch.cat(parts, -1)


class ActorCritic(HistoryNetwork):
    """A network: input -> encoder -> memory -> policy and value, each of two layers."""

    def __init__(self, observation_size: int, actions: ActionSpace, settings: PpoSettings) -> None:
        """Makes the network that the settings ask for, with fresh weights."""
        super().__init__(observation_size, actions, settings)
        width = settings.width
        self.policy = layers(width, width, actions.size)
        self.value = layers(width, width, 1)
        self.log_std = nn.Parameter(torch.zeros(0 if actions.categorical else actions.size))
        with torch.no_grad():
            last = self.policy[-1].weight
            assert isinstance(last, Tensor)
            last.mul_(0.01)

    def forward(self, x: Tensor, state: State, starts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the policy's outputs, [batch, time, actions.size], values, [batch, time], and the memory's outputs.

        Args:
            x: What `input` returned, [batch, time, input_size].
            state: The memory's state before the first step.
            starts: Where an episode begins, [batch, time], Boolean.
        """
        y, _ = self.memory(self.encoder(x), state, starts)
        return self.policy(y), self.value(y).squeeze(-1), y

    def step(self, x: Tensor, state: State, starts: Tensor) -> tuple[Tensor, Tensor, State]:
        """Returns outputs and values for one step, and the state after it.

        Args:
            x: What `input` returned, [batch, input_size].
            state: The memory's state before the step.
            starts: Where an episode begins, [batch], Boolean.
        """
        y, state = self.memory.step(self.encoder(x), state, starts)
        return self.policy(y), self.value(y).squeeze(-1), state


Carry = tuple[State, Tensor, Tensor]
"""The state of a policy between steps: the memory's state, the previous action, the previous reward."""


def start_carry(network: Any, batch: int) -> Carry:
    """Returns the state before the first step of episodes."""
    actions = network.actions
    kind = torch.long if actions.categorical else torch.float32
    return network.memory.initial_state(batch), torch.zeros(batch, actions.parts, dtype=kind), torch.zeros(batch)


def as_tensor(array: Any) -> Tensor:
    """Returns a tensor that shares the array's memory where possible."""
    return torch.from_numpy(np.ascontiguousarray(array))
