"""What a sequence memory is, and two bases that make stepping equal running over time.

The reset convention, everywhere: `starts[b, t]` is True where the observation at t is the first of an episode. The state that
meets it is then the initial one, and nothing from before reaches its output or any later one, in value or in gradient. A world's
`done` at t is `starts` at t + 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from keepworth.episodes.needs import needs_control

import torch
from torch import Tensor, nn

from keepworth.control.scan import scan

State = tuple[Tensor, ...]
"""Real tensors of fixed shape with the batch on axis 0; a complex number is a last axis of two."""


RunMemory = Callable[[Any, Tensor, State], tuple[Tensor, State]]
"""What runs a memory over time or for one step: memory, inputs, state -> outputs, state."""


class SequenceMemory(nn.Module, ABC):
    """A memory over time.

    Attributes:
        input_size: Features of an input.
        output_size: Features of an output.
        context: K, how many of the last inputs it takes at once; 1 for a recurrence.
        reach: How many of the last inputs its outputs can depend on at all; None without bound.
    """

    context: int = 1
    reach: int | None = None

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__()
        self.input_size = input_size
        self.output_size = output_size

    @abstractmethod
    def initial_state(self, batch: int) -> State:
        """The state before any input, for a batch of so many."""

    @abstractmethod
    def forward(
        self, x: Tensor, state: State | None = None, starts: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Run over time.

        Args:
            x: Inputs, [batch, time, input_size].
            state: What an earlier call returned; None for the initial state.
            starts: Where episodes start, [batch, time], Boolean; None for nowhere.
            mask: False where a row is only padding, [batch, time]; padding stands at the end. Its outputs mean nothing, and
                the state that is returned is that of the last row before it.

        Returns:
            Outputs, [batch, time, output_size], and the state after the last step.
        """

    def step(self, x: Tensor, state: State, starts: Tensor | None = None) -> tuple[Tensor, State]:
        """One step: x is [batch, input_size], starts [batch]. It equals `forward` over one step."""
        y, state = self(x.unsqueeze(1), state, None if starts is None else starts.unsqueeze(1))
        return y.squeeze(1), state

    def zeros(self, *shape: int) -> Tensor:
        """Zeros of the type and at the place of this module's parameters."""
        like = next(self.parameters())
        return torch.zeros(shape, dtype=like.dtype, device=like.device)


