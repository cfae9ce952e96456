"""The networks of off-policy learners: an actor and critics, each with a memory of its own.

Beside the memory's output the heads see the current observation. Separate memories and that shortcut follow Ni et al., "Recurrent
model-free RL can be a strong baseline for many POMDPs", arXiv 2110.05038."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

from keepworth.base.needs import needs_control

import torch
from torch import Tensor, nn

from keepworth.control.memory_base import SequenceMemory, State
from keepworth.control.network import HistoryNetwork
from keepworth.control.settings import OffPolicySettings
from keepworth.control.spaces import ActionSpace


class Ensemble(nn.Module):
    """Networks of equal layers with ReLU between them, which are evaluated together.

    The last layer begins near zero, as in Lillicrap et al., arXiv 1509.02971, so that no action begins at a bound."""

    def __init__(self, count: int, *sizes: int) -> None:
        """Makes `count` networks whose layers have these sizes."""
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for depth, (before, after) in enumerate(pairwise(sizes), 2):
            bound = 3e-3 if depth == len(sizes) else before**-0.5
            self.weights.append(nn.Parameter(torch.empty(count, before, after).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(count, 1, after).uniform_(-bound, bound)))

    def forward(self, x: Tensor, frozen: bool = False) -> Tensor:
        """Returns outputs, [count, ..., last size].

        Args:
            x: Inputs, [..., first size].
            frozen: Whether gradients reach the inputs alone, and not the weights.
        """
        y = x.reshape(1, -1, x.shape[-1]).expand(len(self.weights[0]), -1, -1)
        for depth, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if frozen:
                weight, bias = weight.detach(), bias.detach()
            y = torch.baddbmm(bias, y.relu() if depth else y, weight)
        return y.unflatten(1, x.shape[:-1])


class History(HistoryNetwork):
    """A network over histories whose heads see the memory's output and the current observation."""

    def __init__(self, observation_size: int, actions: ActionSpace, settings: OffPolicySettings) -> None:
        """Makes the encoder and the memory that the settings ask for, with fresh weights."""
        super().__init__(observation_size, actions, settings)
        self.observation_size = observation_size
        self.head_input = settings.width + observation_size

    def remember(self, x: Tensor, state: State, starts: Tensor) -> Tensor:
        """Returns what heads see of each step, [batch, time, head_input].

        Args:
            x: What `input` returned, [batch, time, input_size].
            state: The memory's state before the first step.
            starts: Where an episode begins, [batch, time], Boolean.
        """
        y, _ = self.memory(self.encoder(x), state, starts)
        return torch.cat([y, x[..., : self.observation_size]], -1)


class Actor(History):
    """input -> encoder -> memory -> policy."""

    log_std: Tensor

    def __init__(self, observation_size: int, actions: ActionSpace, settings: OffPolicySettings) -> None:
        """Makes the network that the settings ask for, with fresh weights."""
        super().__init__(observation_size, actions, settings)
        self.policy = Ensemble(1, self.head_input, settings.width, settings.width, actions.size)
        self.register_buffer("log_std", torch.zeros(0))

    def forward(self, x: Tensor, state: State, starts: Tensor) -> Tensor:
        """Returns the policy's outputs, [batch, time, actions.size].

        Args:
            x: What `input` returned, [batch, time, input_size].
            state: The memory's state before the first step.
            starts: Where an episode begins, [batch, time], Boolean.
        """
        outputs: Tensor = self.policy(self.remember(x, state, starts))
        return outputs[0]

    def step(self, x: Tensor, state: State, starts: Tensor) -> tuple[Tensor, Tensor, State]:
        """Returns outputs for one step, zeros in the place of the value that an actor does not have, and the state after it.

        Args:
            x: What `input` returned, [batch, input_size].
            state: The memory's state before the step.
            starts: Where an episode begins, [batch], Boolean.
        """
        y, state = self.memory.step(self.encoder(x), state, starts)
        outputs = self.policy(torch.cat([y, x[..., : self.observation_size]], -1))
        return outputs[0], x.new_zeros(x.shape[0]), state


