"""Slots: keys and values of sequences of different ages, one row each, and how far each row has to be read.

One long sequence among many short ones would make all of them read as far as it does. So the long ones are kept in front,
and attention reads the rows behind them in a stretch of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from keepworth.episodes.needs import needs_llm

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from keepworth.models.attention import round_up
from keepworth.models.caches import DrawingCache, across


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """A prompt that was read: its last hidden state [H], keys and values [KV, P, D] by layer."""

    hidden: torch.Tensor
    keys: list[torch.Tensor]
    values: list[torch.Tensor]


class Slots(DrawingCache):
    """Keys and values of the live sequences, one row each, filled from the left to lengths of their own."""

    def __init__(self, layers: int, slots: int) -> None:
        super().__init__()
        self.lengths = torch.zeros(slots, dtype=torch.long)
        self.rows = torch.arange(slots)
        self.layers = Cache(layers=[SlotLayer(slots) for _ in range(layers)])

    def extend(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Make room for one token in each of the first `count` rows; their positions [count, 1] and mask [count, 1, 1, K]."""
        where = self.lengths[:count].clone()
        longest = int(where.max()) + 1
        for layer in self.layers.layers:
            layer.begin(self.rows[:count], where, longest)
        self.lengths[:count] += 1
        mask = torch.arange(columns_for(longest))[None, :] <= where[:, None]
        return where[:, None], mask[:, None, None]

    def put(self, row: int, source: Any, index: int, prompt: int, start: int, end: int) -> None:
        """A row from columns [0, prompt) and [start, end) of row `index` of another cache."""
        length = prompt + end - start
        self.lengths[row] = length
        for layer, other in zip(self.layers.layers, source.layers, strict=True):
            layer.reserve(length, other.keys, other.values)
            layer.keys[row, :, :prompt] = other.keys[index, :, :prompt]
            layer.values[row, :, :prompt] = other.values[index, :, :prompt]
            layer.keys[row, :, prompt:length] = other.keys[index, :, start:end]
            layer.values[row, :, prompt:length] = other.values[index, :, start:end]

    def put_prompt(self, row: int, prompt: ReadPrompt) -> None:
        length = prompt.keys[0].shape[1]
        self.lengths[row] = length
        for layer, keys, values in zip(self.layers.layers, prompt.keys, prompt.values, strict=True):
            layer.reserve(length, keys[None], values[None])
            layer.keys[row, :, :length] = keys
            layer.values[row, :, :length] = values

    def exchange(self, one: int, other: int) -> None:
        length = int(torch.maximum(self.lengths[one], self.lengths[other]))
        rows, swapped = [one, other], [other, one]
        self.lengths[rows] = self.lengths[swapped]
        for layer in self.layers.layers:
            layer.keys[rows, :, :length] = layer.keys[swapped, :, :length]
            layer.values[rows, :, :length] = layer.values[swapped, :, :length]

    def move(self, source: int, target: int) -> None:
        length = int(self.lengths[source])
        self.lengths[target] = length
        for layer in self.layers.layers:
            layer.keys[target, :, :length] = layer.keys[source, :, :length]
            layer.values[target, :, :length] = layer.values[source, :, :length]


_COLUMNS = 64
"""By how many columns buffers grow. They are multiplied whole: of a part of them, each product makes a copy."""


def columns_for(length: int) -> int:
    return round_up(length, _COLUMNS)


_WORTH = 0.8
"""Two stretches of rows are two products: they have to cost less than this share of what one would."""


_COPIED = 2.5
"""What a column costs in the second stretch: it is a part of the buffer."""


_FEW = 16
"""Below so many sequences, looking costs more than it could save."""


def row_widths(lengths: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    """Rows of these lengths in one stretch, (first, past the last, columns), or in two where those behind some point are
    enough shorter; nothing where there are few. The first reads all columns, the second as far as its longest."""
    if len(lengths) < _FEW:
        return ()
    rear = list(accumulate(reversed(lengths), max))[::-1]  # the longest from each row on
    split = _split(rear)
    return ((0, split, columns_for(rear[0])), (split, len(lengths), rear[split])) if split else ()


def misplaced(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of rows to exchange, so that the longest stand in front of where it is worth a second stretch."""
    if len(lengths) < _FEW:
        return []
    rows = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    long = set(rows[: _split([lengths[row] for row in rows])])
    behind = sorted(row for row in long if row >= len(long))
    return list(zip(behind, [row for row in range(len(long)) if row not in long], strict=True))


def _split(rear: Sequence[int]) -> int:
    """rear: how far rows have to read from each one on, falling. After how many a second stretch should begin; 0 for none."""
    count, first = len(rear), rear[0]

    def cost(row: int) -> float:
        return row * first + (_COPIED * (count - row) * rear[row] if row else count * first)

    best = min(range(count), key=cost)
    return best if cost(best) < _WORTH * count * first else 0


def _wide(kept: torch.Tensor) -> torch.dtype:
    return torch.promote_types(kept.dtype, torch.float32)


class SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's rows [slots, KV, columns, D], in float32, or wider where the network is: see `GroupLayer`. `update` writes one
    token per row where `begin` said, and returns all columns that any row has filled, rounded up."""

    def __init__(self, slots: int) -> None:
        super().__init__()
        self.slots = slots
        self.columns = 0
        self.read = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.is_initialized = True

    def begin(self, rows: torch.Tensor, where: torch.Tensor, longest: int) -> None:
        self.at, self.read = (rows, where), columns_for(longest)
        if self.read > self.columns or 2 * self.read < self.columns:
            self._resize(self.read, self.keys, self.values)

    def reserve(self, length: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Columns for `length` tokens; heads and sizes like those of `keys` and `values`."""
        if length > self.columns:
            self._resize(columns_for(length), keys, values)

    def _resize(self, columns: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        kept = min(columns, self.columns)
        for name, like in (("keys", keys), ("values", values)):
            wide = _wide(like)
            # Zeros, because what masks hide is multiplied by 0: it must not be infinite or no number.
            other = like.new_zeros(self.slots, like.shape[1], columns, like.shape[3], dtype=wide)
            if name == "keys":
                other = across(other)
            if kept:
                other[:, :, :kept] = getattr(self, name)[:, :, :kept]
            setattr(self, name, other)
        self.columns = columns
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows, where = self.at
        self.keys[rows, :, where] = key_states[:, :, 0].to(self.keys.dtype)
        self.values[rows, :, where] = value_states[:, :, 0].to(self.values.dtype)
        count = len(rows)
        return self.keys[:count, :, : self.read], self.values[:count, :, : self.read]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.read, 0

    def get_seq_length(self) -> int:
        return max(0, self.read - 1)

    def get_max_length(self) -> int:
        return self.columns
