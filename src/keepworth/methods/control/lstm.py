"""LSTM: long short-term memory.

    i, f, g, o = split(W x_t + U h_{t-1} + b)
    c_t = sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g)
    h_t = sigmoid(o) * tanh(c_t), which is the output

Source: Hochreiter and Schmidhuber, "Long short-term memory", Neural Computation 1997, with the forget gate of Gers et al. 2000.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory, State


def make(input_size: int, width: int = 128, *, blocks: int = 0, forget_bias: float = 1.0) -> SequenceMemory:
    """Builds an LSTM of one layer, which uses PyTorch's kernel for whole sequences.

    Args:
        input_size, width: The numbers in an input, and in an output.
        blocks: The number of blocks; 0 makes a single memory without blocks.
        forget_bias: The bias of the forget gate at first.
    """
    import torch

    from keepworth.control.gated import CLOSE, OPEN, GatedMemory
    from keepworth.control.memory_base import stack

    class Lstm(GatedMemory):
        gates, parts = 4, 2

        def __init__(self, size: int) -> None:
            super().__init__(size, width)
            with torch.no_grad():
                self.bias[width : 2 * width] = forget_bias

        def run(self, x: Tensor, state: State, weights: list[Tensor]) -> tuple[Tensor, State]:
            initial = [part.unsqueeze(0) for part in state]
            y, h, c = torch.lstm(x, initial, weights, True, 1, 0.0, self.training, False, True)
            return y, (h[0], c[0])

        def cell(self, x: Tensor, state: State, weights: list[Tensor]) -> State:
            h, c = torch.lstm_cell(x, list(state), *weights)
            return h, c

        def commands(self) -> Tensor:
            of_gates = self.bias.new_tensor([[CLOSE, CLOSE], [CLOSE, OPEN], [0.0, 0.0], [CLOSE, 0.0]])  # i, f, g, o
            return of_gates.repeat_interleave(width, 0)

    return stack(Lstm, input_size, width, blocks)


METHOD = Method(
    kind="memory_module",
    name="lstm",
    title="LSTM",
    about="Is a long short-term memory, whose gates depend on the state",
    tags=("latent", "working", "formation", "evolution"),
    paper="Neural Computation 9(8), 1997",
    make=make,
    extra="control",
)
