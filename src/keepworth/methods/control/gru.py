"""GRU: gated recurrent unit.

    r, z = sigmoid(Wr x_t + Ur h_{t-1} + br), sigmoid(Wz x_t + Uz h_{t-1} + bz)
    n = tanh(Wn x_t + bn + r * (Un h_{t-1} + cn))
    h_t = (1 - z) * n + z * h_{t-1}, which is the output

Source: Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014, with r applied after Un as cuDNN has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory, State


def make(input_size: int, width: int = 128, *, blocks: int = 0) -> SequenceMemory:
    """Builds a GRU of one layer, which uses PyTorch's kernel for whole sequences.

    Args:
        input_size, width: The numbers in an input, and in an output.
        blocks: The number of blocks; 0 makes a single memory without blocks.
    """
    import torch

    from keepworth.control.gated import CLOSE, OPEN, GatedMemory
    from keepworth.control.memory_base import stack

    class Gru(GatedMemory):
        gates, parts = 3, 1

        def __init__(self, size: int) -> None:
            super().__init__(size, width)

        def run(self, x: Tensor, state: State, weights: list[Tensor]) -> tuple[Tensor, State]:
            y, h = torch.gru(x, state[0].unsqueeze(0), weights, True, 1, 0.0, self.training, False, True)
            return y, (h[0],)

        def cell(self, x: Tensor, state: State, weights: list[Tensor]) -> State:
            return (torch.gru_cell(x, state[0], *weights),)

        def commands(self) -> Tensor:
            of_gates = self.bias.new_tensor([[CLOSE, 0.0], [CLOSE, OPEN]]).repeat_interleave(width, 0)  # r, z
            candidate = -self.bias[2 * width :].unsqueeze(1)  # n = tanh(bias - bias) = 0
            return torch.cat([of_gates, torch.cat([candidate, torch.zeros_like(candidate)], 1)])

    return stack(Gru, input_size, width, blocks)


METHOD = Method(
    kind="memory_module",
    name="gru",
    title="GRU",
    about="Is a gated recurrent unit: one gate forgets and writes, one resets",
    tags=("latent", "working", "formation", "evolution"),
    paper="arXiv 1406.1078",
    make=make,
    extra="control",
)
