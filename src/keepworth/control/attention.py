"""Attention over the rows that memories store."""

from __future__ import annotations

from keepworth.base.needs import needs_control

import torch
from torch import Tensor, nn


def age_code(ages: Tensor, width: int) -> Tensor:
    """Returns sines and cosines of ages in steps, [how many, width]. Source: Vaswani et al., "Attention is all you need", arXiv
    1706.03762, section 3.5."""
    rates = 10_000.0 ** (-torch.arange(0, width, 2, device=ages.device) / width)
    angles = ages.unsqueeze(-1) * rates
    return torch.cat([angles.sin(), angles.cos()], -1)[..., :width]


class RowAttention(nn.Module):
    """Attention of one query over stored rows, with several heads. The query is projected and the rows are not. (q Wq) (r Wk)^T =
    (q Wq Wk^T) r^T: for one query and many rows the right side is cheaper by the number of features of a head."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        size = width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Parameter(torch.randn(heads, size, width) * width**-0.5)
        self.value = nn.Parameter(torch.randn(heads, width, size) * width**-0.5)
        self.output = nn.Linear(width, width)

    def forward(self, query: Tensor, rows: Tensor, valid: Tensor, code: Tensor) -> Tensor:
        """Returns the attention's output; zero where no row is valid.

        Args:
            query: [batch, width].
            rows: [batch, count, width].
            valid: Which rows exist, [batch, count].
            code: Is added to the rows to encode their age, [count, width] or [batch, count, width].
        """
        rows = rows + code
        heads = self.query(query).unflatten(1, (self.heads, -1))
        probe = torch.einsum("bhd,hdw->bhw", heads, self.key)
        scores = (probe @ rows.transpose(1, 2)) * heads.shape[-1] ** -0.5
        weights = scores.masked_fill(~valid.unsqueeze(1), -1e9).softmax(-1) * valid.unsqueeze(1)
        read = torch.einsum("bhw,hwd->bhd", weights @ rows, self.value).flatten(1)
        mixed: Tensor = self.output(read) * valid.any(1, keepdim=True)
        return mixed


class ReadingLayer(nn.Module):
    """A layer of one query: x' = x + Attention(norm(x); rows), x'' = x' + MLP(norm(x'))."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = RowAttention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, rows: Tensor, valid: Tensor, code: Tensor) -> Tensor:
        """Returns the query after it has read the rows, [batch, width].

        Args:
            x: The query, [batch, width].
            rows: What it reads, [batch, count, width].
            valid: Which rows exist, [batch, count].
            code: Is added to the rows to encode their age, [count, width] or [batch, count, width].
        """
        x = x + self.attention(self.norms[0](x), rows, valid, code)
        read: Tensor = x + self.mlp(self.norms[1](x))
        return read
