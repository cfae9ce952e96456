"""LRU: linear recurrent unit, complex modes that rotate and decay at learned rates.

    lambda_j = exp(-exp(nu_j) + i exp(theta_j)),  gamma_j = sqrt(1 - |lambda_j|^2) at first, then learned
    h_t = lambda * h_{t-1} + gamma * (B x_t)
    y_t = Re(C h_t) + D x_t

At first |lambda|^2 is uniform on [low^2, high^2] and the phase on [0, 2 pi].
Source: Orvieto et al., "Resurrecting recurrent neural networks for long sequences", arXiv 2303.06349.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory


def make(
    input_size: int, width: int = 128, *, blocks: int = 1, low: float = 0.5, high: float = 0.999
) -> SequenceMemory:
    """Builds the module, with width / 2 modes: a state as large as a GRU's.

    Args:
        input_size, width: The numbers in an input, and in an output.
        blocks: The number of blocks.
        low, high: Between these numbers lies |lambda| at first.
    """
    import math

    import torch
    from torch import nn

    from keepworth.control.memory_base import LinearRecurrence, stack

    modes = width // 2

    class Lru(LinearRecurrence):
        state_shape = (modes,)
        is_complex = True

        def __init__(self, size: int) -> None:
            super().__init__(size, width)
            square = low**2 + torch.rand(modes) * (high**2 - low**2)
            self.nu = nn.Parameter((-0.5 * square.log()).log())
            self.theta = nn.Parameter((2 * math.pi * torch.rand(modes)).log())
            self.gamma = nn.Parameter((1 - square).sqrt().log())
            self.write = nn.Parameter(torch.randn(size, 2 * modes) / math.sqrt(2 * size))
            self.output = nn.Linear(2 * modes, width)  # its halves are Re(C) and -Im(C)
            self.skip = nn.Linear(size, width, bias=False)

        def recur(self, x: Tensor) -> tuple[Tensor, Tensor]:
            decay = torch.polar((-self.nu.exp()).exp(), self.theta.exp())
            real, imaginary = (x @ self.write).chunk(2, -1)
            gamma = self.gamma.exp()
            return decay.view(1, 1, -1), torch.complex(real * gamma, imaginary * gamma)

        def read(self, states: Tensor, x: Tensor) -> Tensor:
            return self.output(torch.cat([states.real, states.imag], -1)) + self.skip(x)

    return stack(Lru, input_size, width, blocks)


METHOD = Method(
    kind="memory_module",
    name="lru",
    title="LRU",
    about="Is a linear recurrence with complex modes that rotate and fade at learned rates",
    tags=("latent", "working", "formation", "evolution"),
    paper="arXiv 2303.06349",
    differs=("Its block has a norm and two layers in place of a gated linear unit, and one learning rate for all."),
    make=make,
    extra="control",
)
