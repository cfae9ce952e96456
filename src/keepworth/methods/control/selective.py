"""Selective recurrence: the input chooses, for each channel, how fast its state decays and is written.

    d_t = softplus(Wd x_t + b),  u_t = Wu x_t,  B_t = Wb x_t,  C_t = Wc x_t
    h_t[c, n] = exp(d_t[c] A[c, n]) * h_{t-1}[c, n] + d_t[c] B_t[n] u_t[c],   A = -exp(logarithm), at first -(n + 1)
    o_t[c] = sum_n C_t[n] h_t[c, n] + D[c] u_t[c],   y_t = Wo (o_t * silu(Wg x_t))

x_t comes from a convolution over the last four steps. At first softplus(b) is spread evenly in its logarithm from 0.001 to 0.1.
Source: Gu and Dao, "Mamba: linear-time sequence modeling with selective state spaces", arXiv 2312.00752, algorithm 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory


def make(
    input_size: int, width: int = 128, *, blocks: int = 1, states: int = 8, convolution: int = 4
) -> SequenceMemory:
    """Builds the module.

    Args:
        input_size, width: The numbers in an input, and in an output.
        blocks: The number of blocks.
        states: The numbers that the state has for each channel.
        convolution: The steps that the convolution before it sees; 1 for none.
    """
    import math

    import torch
    from torch import nn
    from torch.nn.functional import silu, softplus

    from keepworth.control.memory_base import Chain, LinearRecurrence, stack
    from keepworth.control.windows import ShortConvolution

    class Selective(LinearRecurrence):
        state_shape = (width, states)

        def __init__(self, size: int) -> None:
            super().__init__(size, width)
            self.value = nn.Linear(size, width)
            self.speed = nn.Linear(size, width)
            self.write = nn.Linear(size, states, bias=False)
            self.probe = nn.Linear(size, states, bias=False)
            self.gate = nn.Linear(size, width)
            self.output = nn.Linear(width, width)
            self.rates = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(width, 1))
            self.skip = nn.Parameter(torch.ones(width))
            speed = torch.exp(torch.rand(width) * (math.log(0.1) - math.log(0.001)) + math.log(0.001))
            with torch.no_grad():
                self.speed.bias.copy_(speed.expm1().log())

        def recur(self, x: Tensor) -> tuple[Tensor, Tensor]:
            speed = softplus(self.speed(x))
            decay = (speed.unsqueeze(-1) * -self.rates.exp()).exp()
            return decay, (speed * self.value(x)).unsqueeze(-1) * self.write(x).unsqueeze(-2)

        def read(self, states: Tensor, x: Tensor) -> Tensor:
            read = (states @ self.probe(x).unsqueeze(-1)).squeeze(-1) + self.skip * self.value(x)
            return self.output(read * silu(self.gate(x)))

    def after_convolution(size: int) -> SequenceMemory:
        return Chain(ShortConvolution(size, convolution), Selective(size)) if convolution > 1 else Selective(size)

    return stack(after_convolution, input_size, width, blocks)


METHOD = Method(
    kind="memory_module",
    name="selective",
    title="Selective recurrence",
    about="Fades and writes at a speed that the input chooses, after Mamba",
    tags=("latent", "working", "formation", "evolution"),
    paper="arXiv 2312.00752",
    differs="The gate comes after the convolution too, channels are as wide as the input, and the block has two more layers.",
    make=make,
    extra="control",
)
