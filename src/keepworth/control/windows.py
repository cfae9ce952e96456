"""The last W rows before a step, with resets, for frame stacks and attention."""

from __future__ import annotations

from keepworth.base.needs import needs_control

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from keepworth.control.memory_base import SegmentedMemory, State


class Window:
    """Which rows each step of a chunk sees: itself and at most W before it, of its own episode.

    Rows are the W that the state brings, then those of the chunk.

    Attributes:
        seen: [batch, time, W + time], Boolean.
        distance: How many steps a row lies before a step, [time, W + time].
        valid: Which of the last W rows belong to the current episode, [batch, W]; the state of the next chunk.
    """

    def __init__(self, valid: Tensor, time: int, starts: Tensor | None = None, mask: Tensor | None = None) -> None:
        """Computes the window. `valid` [batch, W] of 0 or 1 comes from the state; for starts and mask see
        `SequenceMemory.forward`."""
        batch, self.size = valid.shape
        if starts is None:
            starts = torch.zeros(batch, time, dtype=torch.bool, device=valid.device)
        mask = torch.ones_like(starts) if mask is None else mask
        episode = starts.long().cumsum(1)
        row_episode = torch.cat([episode.new_zeros(batch, self.size), episode], 1)
        row_valid = torch.cat([valid > 0, mask], 1)
        rows = torch.arange(self.size + time, device=valid.device)
        self.distance = rows[self.size :].unsqueeze(1) - rows
        near = (self.distance >= 0) & (self.distance <= self.size)
        there = row_valid.unsqueeze(1) | (self.distance == 0)  # padding sees itself, so that its numbers are finite
        self.seen = near & there & (row_episode.unsqueeze(1) == episode.unsqueeze(2))
        length = mask.sum(1, keepdim=True)
        self.last = length + rows[: self.size]
        goes_on = row_valid & (row_episode == row_episode.gather(1, length + self.size - 1))
        self.valid = goes_on.gather(1, self.last).to(valid.dtype)

    def keep(self, rows: Tensor) -> Tensor:
        """Returns the W rows of [batch, W + time, features] that the next chunk needs."""
        return rows.gather(1, self.last.unsqueeze(2).expand(-1, -1, rows.shape[2]))


class ShortConvolution(SegmentedMemory):
    """Sums each feature over the last few steps with learned weights, then applies silu, as a layer before recurrences. Source:
    Gu and Dao, "Mamba: linear-time sequence modeling with selective state spaces", arXiv 2312.00752."""

    def __init__(self, size: int, steps: int) -> None:
        super().__init__(size, size)
        self.weight = nn.Parameter((torch.rand(steps, size) - 0.5) * 2 * steps**-0.5)
        self.bias = nn.Parameter(torch.zeros(size))

    def initial_state(self, batch: int) -> State:
        """Returns the rows before the first step, and which of them exist."""
        before = len(self.weight) - 1
        return self.zeros(batch, before, self.input_size), self.zeros(batch, before)

    def run(self, x: Tensor, state: State, starts: Tensor | None, mask: Tensor | None) -> tuple[Tensor, State]:
        cache, valid = state
        time = x.shape[1]
        window = Window(valid, time, starts, mask)
        rows = torch.cat([cache, x], 1)
        steps = torch.arange(time, device=x.device)
        total: Tensor = self.bias
        for back, weight in enumerate(self.weight.flip(0).unbind(0)):
            position = steps + len(self.weight) - 1 - back
            total = total + torch.where(window.seen[:, steps, position].unsqueeze(2), rows[:, position], 0.0) * weight
        return silu(total), (window.keep(rows), window.valid)
