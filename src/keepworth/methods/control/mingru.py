"""minGRU: a GRU whose gate and candidate do not see the state, so that it is a linear recurrence.

    z_t = sigmoid(Wz x_t + bz),  c_t = Wh x_t
    h_t = (1 - z_t) * h_{t-1} + z_t * c_t, which is the output

Source: Feng et al., "Were RNNs all we needed?", arXiv 2410.01201, without the logarithms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory


def make(input_size: int, width: int = 128, *, blocks: int = 2, gate_bias: float = -2.0) -> SequenceMemory:
    """Builds the module.

    Args:
        input_size, width: The numbers in an input, and in an output.
        blocks: The number of blocks.
        gate_bias: The bias of z at first: -2 forgets within about eight steps, 0 within two.
    """
    from torch import nn

    from keepworth.control.memory_base import LinearRecurrence, stack

    class MinGru(LinearRecurrence):
        state_shape = (width,)

        def __init__(self, size: int) -> None:
            super().__init__(size, width)
            self.gate = nn.Linear(size, width)
            self.candidate = nn.Linear(size, width)
            nn.init.constant_(self.gate.bias, gate_bias)

        def recur(self, x: Tensor) -> tuple[Tensor, Tensor]:
            gate = self.gate(x).sigmoid()
            return 1 - gate, gate * self.candidate(x)

        def read(self, states: Tensor, x: Tensor) -> Tensor:
            return states

    return stack(MinGru, input_size, width, blocks)


METHOD = Method(
    kind="memory_module",
    name="mingru",
    title="minGRU",
    about="Has one gate that depends on the input alone, so that training is a scan",
    tags=("latent", "working", "formation", "evolution"),
    paper="arXiv 2410.01201",
    differs="It stands in blocks with two more layers, and needs no logarithms.",
    make=make,
    extra="control",
)
