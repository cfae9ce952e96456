"""No memory: two layers over the current input. The control of every comparison.

y_t = tanh(W2 tanh(W1 x_t + b1) + b2)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory, State


def make(input_size: int, width: int = 128) -> SequenceMemory:
    """Builds a network that sees the current input only."""
    from torch import nn

    from keepworth.control.memory_base import SequenceMemory

    class Memoryless(SequenceMemory):
        reach = 1
        state_shapes = ((0,),)

        def __init__(self) -> None:
            super().__init__(input_size, width)
            self.layers = nn.Sequential(nn.Linear(input_size, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())

        def forward(
            self, x: Tensor, state: State | None = None, starts: Tensor | None = None, mask: Tensor | None = None
        ) -> tuple[Tensor, State]:
            return self.layers(x), state or self.initial_state(x.shape[0])

    return Memoryless()


METHOD = Method(
    kind="memory_module",
    name="mlp",
    title="No memory",
    about="Applies two layers to the current input and remembers nothing: the control of every comparison",
    make=make,
    extra="control",
)
