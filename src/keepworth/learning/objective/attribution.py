"""Attribution: one delayed question-answering reward, given back to the steps that wrote the evidence. Plain numbers.

Source: Fine-Mem, arXiv 2601.08435 (evidence-anchored reward attribution; known from secondary descriptions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def attributed(
    scores: Sequence[float],
    retrieved: Sequence[Sequence[str]],
    writers: Mapping[str, Sequence[int]],
    steps: int,
    share: float = 0.5,
) -> list[float]:
    """Reward of each of `steps` steps: (1 - share) * mean(scores) / steps + share * N_t.

    N_t = sum over questions j and items m retrieved for j of scores[j] / (|retrieved[j]| n), for the items that step t
    wrote. scores [n]: each question's score; retrieved [n]: item ids shown to the reader; writers: item id -> the steps
    that wrote or revised it, among whom its part is split evenly (the paper credits the last alone). An item without
    writers was there before the episode and credits no one. share is the paper's beta: 0 spreads the reward evenly.

    If every question retrieves at least one item, all written in the episode, the rewards sum to mean(scores).
    """
    if len(scores) != len(retrieved):
        raise ValueError(f"attributed: {len(scores)} scores but {len(retrieved)} retrieved sets")
    if steps < 1 or not scores:
        raise ValueError(f"attributed: needs at least one step and one question, got {steps} and {len(scores)}")
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"attributed: share={share} is outside [0, 1]")
    count = len(scores)
    evidence = [0.0] * steps
    for score, items in zip(scores, retrieved, strict=True):
        for item in items:
            wrote = writers.get(item, ())
            for step in wrote:
                if not 0 <= step < steps:
                    raise ValueError(f"attributed: item {item!r} names step {step}, outside 0..{steps - 1}")
                evidence[step] += score / (len(items) * count * len(wrote))
    even = (1 - share) * (sum(scores) / count) / steps
    return [even + share * part for part in evidence]


def step_reward(
    attributed_part: float,
    valid_format: float,
    chunk_accuracy: float,
    compression: float,
    chunk_weight: float = 0.5,
    compression_weight: float = 0.05,
) -> float:
    """attributed + format + 0.5 * accuracy on questions about the step's own chunk + 0.05 * compression."""
    return attributed_part + valid_format + chunk_weight * chunk_accuracy + compression_weight * compression
