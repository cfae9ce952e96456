"""Segment: one model call, exactly as it happened."""

from __future__ import annotations

from dataclasses import dataclass

from keepworth.episodes.model import FinishReason, Tokens, VersionSpan


@dataclass(frozen=True, slots=True)
class Segment:
    """context: the ids the model saw; ids: what it drew (never decoded and re-encoded); logprobs: under the policy
    that drew them, at `temperature`; text: for people to read; memory_before, memory_after: content hashes of the bank;
    state: key of the environment's state before acting, equal for equal states and without step counters or times ("":
    not comparable)."""

    role: str
    prompt_id: str
    context: Tokens
    ids: Tokens
    logprobs: tuple[float, ...]
    temperature: float
    finish: FinishReason
    spans: tuple[VersionSpan, ...]
    text: str
    memory_before: str = ""
    memory_after: str = ""
    state: str = ""
