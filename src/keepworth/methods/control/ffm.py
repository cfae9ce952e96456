"""FFM: fast and forgetful memory. Traces decay and contexts rotate at learned rates that do not depend on the input; the gates
are outside the recurrence.

    S_t[j, k] = exp(alpha_j + i omega_k) * S_{t-1}[j, k] + w_t[j],   w_t = (W1 x_t) * sigmoid(W2 x_t)
    z_t = W3 [Re S_t; Im S_t] + b
    y_t = norm(z_t) * g_t + (W4 x_t) * (1 - g_t),   g_t = sigmoid(W5 x_t)

alpha < 0 runs from fast to so slow that 1 % is left after `horizon` steps; omega_k = 2 pi / period_k, with periods from 1 to
`horizon`. norm is layer normalisation without parameters.
Source: Morad et al., "Reinforcement learning with fast and forgetful memory", arXiv 2310.04128.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory


def make(
    input_size: int, width: int = 128, *, blocks: int = 0, traces: int = 32, contexts: int = 4, horizon: int = 1024
) -> SequenceMemory:
    """Builds the module.

    Args:
        input_size, width: The numbers in an input, and in an output.
        blocks: The number of blocks; 0 makes a single memory without blocks.
        traces: The number of decay rates.
        contexts: The number of rotation rates.
        horizon: The longest time scale at first, in steps.
    """
    import math

    import torch
    from torch import nn
    from torch.nn.functional import layer_norm

    from keepworth.control.memory_base import LinearRecurrence, stack

    class Ffm(LinearRecurrence):
        state_shape = (traces, contexts)
        is_complex = True

        def __init__(self, size: int) -> None:
            super().__init__(size, width)
            margin = 0.01 * min(1.0, 1024 / horizon)  # with 0.01 alpha would not be negative at long horizons
            fastest = margin - (math.log(torch.finfo(torch.float32).max) / horizon - margin)
            self.alpha = nn.Parameter(torch.linspace(fastest, math.log(0.01) / horizon, traces))
            self.omega = nn.Parameter(2 * math.pi / torch.linspace(1, horizon, contexts))
            self.input = nn.Linear(size, 2 * traces)
            self.skip = nn.Linear(size, 2 * width)
            self.mix = nn.Linear(2 * traces * contexts, width)

        def recur(self, x: Tensor) -> tuple[Tensor, Tensor]:
            value, gate = self.input(x).chunk(2, -1)
            fading = self.alpha.clamp(max=-1e-8).exp()
            decay = torch.polar(fading.unsqueeze(1).expand(traces, contexts), self.omega.expand(traces, contexts))
            return decay.view(1, 1, traces, contexts), (value * gate.sigmoid()).unsqueeze(-1).to(decay.dtype)

        def read(self, states: Tensor, x: Tensor) -> Tensor:
            skip, gate = self.skip(x).chunk(2, -1)
            z = self.mix(torch.cat([states.real.flatten(2), states.imag.flatten(2)], -1))
            gate = gate.sigmoid()
            return layer_norm(z, (width,)) * gate + skip * (1 - gate)

    return stack(Ffm, input_size, width, blocks)


METHOD = Method(
    kind="memory_module",
    name="ffm",
    title="Fast and Forgetful Memory",
    about="Keeps traces that fade and contexts that rotate, at learned rates that no input changes",
    tags=("latent", "working", "formation", "evolution"),
    paper="arXiv 2310.04128",
    claim="It is about 7 % above GRU over all POPGym tasks and trains about a hundred times as fast on a GPU (second hand).",
    differs="A scan in single precision with exact resets replaces cumulative sums in double precision.",
    make=make,
    extra="control",
)
