"""Servers of the in-process model, as the study compares them: one model, served in the way of an arm."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from benchmarks.serving.requests import BEGINNING
from benchmarks.speed.int8 import BF16, Steps
from keepworth.episodes.model import Tokens
from keepworth.models.caches import DrawingCache, buffer_cache
from keepworth.models.inprocess import ContinuousBatch, InProcessModel, PartialSample

IN_8_BITS = "linear_dynamic"
"""The product that is fastest here, by `benchmarks.speed.int8`."""


@dataclass(frozen=True, slots=True)
class Arm:
    """slots: 0 draws one whole answer after the other. keeps: the beginning that all prompts share is read once. rounded: tokens
    are drawn with weights in 8 bits; prompts are read in bfloat16."""

    name: str
    slots: int = 0
    refill: int = 1
    keeps: bool = False
    rounded: bool = False


class Server(Protocol):
    """Drafts in, finished drafts out. live: those that go on after a step."""

    live: list[PartialSample]

    @property
    def busy(self) -> bool: ...

    def add(self, draft: PartialSample) -> None: ...

    def step(self) -> list[PartialSample]: ...


class OneAtATime:
    """Whole answers in the order of their requests: one call of the model after the other."""

    def __init__(self, model: InProcessModel) -> None:
        self.model = model
        self.live: list[PartialSample] = []
        self._waiting: deque[PartialSample] = deque()

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def add(self, draft: PartialSample) -> None:
        self._waiting.append(draft)

    def step(self) -> list[PartialSample]:
        draft = self._waiting.popleft()
        draft.ids += self.model.sample([draft.prompt], draft.params)[0][0].ids
        return [draft]


@contextmanager
def keeping(model: InProcessModel, beginning: Tokens) -> Iterator[None]:
    """Inside, prompts that begin so are read from there on: keys and values of the beginning are copied into each cache."""
    read, length = model.hidden_states, len(beginning)
    first, kept = torch.tensor(beginning), buffer_cache(model.network.config.num_hidden_layers, length)
    with torch.inference_mode():
        read(first[None], torch.arange(length)[None], None, kept)

    def hidden_states(ids: torch.Tensor, positions: torch.Tensor, mask: Any, cache: Any, **attention: Any) -> Any:
        drawing = isinstance(cache, DrawingCache) or cache is None
        if drawing or ids.shape[1] <= length or not bool((ids[:, :length] == first).all()):
            return read(ids, positions, mask, cache, **attention)
        for layer, source in zip(cache.layers, kept.layers, strict=True):
            layer.begin_with(source, len(ids))
        rest = read(ids[:, length:], positions[:, length:], mask, cache, **attention)
        return torch.nn.functional.pad(rest, (0, 0, length, 0))

    vars(model)["hidden_states"] = hidden_states
    try:
        yield
    finally:
        del vars(model)["hidden_states"]


class Servers:
    """One model, served in the way of an arm."""

    def __init__(self, model: InProcessModel) -> None:
        warnings.filterwarnings("ignore", message=".*quantized tensor creation functions.*deprecated.*")
        self.model = model
        self.beginning = model.encode(BEGINNING)
        self._steps = Steps(model)

    @contextmanager
    def open(self, arm: Arm) -> Iterator[Server]:
        self._steps.way = IN_8_BITS if arm.rounded else BF16
        served = ContinuousBatch(self.model, arm.slots, refill=arm.refill) if arm.slots else OneAtATime(self.model)
        try:
            if arm.keeps:
                with keeping(self.model, self.beginning):
                    yield served
            else:
                yield served
        finally:
            self._steps.way = BF16
