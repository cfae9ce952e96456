"""S5: a diagonal state space with many inputs and outputs, from the HiPPO matrix of Legendre polynomials.

    h' = Lambda h + B x,  y = 2 Re(C h) + D x, in steps of length s_j = exp(log_step_j) by a zero-order hold:
    h_t = exp(Lambda s) * h_{t-1} + (exp(Lambda s) - 1) / Lambda * (B x_t)

At first Lambda are the eigenvalues of S = A + p p^T, with A[n, k] = -sqrt((2n+1)(2k+1)) for n > k, -(n+1) for n = k, else 0, and
p_n = sqrt(n + 1/2): the real parts are -1/2, the imaginary ones the eigenvalues of -i (S + 1/2); with their eigenvectors V, B is
V^H times a random matrix. One of each conjugate pair is kept.
Source: Smith et al., "Simplified state space layers for sequence modeling", arXiv 2208.04933.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory


def make(
    input_size: int, width: int = 128, *, blocks: int = 1, shortest: float = 0.001, longest: float = 0.1
) -> SequenceMemory:
    """Builds the module, with width / 2 conjugate pairs.

    Args:
        input_size, width: The numbers in an input, and in an output.
        blocks: The number of blocks.
        shortest, longest: Between these the lengths of a step are log-uniform at first.
    """
    import math

    import torch
    from torch import nn

    from keepworth.control.memory_base import LinearRecurrence, stack

    modes = width // 2

    def decompose() -> tuple[Tensor, Tensor]:
        """Returns the imaginary parts of the eigenvalues, [modes], and their eigenvectors, [2 modes, modes]."""
        n = torch.arange(2 * modes, dtype=torch.float64)
        root = (2 * n + 1).sqrt()
        matrix = -torch.outer(root, root).tril(-1) - torch.diag(n + 1) + torch.outer(root, root) / 2
        skew = matrix - torch.diag(matrix.diagonal())
        values, vectors = torch.linalg.eigh(-1j * skew)
        return values[modes:].float(), vectors[:, modes:].to(torch.complex64)

    class S5(LinearRecurrence):
        state_shape = (modes,)
        is_complex = True

        def __init__(self, size: int) -> None:
            super().__init__(size, width)
            turning, vectors = decompose()
            self.fading = nn.Parameter(torch.full((modes,), -0.5))
            self.turning = nn.Parameter(turning)
            self.log_step = nn.Parameter(
                torch.rand(modes) * (math.log(longest) - math.log(shortest)) + math.log(shortest)
            )
            write = vectors.conj().T @ (torch.randn(2 * modes, size) / math.sqrt(size)).to(torch.complex64)
            self.write = nn.Parameter(torch.cat([write.real, write.imag]).T.contiguous())
            read = (torch.randn(width, 2 * modes) / math.sqrt(2 * modes)).to(torch.complex64) @ vectors
            self.output = nn.Parameter(2 * torch.cat([read.real, -read.imag], 1).T.contiguous())
            self.skip = nn.Linear(size, width, bias=False)

        def recur(self, x: Tensor) -> tuple[Tensor, Tensor]:
            rate = torch.complex(self.fading.clamp(max=-1e-4), self.turning)
            decay = (rate * self.log_step.exp()).exp()
            real, imaginary = (x @ self.write).chunk(2, -1)
            return decay.view(1, 1, -1), (decay - 1) / rate * torch.complex(real, imaginary)

        def read(self, states: Tensor, x: Tensor) -> Tensor:
            return torch.cat([states.real, states.imag], -1) @ self.output + self.skip(x)

    return stack(S5, input_size, width, blocks)


METHOD = Method(
    kind="memory_module",
    name="s5",
    title="S5",
    about="Is a diagonal state space that begins as the memory of Legendre polynomials",
    tags=("latent", "working", "formation", "evolution"),
    paper="arXiv 2208.04933",
    differs=("Its block has a norm and two layers in place of a gated linear unit, and one learning rate for all."),
    make=make,
    extra="control",
)
