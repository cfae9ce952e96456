"""Spatially-aware memory: rows with codes of when and where they were written, and a rule that drops a row when it is full.

    row_t = W x_t,  place_t = hash(x_t), one of `places`
    h = W x_t;  per layer  h <- h + Attention(norm(h); rows + code of their ages + code of their places),  h <- h + MLP(norm(h))
    dropped is, by fifo: the oldest row;  lifo: the newest;  mvfo: the oldest of the most visited place;  lvfo: of the least
    visited

The hash is made of the signs of random projections, so that similar inputs are one place. Visits are counted over an episode.
Source: Cho et al., "Spatially-aware transformers for embodied agents", arXiv 2402.15160.
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
    rule: str = "mvfo",
    capacity: int = 16,
    signs: int = 3,
    layers: int = 1,
    heads: int = 4,
) -> SequenceMemory:
    """Builds the module.

    Args:
        input_size, width: The numbers in an input, and in an output.
        rule: "fifo", "lifo", "mvfo" or "lvfo".
        capacity: Rows that are stored.
        signs: Random projections of the hash, which has 2^signs places.
        layers: The layers that read the rows, one after the other.
        heads: The heads of attention, which divide the width.
    """
    import torch
    from torch import nn

    from keepworth.base.errors import require_known
    from keepworth.control.attention import ReadingLayer, age_code
    from keepworth.control.memory_base import StepRecurrence

    require_known("rule of a memory that is full", rule, ["fifo", "lifo", "mvfo", "lvfo"])

    class Spatial(StepRecurrence):
        projections: Tensor
        state_shapes = (capacity, width), (capacity,), (capacity,), (2**signs,), (), ()
        """Rows, their places and times, the newest at the end; visits of all places; the number of rows; the time."""

        def __init__(self) -> None:
            super().__init__(input_size, width)
            self.reach = capacity + 1 if rule == "fifo" else None
            self.embed = nn.Linear(input_size, width)
            self.layers = nn.ModuleList(ReadingLayer(width, heads) for _ in range(layers))
            self.place_code = nn.Parameter(torch.randn(2**signs, width) * 0.02)
            self.register_buffer("projections", torch.randn(input_size, signs))

        def project(self, x: Tensor) -> Tensor:
            """Returns embedded inputs, followed by the places of the inputs."""
            ones = (x @ self.projections > 0).to(x.dtype)
            bucket = ones @ 2.0 ** torch.arange(signs, dtype=x.dtype, device=x.device)
            return torch.cat([self.embed(x), bucket.unsqueeze(-1)], -1)

        def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
            rows, places, times, visits, count, time = state
            x, bucket = x[:, :-1], x[:, -1]
            valid = torch.arange(capacity, 0, -1, device=x.device) <= count.unsqueeze(1)
            code = age_code((time.unsqueeze(1) - times) * valid, width).to(x.dtype) + self.place_code[places.long()]
            h = x
            for layer in self.layers:
                h = layer(h, rows, valid, code)
            visits = visits + nn.functional.one_hot(bucket.long(), 2**signs)
            goes = torch.where(count == capacity, self.choose(places, visits), 0).unsqueeze(1)
            stays = torch.arange(capacity, device=x.device) < goes

            def without(of: Tensor, new: Tensor) -> Tensor:
                both = torch.cat([of, new.unsqueeze(1)], 1)
                return torch.where(stays.view(*stays.shape, *(1,) * (of.ndim - 2)), both[:, :-1], both[:, 1:])

            rest = without(rows, x), without(places, bucket), without(times, time)
            return h, (*rest, visits, (count + 1).clamp(max=capacity), time + 1)

        def choose(self, places: Tensor, visits: Tensor) -> Tensor:
            """Returns the row to drop, [batch], from the rows' places, [batch, capacity], and the visits, [batch, places]."""
            order = torch.arange(capacity, device=places.device).expand_as(places)
            if rule in ("fifo", "lifo"):
                return order[:, 0] if rule == "fifo" else order[:, -1]
            visited = visits.gather(1, places.long())
            least_or_most = visited if rule == "mvfo" else -visited
            return (least_or_most * capacity - order).argmax(1)

    return Spatial()


METHOD = Method(
    kind="memory_module",
    name="spatial",
    title="Spatially-aware memory",
    about=("Keeps rows with codes of time and place, and a rule of visits says which row goes when it is full"),
    tags=("latent", "working", "formation", "evolution", "retrieval"),
    paper="arXiv 2402.15160",
    claim="Place in memory helps prediction, generation and control where tasks are about places.",
    differs=(
        "A place is a hash of the input because worlds name none, and the rule is a setting, where the paper "
        "learns an allocator."
    ),
    label="analogue",
    make=make,
    extra="control",
)