class SegmentedMemory(SequenceMemory):
    """A memory that runs over long inputs part by part, so that what it computes stays small. It writes `initial_state` and
    `run`, which is exact from one segment to the next.

    Attributes:
        segment: How many steps are run at once.
    """

    segment = 256

    @abstractmethod
    def run(self, x: Tensor, state: State, starts: Tensor | None, mask: Tensor | None) -> tuple[Tensor, State]:
        """`forward` over at most `segment` steps."""

    def forward(
        self, x: Tensor, state: State | None = None, starts: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """See `SequenceMemory.forward`."""
        state = state or self.initial_state(x.shape[0])
        if x.shape[1] <= self.segment:
            return self.run(x, state, starts, mask)
        outputs = []
        count = -(-x.shape[1] // self.segment)
        flags = ([None] * count if begins is None else begins.split(self.segment, 1) for begins in (starts, mask))
        for rows, *of_rows in zip(x.split(self.segment, 1), *flags, strict=True):
            y, state = self.run(rows, state, *of_rows)
            outputs.append(y)
        return torch.cat(outputs, 1), state


class LinearRecurrence(SegmentedMemory):
    """h_t = decay_t * h_{t-1} + write_t, where both depend on the input at t alone, and an output that reads h_t.

    A memory of this form says its `state_shape` and writes `recur` and `read`.

    Attributes:
        state_shape: Of the state of one batch element.
        is_complex: Whether states are complex inside.
    """

    state_shape: tuple[int, ...]
    is_complex: bool = False
    segment = 512

    @abstractmethod
    def recur(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Decay and write, which broadcast to [batch, time, *state_shape], from inputs, [batch, time, input_size]."""

    @abstractmethod
    def read(self, states: Tensor, x: Tensor) -> Tensor:
        """Outputs, [batch, time, output_size], from states, [batch, time, *state_shape], and inputs."""

    def initial_state(self, batch: int) -> State:
        """Zero."""
        return (self.zeros(batch, *self.state_shape, *([2] if self.is_complex else [])),)

    def run(self, x: Tensor, state: State, starts: Tensor | None, mask: Tensor | None) -> tuple[Tensor, State]:
        """See `SegmentedMemory.run`. A start makes the decay zero."""
        (before,) = state
        decay, write = self.recur(x)
        ones = (1,) * len(self.state_shape)
        if starts is not None:
            decay = decay * (~starts).view(*starts.shape, *ones)
        if mask is not None:
            valid = mask.view(*mask.shape, *ones)
            decay, write = torch.where(valid, decay, 1.0), torch.where(valid, write, 0.0)
        states = scan(decay, write, torch.view_as_complex(before) if self.is_complex else before)
        last = states[:, -1]
        return self.read(states, x), (torch.view_as_real(last) if self.is_complex else last,)


class StepRecurrence(SequenceMemory):
    """A memory whose update needs its state: a loop over time. It writes `initial_state` and `cell`."""

    def project(self, x: Tensor) -> Tensor:
        """What of an update needs no state, for all steps at once: [batch, time, input_size] -> [batch, time, ...]."""
        return x

    @abstractmethod
    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One update: what `project` made of an input, [batch, ...], and the state -> output and state."""

    def step(self, x: Tensor, state: State, starts: Tensor | None = None) -> tuple[Tensor, State]:
        """See `SequenceMemory.step`."""
        if starts is not None:
            state = choose(starts, self.initial_state(x.shape[0]), state)
        return self.cell(self.project(x.unsqueeze(1)).squeeze(1), state)

    def forward(
        self, x: Tensor, state: State | None = None, starts: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """See `SequenceMemory.forward`."""
        fresh = self.initial_state(x.shape[0])
        state = state or fresh
        starts = starts if starts is None or mask is None else starts & mask
        restarts = [False] * x.shape[1] if starts is None else starts.any(0).tolist()
        outputs = []
        for time, x_t in enumerate(self.project(x).unbind(1)):
            if starts is not None and restarts[time]:
                state = choose(starts[:, time], fresh, state)
            y, after = self.cell(x_t, state)
            state = after if mask is None else choose(mask[:, time], after, state)
            outputs.append(y)
        return torch.stack(outputs, 1), state


def choose(which: Tensor, one: State, other: State) -> State:
    """For each batch element the state of `one` where `which`, [batch], is True, else that of `other`."""
    return tuple(torch.where(which.view(-1, *(1,) * (a.ndim - 1)), a, b) for a, b in zip(one, other, strict=True))


def detach(state: State) -> State:
    """The same state without its gradient, for the border between two chunks."""
    return tuple(part.detach() for part in state)


class Blocks(SequenceMemory):
    """Memories one above another, each in a block as transformers have it: norm, memory, sum; norm, two layers, sum."""

    def __init__(self, memories: list[SequenceMemory], input_size: int) -> None:
        width = memories[0].output_size
        super().__init__(input_size, width)
        self.embed = nn.Linear(input_size, width)
        self.memories = nn.ModuleList(memories)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in memories)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in memories
        )

    def initial_state(self, batch: int) -> State:
        """The states of all memories, one after another."""
        return tuple(part for memory in self.memories for part in memory.initial_state(batch))  # type: ignore[operator]

    def forward(
        self, x: Tensor, state: State | None = None, starts: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """See `SequenceMemory.forward`."""
        state = state or self.initial_state(x.shape[0])
        return self._run(x, state, lambda memory, y, before: memory(y, before, starts, mask))

    def step(self, x: Tensor, state: State, starts: Tensor | None = None) -> tuple[Tensor, State]:
        """See `SequenceMemory.step`."""
        return self._run(x, state, lambda memory, y, before: memory.step(y, before, starts))

    def _run(self, x: Tensor, state: State, run: RunMemory) -> tuple[Tensor, State]:
        parts = len(state) // len(self.memories)
        after: State = ()
        x = self.embed(x)
        for depth, (norm, memory, layers) in enumerate(zip(self.norms, self.memories, self.layers, strict=True)):
            y, last = run(memory, norm(x), state[depth * parts : (depth + 1) * parts])
            x = x + y
            x = x + layers(x)
            after += last
        return x, after


class Chain(SequenceMemory):
    """One memory after another."""

    def __init__(self, first: SequenceMemory, second: SequenceMemory) -> None:
        super().__init__(first.input_size, second.output_size)
        self.first, self.second = first, second

    def initial_state(self, batch: int) -> State:
        """The state of the first, then that of the second."""
        return self.first.initial_state(batch) + self.second.initial_state(batch)

    def forward(
        self, x: Tensor, state: State | None = None, starts: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """See `SequenceMemory.forward`."""
        state = state or self.initial_state(x.shape[0])
        return self._run(x, state, lambda memory, y, before: memory(y, before, starts, mask))

    def step(self, x: Tensor, state: State, starts: Tensor | None = None) -> tuple[Tensor, State]:
        """See `SequenceMemory.step`."""
        return self._run(x, state, lambda memory, y, before: memory.step(y, before, starts))

    def _run(self, x: Tensor, state: State, run: RunMemory) -> tuple[Tensor, State]:
        parts = len(self.first.initial_state(1))
        y, one = run(self.first, x, state[:parts])
        y, other = run(self.second, y, state[parts:])
        return y, (*one, *other)


def stack(kind: Callable[[int], SequenceMemory], input_size: int, width: int, blocks: int) -> SequenceMemory:
    """Memories of a kind, made by `kind(input_size)`, in so many blocks; with blocks = 0 one alone."""
    return Blocks([kind(width) for _ in range(blocks)], input_size) if blocks else kind(input_size)
