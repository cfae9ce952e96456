"""Keys and values of texts while they are drawn: one buffer per layer, written in place, never re-concatenated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from keepworth.episodes.needs import needs_llm

import torch
from torch.nn.functional import pad
from transformers.cache_utils import Cache, CacheLayerMixin

from keepworth.models.attention import Prompts, Standing, with_prompts
from keepworth.models.decoding_step import DecodingStep


class BufferLayer(CacheLayerMixin):  # type: ignore[misc]
    """`update` writes behind what is there and returns views of [B, KV, filled, D]."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.filled = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        rows, heads, _, size = key_states.shape
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys = key_states.new_empty(rows, heads, self.capacity, size)
        self.values = value_states.new_empty(rows, heads, self.capacity, value_states.shape[-1])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.filled + key_states.shape[2]
        if end > self.capacity:
            raise ValueError(f"the cache holds {self.capacity} columns and was asked to hold {end}")
        self.keys[:, :, self.filled : end] = key_states
        self.values[:, :, self.filled : end] = value_states
        self.filled = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def begin_with(self, head: BufferLayer, rows: int) -> None:
        """Start as `rows` copies of the one row that `head` holds."""
        filled = head.keys[:, :, : head.filled].expand(rows, -1, -1, -1)
        self.update(filled, head.values[:, :, : head.filled].expand(rows, -1, -1, -1))

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.filled + query_length, 0

    def get_seq_length(self) -> int:
        return self.filled

    def get_max_length(self) -> int:
        return self.capacity


def buffer_cache(layers: int, capacity: int) -> Any:
    """A transformers cache of `layers` buffers that hold `capacity` columns each."""
    return Cache(layers=[BufferLayer(capacity) for _ in range(layers)])


# Branches behind prompts that they share: the prompts stay as they were read, each branch has a row for what is its own.


class GroupCache:
    """Rows that begin together behind prompts which they share. layers: for the network. step: how a token is drawn for each row,
    once it was `asked`; None for the network's own modules.

    Everything is held in float32, or wider where the network is: products of it are taken at every step, and a bfloat16 product
    with a float32 result exists for these alone."""

    def __init__(self, read: Any, lengths: torch.Tensor, prompt_of: torch.Tensor, capacity: int) -> None:
        """read: a `buffer_cache` that holds the prompts [B], padded to one width; it is used up. lengths: [B], their tokens.
        prompt_of: [R], rising, the prompt of each row. capacity: tokens that a row may have of its own."""
        self.step: DecodingStep | None = None
        self.asked = False
        self._lengths, self._prompt_of = lengths, prompt_of
        standing = Standing.of(lengths, prompt_of)
        self.layers = Cache(layers=[GroupLayer(layer, standing, len(prompt_of), capacity) for layer in read.layers])

    def keep(self, left: torch.Tensor) -> None:
        """Go on with these rows, bool [R]; prompts without a row are dropped."""
        staying, prompt_of = torch.unique(self._prompt_of[left], return_inverse=True)
        dropped = None if len(staying) == len(self._lengths) else staying.to(self._lengths.device)
        if dropped is not None:
            self._lengths = self._lengths[dropped]
        self._prompt_of = prompt_of
        standing = Standing.of(self._lengths, prompt_of)
        for layer in self.layers.layers:
            layer.keep(left.to(self._lengths.device), dropped, standing)


def across(keys: torch.Tensor) -> torch.Tensor:
    """[.., columns, D] as it was, laid out as [.., D, columns]."""
    return keys.mT.contiguous().mT


_COLUMNS = 32
"""By how many tokens the rows' own buffers grow. They are multiplied whole: of a part of them, each product would make a copy."""


class GroupLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer: its prompts, and keys and values [R, KV, columns, D] of the rows' own, of which the first are filled.

    Keys lie as [.., D, columns], as their product with queries reads them."""

    def __init__(self, read: BufferLayer, standing: Standing, rows: int, capacity: int) -> None:
        super().__init__()
        self.capacity, self.filled, self.before = capacity, 0, read.filled
        self.columns = min(_COLUMNS, capacity)
        keys, values = read.keys[:, :, : read.filled], read.values[:, :, : read.filled]
        del read.keys, read.values
        wide = torch.promote_types(keys.dtype, torch.float32)
        self.prompts = Prompts(across(keys.to(wide)), values.to(wide), standing)
        # What masks leave out is multiplied by 0: it must not be infinite or no number.
        self.keys = keys.new_zeros(rows, keys.shape[1], keys.shape[3], self.columns, dtype=wide).mT
        self.values = values.new_zeros(rows, values.shape[1], self.columns, values.shape[3], dtype=wide)
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        pass

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.filled == self.columns:
            more = min(_COLUMNS, self.capacity - self.columns)
            self.columns += more
            self.keys = across(pad(self.keys, (0, 0, 0, more)))
            self.values = pad(self.values, (0, 0, 0, more))
        self.keys[:, :, self.filled] = key_states[:, :, 0]
        self.values[:, :, self.filled] = value_states[:, :, 0]
        self.filled += 1
        return with_prompts(self.keys, replace(self.prompts, tokens=self.filled)), self.values

    def keep(self, left: torch.Tensor, staying: torch.Tensor | None, standing: Standing) -> None:
        """staying: the prompts that do; None for all."""
        keys, values = self.prompts.keys, self.prompts.values
        if staying is not None:
            keys, values = across(keys[staying]), values[staying]
        self.prompts = Prompts(keys, values, standing)
        self.keys, self.values = across(self.keys[left]), self.values[left]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.before + self.filled + query_length, 0

    def get_seq_length(self) -> int:
        return self.before + self.filled

    def get_max_length(self) -> int:
        return self.before + self.capacity
