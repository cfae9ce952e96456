"""Whole calls at once: every draft that waits is drawn to its end, and a prompt that a group shares is read and kept once.

Where everybody waits for everybody and the weights do not change meanwhile, no draft has to be parked or to make room
for another: then this is faster than `ContinuousBatch`, which keeps a prompt's keys and values once for each sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from keepworth.episodes.extras import needs_llm

import numpy as np
import torch

from keepworth.episodes.model import SamplingParams, Tokens
from keepworth.models.continuous import Draft, require_room
from keepworth.models.inprocess import InProcessModel


class GroupBatch:
    """Drafts in, finished drafts out, as from a `ContinuousBatch`. order: which draft comes first, the smallest key.

    A draft's draws are its own, so that it gets the same tokens from either, but for what its company does to rounding."""

    def __init__(self, model: InProcessModel, *, order: Callable[[Draft], Any]) -> None:
        self.model = model
        self.order = order
        self.waiting: list[Draft] = []
        self.steps = 0

    def add(self, draft: Draft) -> None:
        """Raises ContextOverflow where it could outgrow the model's window, ValueError where it asks for nothing."""
        require_room(self.model, draft)
        self.waiting.append(draft)

    def remove(self, draft: Draft) -> None:
        """Forget a draft; one that has ended or was never added is no error."""
        if draft in self.waiting:
            self.waiting.remove(draft)

    @property
    def busy(self) -> bool:
        return bool(self.waiting)

    def unfinished(self) -> int:
        """Tokens of drafts that have not ended."""
        return sum(len(each.ids) for each in self.waiting)

    def step(self) -> list[Draft]:
        """Everything that waits, drawn to its end, in as few calls of the model as the drafts' limits allow."""
        drafts, self.waiting = sorted(self.waiting, key=self.order), []
        self.steps += bool(drafts)
        by_prompt: dict[tuple[SamplingParams, int, Tokens], list[Draft]] = {}
        for draft in drafts:
            limits = replace(draft.params, seed=0, max_tokens=draft.params.max_tokens - len(draft.ids))
            by_prompt.setdefault((limits, draft.group, (*draft.prompt, *draft.ids)), []).append(draft)
        batches: dict[tuple[SamplingParams, int], list[tuple[Tokens, list[Draft]]]] = {}
        for (limits, _, prompt), own in by_prompt.items():
            batches.setdefault((limits, len(own)), []).append((prompt, own))
        for (limits, copies), entries in batches.items():
            self._draw(entries, replace(limits, n=copies))
        return drafts

    def _draw(self, entries: list[tuple[Tokens, list[Draft]]], params: SamplingParams) -> None:
        greedy = params.temperature == 0
        draws = None if greedy else torch.from_numpy(np.array([[each.draws() for each in own] for _, own in entries]))
        drawn = self.model.sample_at([prompt for prompt, _ in entries], params, draws)
        for (_, own), samples in zip(entries, drawn, strict=True):
            for draft, sample in zip(own, samples, strict=True):
                draft.ids += sample.ids
                draft.logprobs += sample.logprobs
                draft.finish = sample.finish
                draft.close_span(self.model.version)
