"""HCAM: hierarchical chunk attention memory. The past is stored in chunks; a step attends to summaries, then inside the best
ones.

    logit_k = (Wq q) . (Wk mean of chunk k) / sqrt(width),  w = softmax over the `best` greatest logits
    out = sum over those chunks k of w_k * Attention(q, rows of k with a code of their age in the chunk)

Rows are embedded inputs; a chunk is stored when it is full, without gradient, and is visible from the next step on. Before that,
a step attends to the rows of the chunk that is being filled.
Source: Lampinen et al., "Towards mental time travel: a hierarchical memory for reinforcement learning agents", arXiv 2105.14039.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory, State


def make(
    input_size: int, width: int = 128, *, chunk: int = 16, chunks: int = 16, best: int = 4, heads: int = 4
) -> SequenceMemory:
    """Builds the module.

    Args:
        input_size, width: The numbers in an input, and in an output.
        chunk: The steps of a chunk.
        chunks: How many of the newest chunks are stored.
        best: How many of them are read, those whose summaries fit best.
        heads: The heads of attention, which divide the width.
    """
    import torch
    from torch import nn

    from keepworth.control.attention import RowAttention, age_code
    from keepworth.control.memory_base import StepRecurrence

    class Hcam(StepRecurrence):
        state_shapes = (chunks, width), (chunks, chunk, width), (chunk, width), (), ()
        """Summaries, chunks, the chunk being filled, its number of rows, and the number of chunks so far."""

        def __init__(self) -> None:
            super().__init__(input_size, width)
            self.reach = chunk * (chunks + 1)
            self.embed = nn.Linear(input_size, width)
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
            self.local = RowAttention(width, heads)
            self.query = nn.Linear(width, width, bias=False)
            self.key = nn.Linear(width, width, bias=False)
            self.inside = RowAttention(width, heads)
            self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

        def project(self, x: Tensor) -> Tensor:
            return self.embed(x)

        def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
            summaries, rows, filling, filled, stored = state
            places = torch.arange(chunk, device=x.device)
            at = (places == filled.unsqueeze(1)).unsqueeze(2)
            filling = torch.where(at, x.unsqueeze(1), filling)
            h = x + self.local(self.norms[0](x), filling, places <= filled.unsqueeze(1), self.code(x))
            h = h + self.recall(self.norms[1](h), summaries.detach(), rows.detach(), stored)
            h = h + self.mlp(self.norms[2](h))
            filled = filled + 1
            full = filled == chunk
            slot = (torch.arange(chunks, device=x.device) == (stored % chunks).unsqueeze(1)) & full.unsqueeze(1)
            done = filling.detach()
            summaries = torch.where(slot.unsqueeze(2), done.mean(1, keepdim=True), summaries)
            rows = torch.where(slot[:, :, None, None], done.unsqueeze(1), rows)
            return h, (summaries, rows, filling, torch.where(full, 0.0, filled), stored + full)

        def recall(self, query: Tensor, summaries: Tensor, rows: Tensor, count: Tensor) -> Tensor:
            """Returns the read of the best chunks, zero where no chunk is stored."""
            there = torch.arange(chunks, device=query.device) < count.unsqueeze(1)
            logits = (self.key(summaries) @ self.query(query).unsqueeze(2)).squeeze(2) * width**-0.5
            logits, places = logits.masked_fill(~there, -1e6).topk(min(best, chunks), 1)
            there = there.gather(1, places)
            weights = logits.softmax(1) * there
            most = places.shape[1]
            picked = rows.gather(1, places[:, :, None, None].expand(-1, -1, chunk, width)).flatten(0, 1)
            queries = query.unsqueeze(1).expand(-1, most, -1).flatten(0, 1)
            valid = there.flatten().unsqueeze(1).expand(-1, chunk)
            read = self.inside(queries, picked, valid, self.code(query)).unflatten(0, (-1, most))
            return (weights.unsqueeze(2) * read).sum(1)

        def code(self, like: Tensor) -> Tensor:
            """Returns the code of ages within a chunk, counted back from its last row, [chunk, width]."""
            return age_code(torch.arange(chunk - 1, -1, -1, device=like.device), width).to(like.dtype)

    return Hcam()


METHOD = Method(
    kind="memory_module",
    name="hcam",
    title="HCAM",
    about="Stores the past in chunks, attends to their summaries and then inside the best chunks",
    tags=("latent", "working", "formation", "retrieval"),
    paper="arXiv 2105.14039",
    claim="With 8 dances of ballet it is right in above 90 %, where Transformer-XL is at chance or needs shorter delays.",
    differs="It has one layer, sees the chunk that is being filled, and has no reconstruction loss.",
    make=make,
    extra="control",
)
