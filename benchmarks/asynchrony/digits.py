"""A model of about a million parameters that reads a prompt's tokens and writes a number, digit by digit (Regression Language
Models, arXiv 2509.26476). A rival in `benchmarks.asynchrony.predictors`: how long will the answer be?

A number is six tokens, "P10" of that paper: its sign, four digits, and the power of ten they are multiplied by. Each place has
an alphabet of its own, so that whatever is drawn is a number. What is told is the median of several drawn numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from keepworth.episodes.model import Tokens

DIGITS, LARGEST = 4, 10
PLACES = (2, *[10] * DIGITS, 2 * LARGEST + 1)
"""Symbols that may stand in each place: sign, digits, power of ten from -LARGEST on."""


def encoded(value: float) -> tuple[int, ...]:
    """The number's symbols, one per place. Four digits are kept, rounded; 0 is all zeros times 1.

    Raises ValueError for what is no finite number, or needs a power of ten that is not from -LARGEST to LARGEST."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    if value == 0:
        return (0, *[0] * DIGITS, LARGEST)
    mantissa, power = f"{abs(value):.{DIGITS - 1}e}".split("e")
    exponent = int(power) - (DIGITS - 1)
    if abs(exponent) > LARGEST:
        raise ValueError(
            f"{value} needs a power of ten of {exponent}; those from -{LARGEST} to {LARGEST} can be written"
        )
    digits = [int(each) for each in mantissa if each.isdigit()]
    return (int(value < 0), *digits, exponent + LARGEST)


def decoded(symbols: Sequence[int]) -> float:
    """The number that `symbols` say; raises ValueError where they are not one of each place."""
    if len(symbols) != len(PLACES) or not all(0 <= each < size for each, size in zip(symbols, PLACES, strict=True)):
        raise ValueError(f"{list(symbols)} is no number: it needs one symbol for each place, below {list(PLACES)}")
    sign, *digits, exponent = symbols
    whole = int("".join(map(str, digits)))
    return float(f"{'-' if sign else ''}{whole}e{exponent - LARGEST}")


class DigitDecoder(nn.Module):
    """Prompt ids in, a number out. Ids share `BUCKETS` embeddings by their remainder; a prompt's last `READ` tokens are read."""

    BUCKETS, READ, WIDTH = 6144, 128, 96

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(self.BUCKETS + 1, self.WIDTH, padding_idx=self.BUCKETS)
        self.position = nn.Embedding(self.READ, self.WIDTH)
        self.symbol = nn.Embedding(1 + sum(PLACES), self.WIDTH)
        self.place = nn.Embedding(len(PLACES), self.WIDTH)
        layers = {
            "nhead": 4,
            "dim_feedforward": 4 * self.WIDTH,
            "dropout": 0.1,
            "batch_first": True,
            "norm_first": True,
        }
        self.reader = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(self.WIDTH, **layers),
            2,
            enable_nested_tensor=False,
        )
        self.writer = nn.TransformerDecoder(nn.TransformerDecoderLayer(self.WIDTH, **layers), 1)
        self.heads = nn.ModuleList(nn.Linear(self.WIDTH, size) for size in PLACES)
        self.first = [1 + sum(PLACES[:place]) for place in range(len(PLACES))]

    def read(self, prompts: Sequence[Tokens]) -> tuple[torch.Tensor, torch.Tensor]:
        """What the reader says of each token [B, L, W], and which of them are padding [B, L]."""
        kept = [prompt[-self.READ :] for prompt in prompts]
        ids = torch.full((len(kept), max(map(len, kept))), self.BUCKETS)
        for row, prompt in enumerate(kept):
            ids[row, : len(prompt)] = torch.tensor(prompt) % self.BUCKETS
        padding = ids == self.BUCKETS
        said = self.reader(self.token(ids) + self.position.weight[: ids.shape[1]], src_key_padding_mask=padding)
        return said, padding

    def places(self, said: torch.Tensor, padding: torch.Tensor, symbols: torch.Tensor) -> torch.Tensor:
        """Hidden states [B, 1 + P, W] of the places that follow nothing, the first, ... of `symbols` [B, P]."""
        start = torch.zeros(len(symbols), 1, dtype=torch.long)
        before = torch.cat([start, symbols + torch.tensor(self.first[: symbols.shape[1]], dtype=torch.long)], 1)
        count = before.shape[1]
        mask = torch.triu(torch.ones(count, count, dtype=torch.bool), 1)
        asked = self.symbol(before) + self.place.weight[:count]
        found: torch.Tensor = self.writer(asked, said, tgt_mask=mask, memory_key_padding_mask=padding)
        return found

    def loss(self, prompts: Sequence[Tokens], values: Sequence[float]) -> torch.Tensor:
        symbols = torch.tensor([encoded(value) for value in values])
        said, padding = self.read(prompts)
        hidden = self.places(said, padding, symbols[:, :-1])
        each = [
            nn.functional.cross_entropy(head(hidden[:, place]), symbols[:, place])
            for place, head in enumerate(self.heads)
        ]
        return torch.stack(each).sum()

    @torch.inference_mode()
    def numbers(self, prompt: Tokens, count: int, generator: torch.Generator) -> list[float]:
        """`count` numbers drawn for one prompt."""
        self.eval()
        said, padding = (each.expand(count, *each.shape[1:]) for each in self.read([prompt]))
        symbols = torch.zeros(count, 0, dtype=torch.long)
        for head in self.heads:
            shares = head(self.places(said, padding, symbols)[:, -1]).softmax(-1)
            symbols = torch.cat([symbols, torch.multinomial(shares, 1, generator=generator)], 1)
        return [decoded(each) for each in symbols.tolist()]
