"""Episodes of which a test says only what it is about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from keepworth.records import Episode, RewardTerm, Segment, StopReason
from keepworth.records.model import Sample, Tokens


def episode_of(name: str, segments: Iterable[Segment] = (), rewards: Iterable[RewardTerm] = (), **more: Any) -> Episode:
    """One that is complete. more: fields that are not as usual."""
    usual = {"task": "t", "role": "a", "question": "", "answer": "", "expected": (), "stop": StopReason.COMPLETED}
    usual |= {"memory_snapshot": "", "policy_version": 0}
    return Episode(id=name, segments=tuple(segments), rewards=tuple(rewards), **{**usual, **more})


def call_of(role: str, prompt: Tokens, sample: Sample, **more: Any) -> Segment:
    """The call that drew a sample."""
    return Segment(role, "p", prompt, sample.ids, sample.logprobs, 1.0, sample.finish, sample.spans, "", **more)
