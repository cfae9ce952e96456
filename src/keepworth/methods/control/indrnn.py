"""IndRNN: a recurrent layer whose units depend on their own past only.

    h_t = relu(W x_t + u * h_{t-1} + b), which is the output, |u| < 1

Source: Li et al., "Independently recurrent neural network", arXiv 1803.04831.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory, State


def make(input_size: int, width: int = 128, *, blocks: int = 2, horizon: int = 1024) -> SequenceMemory:
    """Builds the module.

    Args:
        input_size, width: The numbers in an input, and in an output.
        blocks: The number of blocks.
        horizon: The steps after which at most 1 / e of a unit's state is left.
    """
    import math

    import torch
    from torch import nn

    from keepworth.control.memory_base import StepRecurrence, stack

    limit = math.exp(-1 / horizon)

    class IndRnn(StepRecurrence):
        state_shapes = ((width,),)

        def __init__(self, size: int) -> None:
            super().__init__(size, width)
            self.input = nn.Linear(size, width)
            self.past = nn.Parameter(torch.rand(width) * limit)

        def project(self, x: Tensor) -> Tensor:
            return self.input(x)

        def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
            h = (x + self.past.clamp(-limit, limit) * state[0]).relu()
            return h, (h,)

    return stack(IndRnn, input_size, width, blocks)


METHOD = Method(
    kind="memory_module",
    name="indrnn",
    title="IndRNN",
    about="Is a recurrent layer in which each unit sees its own past alone",
    tags=("latent", "working", "formation", "evolution"),
    paper="arXiv 1803.04831",
    differs="|u| stays below 1, where the paper allows 2 to the power of 1 / T, so that states of endless episodes stay bounded.",
    make=make,
    extra="control",
)
