"""The interface of sequence memories, and two base classes for which stepping equals running over time.

All follow one convention of resets: `starts[b, t]` is True where the observation at t is the first of an episode. The state
before it is then the initial one, and nothing earlier affects its output or any later one, in value or in gradient. A world's
`done` at t is `starts` at t + 1."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from keepworth.base.needs import needs_control

import torch
from torch import Tensor, nn

from keepworth.control.scan import scan

State = tuple[Tensor, ...]
"""Real tensors of fixed shape with the batch on axis 0; a complex number is a last axis of two."""


RunMemory = Callable[[Any, Tensor, State], tuple[Tensor, State]]
"""Runs a memory over time or for one step: maps (memory, inputs, state) to (outputs, state)."""


class SequenceMemory(nn.Module, ABC):
    """A memory over time.

    Attributes:
        input_size: Features of an input.
        output_size: Features of an output.
        state_shapes: The shape of each part of the state of one batch element, for states that are zero at first.
        context: K, how many of the last inputs it takes at once; 1 for a recurrence.
        reach: How many of the last inputs its outputs can depend on at all; None without bound.
    """

    state_shapes: Sequence[tuple[int, ...]] = ()
    context: int = 1
    reach: int | None = None

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__()
        self.input_size = input_size
        self.output_size = output_size

    def initial_state(self, batch: int) -> State:
        """Returns the state before any input, for a batch of this size."""
        return tuple(self.zeros(batch, *shape) for shape in self.state_shapes)

    @abstractmethod
    def forward(
        self, x: Tensor, state: State | None = None, starts: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Runs over time.

        Args:
            x: Inputs, [batch, time, input_size].
            state: The state that an earlier call returned; None for the initial state.
            starts: Where episodes start, [batch, time], Boolean; None for nowhere.
            mask: False where a row is only padding, [batch, time]; padding is at the end. Its outputs are meaningless, and the
                returned state is that of the last row before it.

        Returns:
            Outputs, [batch, time, output_size], and the state after the last step.
        """

    def step(self, x: Tensor, state: State, starts: Tensor | None = None) -> tuple[Tensor, State]:
        """Runs one step. It equals `forward` over one step.

        Args:
            x: Inputs, [batch, input_size].
            state: The state that the step before returned, or `initial_state`.
            starts: Where episodes start with this step, [batch], Boolean; None for nowhere.
        """
        y, state = self(x.unsqueeze(1), state, None if starts is None else starts.unsqueeze(1))
        return y.squeeze(1), state

    def zeros(self, *shape: int) -> Tensor:
        """Returns zeros of the type and on the device of this module's parameters."""
        like = next(self.parameters())
        return torch.zeros(shape, dtype=like.dtype, device=like.device)


