"""Frame stack: two layers over the last k inputs.

    y_t = tanh(W2 tanh(W1 [x_{t-k+1}; ...; x_t] + b1) + b2), zeros and a flag in the place of inputs from before the episode

Source: Mnih et al., "Human-level control through deep reinforcement learning", Nature 2015 (four frames).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory, State


def make(input_size: int, width: int = 128, *, frames: int = 8) -> SequenceMemory:
    """Builds the module.

    Args:
        input_size, width: The numbers in an input, and in an output.
        frames: How many of the last inputs it sees, the current one among them.
    """
    import torch
    from torch import nn

    from keepworth.control.memory_base import SegmentedMemory
    from keepworth.control.windows import Window

    class FrameStack(SegmentedMemory):
        state_shapes = (frames - 1, input_size), (frames - 1,)

        def __init__(self) -> None:
            super().__init__(input_size, width)
            self.context = self.reach = frames
            size = frames * (input_size + 1)
            self.layers = nn.Sequential(nn.Linear(size, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())

        def run(self, x: Tensor, state: State, starts: Tensor | None, mask: Tensor | None) -> tuple[Tensor, State]:
            cache, valid = state
            window = Window(valid, x.shape[1], starts, mask)
            rows = torch.cat([cache, x], 1)
            steps = torch.arange(x.shape[1], device=x.device).unsqueeze(1)
            frame = steps + torch.arange(frames, device=x.device)
            in_window = window.seen[:, steps, frame].unsqueeze(-1)
            shown = torch.cat([torch.where(in_window, rows[:, frame], 0.0), in_window.to(x.dtype)], -1)
            return self.layers(shown.flatten(2)), (window.keep(rows), window.valid)

    return FrameStack()


METHOD = Method(
    kind="memory_module",
    name="frame_stack",
    title="Frame stack",
    about="Applies two layers to the last k inputs",
    tags=("latent", "working", "formation"),
    paper="Nature 518 (2015)",
    make=make,
    extra="control",
)
