"""Linear recurrences over time: h_t = decay_t * h_{t-1} + write_t.

Both implementations are exact, take work in proportion to the length, and allow a decay of zero, which resets episodes."""

from __future__ import annotations

from typing import Any

from keepworth.base.needs import needs_control

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

FEW = 1000
"""Size of the batch's state below which launching an operation costs more than its arithmetic."""


def scan(decay: Tensor, write: Tensor, initial: Tensor) -> Tensor:
    """Returns all states of a linear recurrence, [batch, time, ...].

    Args:
        decay: The factor of the previous state, [batch, time, ...]; real or complex.
        write: The term that is added, [batch, time, ...].
        initial: The state before the first step, [batch, ...].
    """
    decay, write = torch.broadcast_tensors(decay, write)
    if write.shape[1] == 1:
        return decay * initial.unsqueeze(1) + write
    if initial.numel() < FEW:
        first = decay[:, :1] * initial.unsqueeze(1) + write[:, :1]
        return scan_pairs(decay, torch.cat([first, write[:, 1:]], 1))
    states: Tensor = ScanLoop.apply(decay, write, initial)
    return states


def scan_pairs(decay: Tensor, write: Tensor) -> Tensor:
    """Returns the states from a zero state, by joining neighbouring steps and halving the length: fewer, larger operations.
    Source: Blelloch, "Prefix sums and their applications", 1990, with the operator (a1, b1), (a2, b2) -> (a2 a1, a2 b1 + b2)."""
    length = write.shape[1]
    if length == 1:
        return write
    even, odd = slice(0, length - 1, 2), slice(1, None, 2)
    joined = scan_pairs(decay[:, odd] * decay[:, even], decay[:, odd] * write[:, even] + write[:, odd])
    later = decay[:, 2::2] * joined[:, : (length - 1) // 2] + write[:, 2::2]
    states = torch.cat([write[:, :1], later], 1)
    if length % 2 == 0:
        return torch.stack([states, joined], 2).flatten(1, 2)
    return torch.cat([torch.stack([states[:, :-1], joined], 2).flatten(1, 2), states[:, -1:]], 1)


class ScanLoop(torch.autograd.Function):
    """A loop of one operation a step, whose backward pass needs only decay and states.

    The gradient l_t of a state runs backwards by the same recurrence: l_t = g_t + conj(decay_{t+1}) l_{t+1}; it is the gradient
    of write_t, and l_t conj(h_{t-1}) is that of decay_t."""

    @staticmethod
    def forward(context: Any, decay: Tensor, write: Tensor, initial: Tensor) -> Tensor:
        """Returns all states, as `scan` does, and keeps what the backward pass needs.

        Args:
            context: Where PyTorch keeps tensors for the backward pass.
            decay: The factor of the previous state, [batch, time, ...].
            write: The term that is added, [batch, time, ...].
            initial: The state before the first step, [batch, ...].
        """
        states = torch.empty_like(write, memory_format=torch.contiguous_format)
        state = initial
        for decay_t, write_t, out in zip(decay.unbind(1), write.unbind(1), states.unbind(1), strict=True):
            state = torch.addcmul(write_t, decay_t, state, out=out)
        context.save_for_backward(decay, states, initial)
        return states

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        decay, states, initial = context.saved_tensors
        decay = decay.conj().resolve_conj() if decay.is_complex() else decay
        gradients = torch.empty_like(gradient, memory_format=torch.contiguous_format)
        decays, outs, given = decay.unbind(1), gradients.unbind(1), gradient.unbind(1)
        outs[-1].copy_(given[-1])
        for step in range(len(outs) - 2, -1, -1):
            torch.addcmul(given[step], decays[step + 1], outs[step + 1], out=outs[step])
        before = torch.cat([initial.unsqueeze(1), states[:, :-1]], 1)
        return gradients * (before.conj() if before.is_complex() else before), gradients, decays[0] * outs[0]
