"""minLSTM: an LSTM whose gates do not see the state and add up to one.

    f_t, i_t = sigmoid(Wf x_t + bf), sigmoid(Wi x_t + bi)
    h_t = f_t / (f_t + i_t) * h_{t-1} + i_t / (f_t + i_t) * Wh x_t, which is the output

Source: Feng et al., "Were RNNs all we needed?", arXiv 2410.01201, without the logarithms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory


def make(input_size: int, width: int = 128, *, blocks: int = 2, forget_bias: float = 2.0) -> SequenceMemory:
    """Builds the module.

    Args:
        input_size, width: The numbers in an input, and in an output.
        blocks: The number of blocks.
        forget_bias: The bias of the forget gate at first.
    """
    from torch import nn

    from keepworth.control.memory_base import LinearRecurrence, stack

    class MinLstm(LinearRecurrence):
        state_shape = (width,)

        def __init__(self, size: int) -> None:
            super().__init__(size, width)
            self.gates = nn.Linear(size, 2 * width)
            self.candidate = nn.Linear(size, width)
            nn.init.constant_(self.gates.bias[:width], forget_bias)

        def recur(self, x: Tensor) -> tuple[Tensor, Tensor]:
            forget, write = self.gates(x).sigmoid().chunk(2, -1)
            total = forget + write
            return forget / total, write / total * self.candidate(x)

        def read(self, states: Tensor, x: Tensor) -> Tensor:
            return states

    return stack(MinLstm, input_size, width, blocks)


METHOD = Method(
    kind="memory_module",
    name="minlstm",
    title="minLSTM",
    about="Has two gates that depend on the input alone and add up to one",
    tags=("latent", "working", "formation", "evolution"),
    paper="arXiv 2410.01201",
    differs="It stands in blocks with two more layers, and needs no logarithms.",
    make=make,
    extra="control",
)
