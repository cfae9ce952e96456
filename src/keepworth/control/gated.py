"""LSTM and GRU by PyTorch's kernels, with episodes that start inside a chunk.

The kernels have no resets. Before a step at which an episode starts, one more step is inserted whose input closes the gates, so
that the state after it is exactly zero and no gradient passes; in the padding at the end the input keeps the state exactly. Both
use two more input columns, which put `CLOSE` or `OPEN` into the gates. The kernel runs once, over little more than the chunk."""

from __future__ import annotations

from abc import abstractmethod

from keepworth.base.needs import needs_control

import torch
from torch import Tensor, nn

from keepworth.control.memory_base import SequenceMemory, State, choose

OPEN, CLOSE = 1e4, -1e4
"""Added to a gate before its sigmoid, which is then exactly 1 or 0."""


class GatedMemory(SequenceMemory):
    """A single layer whose output is the first part of its state. A subclass sets the numbers of `gates` and of `parts` of the
    state, and implements `run`, `cell` and `commands`."""

    gates: int
    parts: int

    def __init__(self, input_size: int, width: int) -> None:
        super().__init__(input_size, width)
        self.input_weight = nn.Parameter(torch.empty(self.gates * width, input_size))
        self.state_weight = nn.Parameter(torch.empty(self.gates * width, width))
        self.bias = nn.Parameter(torch.zeros(self.gates * width))
        self.state_bias = nn.Parameter(torch.zeros(self.gates * width))
        for gate in range(self.gates):
            rows = slice(gate * width, (gate + 1) * width)
            nn.init.xavier_uniform_(self.input_weight[rows])
            nn.init.orthogonal_(self.state_weight[rows])

    @abstractmethod
    def run(self, x: Tensor, state: State, weights: list[Tensor]) -> tuple[Tensor, State]:
        """Runs the kernel over time. Returns its outputs, [batch, time, width], and the state after the last step.

        Args:
            x: Inputs, [batch, time, features]; the last two features may be those of `commands`.
            state: The parts of the state, [batch, width] each.
            weights: The parameters in the kernels' order.
        """

    @abstractmethod
    def cell(self, x: Tensor, state: State, weights: list[Tensor]) -> State:
        """Runs the kernel over one step, and returns the state after it.

        Args:
            x: Inputs, [batch, features].
            state: The parts of the state, [batch, width] each.
            weights: The parameters in the kernels' order.
        """

    @abstractmethod
    def commands(self) -> Tensor:
        """Returns the input weights, [gates * width, 2], of the column that makes the state zero and of the one that keeps it."""

    def weights(self) -> list[Tensor]:
        """Returns the parameters in the kernels' order."""
        return [self.input_weight, self.state_weight, self.bias, self.state_bias]

    def initial_state(self, batch: int) -> State:
        return tuple(self.zeros(batch, self.output_size) for _ in range(self.parts))

    def step(self, x: Tensor, state: State, starts: Tensor | None = None) -> tuple[Tensor, State]:
        if starts is not None:
            state = choose(starts, self.initial_state(x.shape[0]), state)
        state = self.cell(x, state, self.weights())
        return state[0], state

    def forward(
        self, x: Tensor, state: State | None = None, starts: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        batch, time, features = x.shape
        state = state or self.initial_state(batch)
        if starts is not None:
            state = choose(starts[:, 0], self.initial_state(batch), state)
        if mask is None and (starts is None or not starts[:, 1:].any()):
            return self.run(x, state, self.weights())
        valid = torch.ones_like(x[..., 0], dtype=torch.bool) if mask is None else mask
        cut = torch.zeros_like(valid) if starts is None else starts & valid
        cut[:, 0] = False
        position = torch.arange(time, device=x.device) + cut.long().cumsum(1)  # of a step, among the steps put in
        longer = x.new_zeros(batch, int(position.max()) + 1, features + 2)
        longer[..., -1] = 1.0
        row, column = cut.nonzero(as_tuple=True)
        longer[row, position[row, column] - 1, -2:] = longer.new_tensor([1.0, 0.0])
        rows = torch.arange(batch, device=x.device).unsqueeze(1)
        longer[rows, position] = torch.cat([x, torch.zeros_like(x[..., :1]), (~valid).unsqueeze(2).to(x.dtype)], 2)
        weights = self.weights()
        weights[0] = torch.cat([weights[0], self.commands()], 1)
        y, after = self.run(longer, state, weights)
        y = y[rows, position]
        count = valid.sum(1)
        last = y[rows.squeeze(1), count.clamp(min=1) - 1]
        return y, (torch.where((count > 0).unsqueeze(1), last, state[0]), *after[1:])