class StackedCritics(nn.Module):
    """A policy of earlier critics: softmax(sum_i w_i Q_{k-i} / temperature), where Q_k are the newest that were added.

    With w_i = (1 - decay) decay^i / (1 - decay^M), i < M, it is the policy of mirror descent whose sum over all critics was cut
    to the last M, such that the weights add up to the same. It has no weights of its own that learn."""

    newest: Tensor
    count: Tensor
    log_std: Tensor

    def __init__(self, observation_size: int, actions: ActionSpace, settings: OffPolicySettings) -> None:
        """Makes room for the critics. Before one is added, all choices are as likely."""
        super().__init__()
        size, decay = settings.stack or 1, settings.decay or 0.0
        self.actions, self.temperature = actions, max(settings.temperature or 0.0, 1e-8)
        copies = [Critics(observation_size, actions, settings).requires_grad_(False) for _ in range(size)]
        self.copies = nn.ModuleList(copies)
        self.input_size = copies[0].input_size
        self.encoder, self.memory = nn.Identity(), _StackedMemory(copies[0].memory, size)
        self.observation_size = observation_size
        self.weights = [(1 - decay) * decay**place / (1 - decay**size) for place in range(size)]
        self.register_buffer("log_std", torch.zeros(0))
        self.register_buffer("newest", torch.tensor(size - 1))
        self.register_buffer("count", torch.tensor(0))

    def input(self, features: Tensor, action: Tensor, reward: Tensor, starts: Tensor) -> Tensor:
        """Returns the inputs; see `HistoryNetwork.input`.

        Args:
            features: The observations, [..., size].
            action: The actions before them, [..., parts].
            reward: The rewards before them, [...].
            starts: Where an episode begins, [...], Boolean.
        """
        return self._copy(0).input(features, action, reward, starts)

    def _copy(self, place: int) -> Critics:
        return cast(Critics, self.copies[place])

    def add(self, critics: Critics) -> None:
        """Adds a copy of critics, in the place of the oldest ones."""
        size = len(self.copies)
        self.newest, self.count = (self.newest + 1) % size, (self.count + 1).clamp(max=size)
        self.copies[int(self.newest)].load_state_dict(critics.state_dict())

    def forward(self, x: Tensor, state: State, starts: Tensor) -> Tensor:
        """Returns the policy's logits, [batch, time, choices]; see `Actor.forward`.

        Args:
            x: What `input` returned, [batch, time, input_size].
            state: The memories' states before the first step, with an axis for the copies after that of the batch.
            starts: Where an episode begins, [batch, time], Boolean.
        """
        logits = x.new_zeros(*x.shape[:-1], self.actions.size)
        for weight, place in self._places():
            critics = self._copy(place)
            memories = critics.remember(x, tuple(of[:, place] for of in state), starts)
            logits = logits + weight * critics.all_values(memories).mean(0)
        return logits / self.temperature

    def step(self, x: Tensor, state: State, starts: Tensor) -> tuple[Tensor, Tensor, State]:
        """Returns logits for one step, zeros in the place of values, and the state after it; see `Actor.step`.

        Args:
            x: What `input` returned, [batch, input_size].
            state: The memories' states before the step.
            starts: Where an episode begins, [batch], Boolean.
        """
        logits, after = x.new_zeros(len(x), self.actions.size), [of.clone() for of in state]
        for weight, place in self._places():
            critics = self._copy(place)
            y, moved = critics.memory.step(critics.encoder(x), tuple(of[:, place] for of in state), starts)
            for of, new in zip(after, moved, strict=True):
                of[:, place] = new
            values = critics.all_values(torch.cat([y, x[..., : self.observation_size]], -1))
            logits = logits + weight * values.mean(0)
        return logits / self.temperature, x.new_zeros(len(x)), tuple(after)

    def _places(self) -> list[tuple[float, int]]:
        """Returns the weights and the places of the copies that there are, the newest first."""
        newest, size = int(self.newest), len(self.copies)
        return [(weight, (newest - i) % size) for i, weight in enumerate(self.weights[: int(self.count)])]


class _StackedMemory(nn.Module):
    """Gives the states of several memories of a kind as one."""

    def __init__(self, memory: SequenceMemory, size: int) -> None:
        super().__init__()
        self.of, self.size, self.context, self.reach = [memory], size, memory.context, memory.reach

    def initial_state(self, batch: int) -> State:
        """Returns the states before any input, [batch, memories, ...]."""
        return tuple(part.unsqueeze(1).repeat_interleave(self.size, 1) for part in self.of[0].initial_state(batch))


class Critics(History):
    """input -> encoder -> memory -> several heads, each of which estimates the value of an action, or of all choices."""

    def __init__(self, observation_size: int, actions: ActionSpace, settings: OffPolicySettings) -> None:
        """Makes the networks that the settings ask for, with fresh weights."""
        super().__init__(observation_size, actions, settings)
        width, chosen = settings.width, actions.categorical
        sizes = (self.head_input + (0 if chosen else actions.parts), width, width, actions.size if chosen else 1)
        self.heads = Ensemble(settings.critics or 1, *sizes)
        if settings.learner == "iql":
            self.states = Ensemble(1, self.head_input, width, width, 1)

    def values(self, memories: Tensor, action: Tensor, frozen: bool = False) -> Tensor:
        """Returns each critic's values of actions, [critics, ...].

        Args:
            memories: What `remember` returned, [..., head_input].
            action: The actions, [..., parts].
            frozen: Whether gradients reach the actions alone.
        """
        if self.actions.categorical:
            values = self.all_values(memories)
            return values.gather(-1, action.unsqueeze(0).expand(len(values), *action.shape)).squeeze(-1)
        values = self.heads(torch.cat([memories, action], -1), frozen)
        return values.squeeze(-1)

    def state_values(self, memories: Tensor) -> Tensor:
        """Returns the values of histories, [...], which a learner with an expectile has."""
        values: Tensor = self.states(memories)
        return values[0].squeeze(-1)

    def all_values(self, memories: Tensor) -> Tensor:
        """Returns each critic's values of all choices, [critics, ..., choices]."""
        values: Tensor = self.heads(memories)
        return values
