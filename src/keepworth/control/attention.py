"""Attention over what memories keep."""

from __future__ import annotations

from keepworth.episodes.needs import needs_control

import torch
from torch import Tensor, nn


def age_code(ages: Tensor, width: int) -> Tensor:
    """Sines and cosines of ages in steps, [how many, width].

    Source: Vaswani et al., "Attention is all you need", arXiv 1706.03762, section 3.5.
    """
    rates = 10_000.0 ** (-torch.arange(0, width, 2, device=ages.device) / width)
    angles = ages.unsqueeze(-1) * rates
    return torch.cat([angles.sin(), angles.cos()], -1)[..., :width]


class RowAttention(nn.Module):
    """Attention of one query over kept rows, with several heads, in which the query is projected and the rows are not.

    (q Wq) (r Wk)^T = (q Wq Wk^T) r^T: for one query and many rows that is as many times cheaper as a head has features.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        size = width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Parameter(torch.randn(heads, size, width) * width**-0.5)
        self.value = nn.Parameter(torch.randn(heads, width, size) * width**-0.5)
        self.output = nn.Linear(width, width)

    def forward(self, query: Tensor, rows: Tensor, valid: Tensor, code: Tensor) -> Tensor:
        """What the rows say: zero where no row is valid.

        Args:
            query: [batch, width].
            rows: [batch, count, width].
            valid: Which rows there are, [batch, count].
            code: Added to the rows to say how old they are, [count, width] or [batch, count, width].
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
        """See `RowAttention.forward`."""
        x = x + self.attention(self.norms[0](x), rows, valid, code)
        read: Tensor = x + self.mlp(self.norms[1](x))
        return read
