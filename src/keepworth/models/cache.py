"""Keys and values of a batch while it is being sampled: one buffer per layer, written in place, never re-concatenated."""

from __future__ import annotations

from typing import Any

from keepworth.episodes.extras import needs_llm

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


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

    def keep_rows(self, rows: torch.Tensor) -> None:
        self.keys, self.values = self.keys[rows], self.values[rows]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.filled + query_length, 0

    def get_seq_length(self) -> int:
        return self.filled

    def get_max_length(self) -> int:
        return self.capacity


def buffer_cache(layers: int, capacity: int) -> Any:
    """A transformers cache of `layers` buffers that hold `capacity` columns each."""
    return Cache(layers=[BufferLayer(capacity) for _ in range(layers)])
