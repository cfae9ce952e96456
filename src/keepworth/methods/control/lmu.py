"""LMU: Legendre memory unit. A fixed linear system holds a window of a learned signal, as coefficients of Legendre polynomials.

    u_t = ex x_t + eh h_{t-1} + em m_{t-1}
    m_t = Abar m_{t-1} + Bbar u_t
    h_t = tanh(Wx x_t + Wh h_{t-1} + Wm m_t), which is the output

Abar = exp(A), Bbar = A^-1 (Abar - 1) B (a zero-order hold over one step) with, for a window of `window` steps,
A[i, j] = (2i + 1) / window * (-1 if i < j else (-1)^(i - j + 1)) and B[i] = (2i + 1) (-1)^i / window.
Source: Voelker et al., "Legendre memory units", NeurIPS 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory, State


def make(input_size: int, width: int = 128, *, blocks: int = 0, order: int = 32, window: int = 64) -> SequenceMemory:
    """Builds the module.

    Args:
        input_size, width: The numbers in an input, and in an output.
        blocks: The number of blocks; 0 makes a single memory without blocks.
        order: The number of polynomials.
        window: The steps that they describe.
    """
    import torch
    from torch import nn

    from keepworth.control.memory_base import StepRecurrence, stack

    def discretise() -> tuple[Tensor, Tensor]:
        i = torch.arange(order, dtype=torch.float64)
        power = i.unsqueeze(1) - i
        sign = torch.where(power < 0, -1.0, (-1.0) ** (power.abs() + 1))
        a = (2 * i + 1).unsqueeze(1) / window * sign
        b = (2 * i + 1) * (-1.0) ** i / window
        decay = torch.linalg.matrix_exp(a)
        return decay, torch.linalg.solve(a, (decay - torch.eye(order)) @ b)

    class Lmu(StepRecurrence):
        decay: Tensor
        write: Tensor
        state_shapes = (width,), (order,)

        def __init__(self, size: int) -> None:
            super().__init__(size, width)
            decay, write = discretise()
            self.register_buffer("decay", decay.float())
            self.register_buffer("write", write.float())
            self.input = nn.Linear(size, 1 + width)
            self.signal = nn.Linear(width + order, 1, bias=False)
            self.past = nn.Linear(width + order, width, bias=False)
            nn.init.zeros_(self.signal.weight)
            nn.init.orthogonal_(self.past.weight)

        def project(self, x: Tensor) -> Tensor:
            return self.input(x)

        def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
            h, m = state
            u = x[:, :1] + self.signal(torch.cat([h, m], -1))
            m = m @ self.decay.T + u * self.write
            h = (x[:, 1:] + self.past(torch.cat([h, m], -1))).tanh()
            return h, (h, m)

    return stack(Lmu, input_size, width, blocks)


METHOD = Method(
    kind="memory_module",
    name="lmu",
    title="LMU",
    about="Holds a window of a learned signal in a fixed linear system",
    tags=("latent", "working", "formation", "evolution"),
    paper="NeurIPS 2019",
    make=make,
    extra="control",
)