class SegmentedMemory(SequenceMemory):
    """A memory that runs over long inputs part by part, to bound the memory of a computation.

    A subclass implements `run`, which must be exact from one segment to the next.

    Attributes:
        segment: How many steps are run at once.
    """

    segment = 256

    @abstractmethod
    def run(self, x: Tensor, state: State, starts: Tensor | None, mask: Tensor | None) -> tuple[Tensor, State]:
        """Runs `forward` over at most `segment` steps.

        Args:
            x: Inputs, [batch, steps, input_size].
            state: The state after the segment before.
            starts: Where episodes start, [batch, steps], Boolean; None for nowhere.
            mask: False where a row is only padding, [batch, steps]; None for no padding.
        """

    def forward(
        self, x: Tensor, state: State | None = None, starts: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
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

    A subclass sets its `state_shape` and implements `recur` and `read`.

    Attributes:
        state_shape: The shape of the state of one batch element.
        is_complex: Whether states are complex inside.
    """

    state_shape: tuple[int, ...]
    is_complex: bool = False
    segment = 512

    @abstractmethod
    def recur(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns decay and write, which broadcast to [batch, time, *state_shape], from inputs, [batch, time, input_size]."""

    @abstractmethod
    def read(self, states: Tensor, x: Tensor) -> Tensor:
        """Returns outputs, [batch, time, output_size], from states, [batch, time, *state_shape], and inputs."""

    def initial_state(self, batch: int) -> State:
        return (self.zeros(batch, *self.state_shape, *([2] if self.is_complex else [])),)

    def run(self, x: Tensor, state: State, starts: Tensor | None, mask: Tensor | None) -> tuple[Tensor, State]:
        """Runs at most `segment` steps. A start makes the decay zero."""
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
    """A memory whose update needs its state, in a loop over time. A subclass implements `cell`."""

    def project(self, x: Tensor) -> Tensor:
        """Computes the part of an update that needs no state, for all steps: [batch, time, input_size] -> [batch, time, ...]."""
        return x

    @abstractmethod
    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Takes one update, from the projected input, [batch, ...], and the state; returns output and state."""

    def step(self, x: Tensor, state: State, starts: Tensor | None = None) -> tuple[Tensor, State]:
        if starts is not None:
            state = choose(starts, self.initial_state(x.shape[0]), state)
        return self.cell(self.project(x.unsqueeze(1)).squeeze(1), state)

    def forward(
        self, x: Tensor, state: State | None = None, starts: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
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
    """Returns one of two states for each batch element.

    Args:
        which: True where `one` is taken, [batch].
        one: A state, whose parts begin with the batch.
        other: The state that is taken elsewhere, with the same shapes.
    """
    return tuple(torch.where(which.view(-1, *(1,) * (a.ndim - 1)), a, b) for a, b in zip(one, other, strict=True))


def detach(state: State) -> State:
    """Returns the state without its gradient, for the border between two chunks."""
    return tuple(part.detach() for part in state)


class Blocks(SequenceMemory):
    """Stacked memories, each in a block as in transformers: norm, memory, sum; norm, two layers, sum."""

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
        return tuple(part for memory in self.memories for part in memory.initial_state(batch))  # type: ignore[operator]

    def forward(
        self, x: Tensor, state: State | None = None, starts: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        state = state or self.initial_state(x.shape[0])
        return self._run(x, state, lambda memory, y, before: memory(y, before, starts, mask))

    def step(self, x: Tensor, state: State, starts: Tensor | None = None) -> tuple[Tensor, State]:
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
    """Two memories, the second of which reads the outputs of the first."""

    def __init__(self, first: SequenceMemory, second: SequenceMemory) -> None:
        super().__init__(first.input_size, second.output_size)
        self.first, self.second = first, second

    def initial_state(self, batch: int) -> State:
        return self.first.initial_state(batch) + self.second.initial_state(batch)

    def forward(
        self, x: Tensor, state: State | None = None, starts: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        state = state or self.initial_state(x.shape[0])
        return self._run(x, state, lambda memory, y, before: memory(y, before, starts, mask))

    def step(self, x: Tensor, state: State, starts: Tensor | None = None) -> tuple[Tensor, State]:
        return self._run(x, state, lambda memory, y, before: memory.step(y, before, starts))

    def _run(self, x: Tensor, state: State, run: RunMemory) -> tuple[Tensor, State]:
        parts = len(self.first.initial_state(1))
        y, one = run(self.first, x, state[:parts])
        y, other = run(self.second, y, state[parts:])
        return y, (*one, *other)


def stack(kind: Callable[[int], SequenceMemory], input_size: int, width: int, blocks: int) -> SequenceMemory:
    """Stacks memories. Each block has a memory of its own.

    Args:
        kind: It makes a memory for inputs of a size.
        input_size: The features of an input of the whole.
        width: The features between blocks.
        blocks: The number of blocks; 0 makes a single memory without blocks.
    """
    return Blocks([kind(width) for _ in range(blocks)], input_size) if blocks else kind(input_size)
