"""Compressive Transformer: attention over the last steps, and over means of the steps before them.

Each layer stores its inputs as rows. When it holds `window` + `rate` rows, the oldest `rate` are replaced by their mean, which is
appended to at most `compressed` earlier means; the oldest mean is dropped. A step attends to all stored rows and means and to
itself:

    x' = x + Attention(norm(x); rows),  x'' = x' + MLP(norm(x'))

No gradient passes the compression.
Source: Rae et al., "Compressive transformers for long-range sequence modelling", arXiv 1911.05507, with mean pooling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory, State


def make(
    input_size: int,
    width: int = 128,
    *,
    layers: int = 2,
    heads: int = 4,
    window: int = 28,
    compressed: int = 32,
    rate: int = 4,
) -> SequenceMemory:
    """Builds the module.

    Args:
        input_size, width: The numbers in an input, and in an output.
        layers: Its layers of attention, each with a past of its own.
        heads: The heads of attention, which divide the width.
        window: The steps that are stored as they are.
        compressed: The means of older steps that are stored.
        rate: The steps of which each mean is made.
    """
    import torch
    from torch import nn

    from keepworth.control.attention import ReadingLayer, age_code
    from keepworth.control.memory_base import StepRecurrence

    recent = window + rate

    class Compressive(StepRecurrence):
        state_shapes = ((2,), *((compressed + recent, width),) * layers)
        """The numbers of rows and means, and for each layer the means followed by the rows, the newest at the end."""

        def __init__(self) -> None:
            super().__init__(input_size, width)
            self.context, self.reach = window + 1, layers * (recent - 1 + rate * compressed) + 1
            self.embed = nn.Linear(input_size, width)
            self.layers = nn.ModuleList(ReadingLayer(width, heads) for _ in range(layers))

        def project(self, x: Tensor) -> Tensor:
            return self.embed(x)

        def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
            counts, *memory = state
            rows_there, means_there = (counts[:, 0] + 1).unsqueeze(1), counts[:, 1].unsqueeze(1)
            old = torch.arange(compressed, 0, -1, device=x.device) <= means_there
            new = torch.arange(recent, 0, -1, device=x.device) <= rows_there
            ages = torch.arange(recent - 1, -1, -1, device=x.device)
            ages = torch.cat([recent + rate * torch.arange(compressed - 1, -1, -1, device=x.device), ages])
            code = age_code(ages, width).to(x.dtype)
            valid = torch.cat([old, new], 1)
            full = (rows_there == recent).unsqueeze(2)
            after = []
            for layer, rows in zip(self.layers, memory, strict=True):
                means, steps = rows[:, :compressed], torch.cat([rows[:, compressed + 1 :], x.unsqueeze(1)], 1)
                x = layer(x, torch.cat([means, steps], 1), valid, code)
                mean = steps[:, :rate].detach().mean(1, keepdim=True)
                means = torch.where(full, torch.cat([means[:, 1:], mean], 1), means)
                after.append(torch.cat([means, steps], 1))
            overflow = full.flatten().to(counts.dtype)
            rows_left = rows_there.flatten() - rate * overflow
            return x, (torch.stack([rows_left, (counts[:, 1] + overflow).clamp(max=compressed)], 1), *after)

    return Compressive()


METHOD = Method(
    kind="memory_module",
    name="compressive",
    title="Compressive Transformer",
    about="Attends to the last steps and to means of the steps before them",
    tags=("latent", "working", "formation", "evolution", "retrieval"),
    paper="arXiv 1911.05507",
    claim="In the object matching of DMLab it learns faster and more stably than Transformer-XL.",
    differs="Means replace a trained convolution with its reconstruction loss, positions are coded by age, and norms come first.",
    make=make,
    extra="control",
)
