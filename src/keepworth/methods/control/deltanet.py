"""DeltaNet: fast weights with corrections. The value that the matrix returns for a key moves toward the new value.

    M_t = M_{t-1} + b_t k_t (v_t - M_{t-1}^T k_t)^T,   r_t = M_t^T q_t,   b_t = sigmoid(w x_t) per head
    y_t = W norm(r_t), with keys and queries silu and then of length 1

Source: Schlag et al., "Linear transformers are secretly fast weight programmers", arXiv 2102.11174; keys of length 1: Yang et
al., "Parallelizing linear transformers with the delta rule", arXiv 2406.06484.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory, State


def make(
    input_size: int, width: int = 128, *, blocks: int = 1, heads: int = 4, key: int = 16, convolution: int = 4
) -> SequenceMemory:
    """Builds the module.

    Args:
        input_size, width: The numbers in an input, and in an output.
        blocks: The number of blocks.
        heads: The matrices of fast weights, which divide the width.
        key: The size of a head's keys.
        convolution: The steps that the first convolution sees; 1 for none.
    """
    from torch import nn
    from torch.nn.functional import normalize, silu

    from keepworth.control.memory_base import Chain, StepRecurrence, stack
    from keepworth.control.windows import ShortConvolution

    class DeltaNet(StepRecurrence):
        state_shapes = ((heads, key, width // heads),)

        def __init__(self, size: int) -> None:
            super().__init__(size, width)
            self.input = nn.Linear(size, heads * (2 * key + width // heads + 1), bias=False)
            self.norm = nn.LayerNorm(width // heads)
            self.output = nn.Linear(width, width)

        def project(self, x: Tensor) -> Tensor:
            return self.input(x).unflatten(-1, (heads, -1))

        def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
            (matrix,) = state
            query, address, value, rate = x.split([key, key, width // heads, 1], -1)
            query, address = normalize(silu(query), dim=-1), normalize(silu(address), dim=-1)
            correction = rate.sigmoid() * (value - (address.unsqueeze(-2) @ matrix).squeeze(-2))
            matrix = matrix + address.unsqueeze(-1) * correction.unsqueeze(-2)
            read = (query.unsqueeze(-2) @ matrix).squeeze(-2)
            return self.output(self.norm(read).flatten(1)), (matrix,)

    def after_convolution(size: int) -> SequenceMemory:
        return Chain(ShortConvolution(size, convolution), DeltaNet(size)) if convolution > 1 else DeltaNet(size)

    return stack(after_convolution, input_size, width, blocks)


METHOD = Method(
    kind="memory_module",
    name="deltanet",
    title="DeltaNet",
    about="Writes to fast weights by correction: the value of a key moves toward the new one",
    tags=("latent", "working", "formation", "evolution"),
    paper="arXiv 2102.11174",
    differs=(
        "It loops over time, with one convolution before keys, queries and values, in a block with two more layers."
    ),
    make=make,
    extra="control",
)
