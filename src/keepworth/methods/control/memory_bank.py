"""Banks of past embeddings after MemoryVLA and SAM2Act+: attention reads the bank, and when it is full something has to go.

    z_t = W x_t;  h = z_t, and per layer h <- h + Attention(norm(h); rows + code of their times),  h <- h + MLP(norm(h))
    g = sigmoid(Wg [z_t; h]),  y_t = g * z_t + (1 - g) * h,  with Wg near zero at first, so that g is near 1/2
    MemoryVLA writes y_t. When the bank is full the two neighbours of greatest cosine become one: the mean of rows and times.
    SAM2Act+ writes z_t. When the bank is full the oldest goes.

Source: Shi et al., "MemoryVLA: perceptual-cognitive memory in vision-language-action models for robotic manipulation", arXiv
2508.19236; Fang et al., "SAM2Act: integrating visual foundation model with a memory architecture for robotic manipulation", arXiv
2501.18564.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory, State


def make(
    input_size: int,
    width: int = 128,
    *,
    rule: str = "merge",
    fused: bool = True,
    capacity: int = 16,
    layers: int = 2,
    heads: int = 4,
) -> SequenceMemory:
    """Builds the module.

    Args:
        input_size, width: The numbers in an input, and in an output.
        rule: What happens when the bank is full: "merge" joins the two most similar neighbours, "fifo" drops the oldest
            row.
        fused: Whether y is written, the embedding after it read the bank; else z, the one before.
        capacity: The rows of the bank.
        layers: The layers that read the bank, one after the other.
        heads: The heads of attention, which divide the width.
    """
    import torch
    from torch import nn
    from torch.nn.functional import cosine_similarity

    from keepworth.base.errors import require_known
    from keepworth.control.attention import ReadingLayer, age_code
    from keepworth.control.memory_base import StepRecurrence

    require_known("rule of a bank", rule, ["merge", "fifo"])

    class MemoryBank(StepRecurrence):
        state_shapes = (capacity, width), (capacity,), (), ()
        """Rows and the times at which they were written, the newest at the end, the number of rows, and the time."""

        def __init__(self) -> None:
            super().__init__(input_size, width)
            self.reach = capacity + 1 if rule == "fifo" and not fused else None
            self.embed = nn.Linear(input_size, width)
            self.layers = nn.ModuleList(ReadingLayer(width, heads) for _ in range(layers))
            self.gate = nn.Linear(2 * width, width)
            nn.init.normal_(self.gate.weight, std=1e-3)
            nn.init.zeros_(self.gate.bias)

        def project(self, x: Tensor) -> Tensor:
            return self.embed(x)

        def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
            rows, times, count, time = state
            valid = torch.arange(capacity, 0, -1, device=x.device) <= count.unsqueeze(1)
            code = age_code((time.unsqueeze(1) - times) * valid, width).to(x.dtype)
            h = x
            for layer in self.layers:
                h = layer(h, rows, valid, code)
            g = self.gate(torch.cat([x, h], 1)).sigmoid()
            y = g * x + (1 - g) * h
            rows = torch.cat([rows, (y if fused else x).unsqueeze(1)], 1)
            times = torch.cat([times, time.unsqueeze(1)], 1)
            rows, times = self.evict(rows, times, count == capacity)
            return y, (rows, times, (count + 1).clamp(max=capacity), time + 1)

        def evict(self, rows: Tensor, times: Tensor, full: Tensor) -> tuple[Tensor, Tensor]:
            """Removes one row: where the bank is full and the rule is "merge", two rows become one, else the first is dropped.

            Args:
                rows: [batch, capacity + 1, width].
                times: [batch, capacity + 1].
                full: Whether the bank is full, so that the first row is not padding, [batch].
            """
            pair = torch.full_like(full, -1, dtype=torch.long)  # the rows after it move up by one
            if rule == "merge":
                alike = cosine_similarity(rows[:, :-1].detach(), rows[:, 1:].detach(), 2)
                pair = torch.where(full, alike.argmax(1), pair)
            places = torch.arange(capacity, device=rows.device)
            behind, here = places > pair.unsqueeze(1), places == pair.unsqueeze(1)

            def joined(of: Tensor, behind: Tensor, here: Tensor) -> Tensor:
                mean = (of[:, :-1] + of[:, 1:]) / 2
                return torch.where(behind, of[:, 1:], torch.where(here, mean, of[:, :-1]))

            return joined(rows, behind.unsqueeze(2), here.unsqueeze(2)), joined(times, behind, here)

    return MemoryBank()


METHODS = [
    Method(
        kind="memory_module",
        name="memory_vla",
        title="MemoryVLA bank",
        about=("Reads a bank of past outputs by attention, and merges the two most similar neighbours when it is full"),
        tags=("latent", "working", "formation", "evolution", "retrieval"),
        paper="arXiv 2508.19236",
        claim=("Success is 14.6 points above the best model before on SimplerEnv-Bridge, and 26 on long real tasks."),
        differs="One bank of vectors replaces two of tokens, and gradients pass through the rows of a chunk.",
        label="analogue",
        make=make,
        extra="control",
    ),
    Method(
        kind="memory_module",
        name="sam2act",
        title="SAM2Act+ bank",
        about="Reads the last nine embeddings by attention",
        tags=("latent", "working", "formation", "retrieval"),
        paper="arXiv 2501.18564",
        claim="It succeeds in 94.3 % of the tasks of MemoryBench on average.",
        differs=(
            "Vectors replace maps, the action before replaces the heat map, and MemoryVLA's gate joins what is read."
        ),
        label="analogue",
        make=partial(make, rule="fifo", fused=False, capacity=9),
        extra="control",
    ),
]
