"""Rotating and gated modes in one linear recurrence: the rotating ones learn order, the gated ones what to store.

    rotating:  h_t = exp(-exp(nu) + i exp(theta)) * h_{t-1} + gamma * (B x_t)
    gated:     h_t = (1 - z_t) * h_{t-1} + z_t * (C x_t),  z_t = sigmoid(W x_t + b), complex numbers as pairs
    y_t = [O [Re h; Im h] + D x_t of the rotating modes;  Re h; Im h of the gated modes, as they are]

O and D are zero at first: the rotating modes are silent until they are of use, since otherwise they drown out the gated ones.

The phase of a rotating mode says how long ago something was, but the mode cannot choose what it stores. A gated mode stores what
its gate let in until the gate opens again, but says nothing of time. The layers after the scan read both.
Sources of the halves: arXiv 2303.06349 (rotating), arXiv 2410.01201 (gated). Their union in one scan is of this project.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory


def make(
    input_size: int, width: int = 128, *, blocks: int = 2, turning: float = 0.5, gate_bias: float = -2.0
) -> SequenceMemory:
    """Builds the module.

    Args:
        input_size, width: The numbers in an input, and in an output.
        blocks: The number of blocks.
        turning: The share of modes that rotate; 1 and 0 are ablations.
        gate_bias: The bias of z at first: -2 forgets within about eight steps, 0 within two.
    """
    import math

    import torch
    from torch import nn

    from keepworth.control.memory_base import LinearRecurrence, stack

    modes = width // 2
    turn = round(turning * modes)
    hold = modes - turn

    class RotatingGates(LinearRecurrence):
        state_shape = (modes,)
        is_complex = True

        def __init__(self, size: int) -> None:
            super().__init__(size, width)
            square = 0.5**2 + torch.rand(turn) * (0.999**2 - 0.5**2)
            self.nu = nn.Parameter((-0.5 * square.log()).log())
            self.theta = nn.Parameter((2 * math.pi * torch.rand(turn)).log())
            self.gamma = nn.Parameter((1 - square).sqrt().log())
            self.write = nn.Linear(size, 2 * modes, bias=False)
            self.gate = nn.Linear(size, hold)
            self.output = nn.Linear(2 * turn, 2 * turn)
            self.skip = nn.Linear(size, 2 * turn, bias=False)
            for silent in (self.output.weight, self.output.bias, self.skip.weight):
                nn.init.zeros_(silent)
            nn.init.constant_(self.gate.bias, gate_bias)

        def recur(self, x: Tensor) -> tuple[Tensor, Tensor]:
            real, imaginary = self.write(x).chunk(2, -1)
            gate = self.gate(x).sigmoid()
            rate = torch.polar((-self.nu.exp()).exp(), self.theta.exp()).expand(*x.shape[:2], turn)
            decay = torch.cat([rate, (1 - gate).to(rate.dtype)], -1)
            weight = torch.cat([self.gamma.exp().expand(*x.shape[:2], turn), gate], -1)
            return decay, torch.complex(real * weight, imaginary * weight)

        def read(self, states: Tensor, x: Tensor) -> Tensor:
            turned, held = states[..., :turn], states[..., turn:]
            turned = self.output(torch.cat([turned.real, turned.imag], -1)) + self.skip(x)
            return torch.cat([turned, held.real, held.imag], -1)

    return stack(RotatingGates, input_size, width, blocks)


METHOD = Method(
    kind="memory_module",
    name="rotating_gates",
    title="Rotating and gated modes",
    about="Joins rotating modes for order and gated modes for storage in one linear recurrence",
    tags=("latent", "working", "formation", "evolution"),
    differs="This project's own; turning=1 and turning=0 are its ablations.",
    make=make,
    extra="control",
)
