"""Branching: local re-rolls of single sessions beside whole rollouts. Plain numbers.

Source: Memory-R2 (LoGo-GRPO), arXiv 2605.21768, and the scripts of ahmedehabb/Memory-R2. Whole rollouts soon hold different
memories, so the rewards of their later sessions are not comparable; re-rolls of one session from one memory state are.
A re-roll is an episode of its own (branch 1) in a group of its own; `advantages` then compares like with like, and
`local_weight` says how much the local branch counts in the loss.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence


def sampled_sessions(sessions: int, probability: float, seed: int) -> tuple[int, ...]:
    """Which sessions of an anchor rollout are re-rolled: each on its own with `probability` (0.5 in the paper)."""
    generator = random.Random(seed)
    return tuple(session for session in range(sessions) if generator.random() < probability)


def require_same_state(states: Mapping[int, Sequence[str]]) -> None:
    """Raises ValueError naming the first group whose members start from different memory states (content hashes)."""
    for group, hashes in states.items():
        if len(set(hashes)) > 1:
            raise ValueError(f"group {group} compares episodes that start from {len(set(hashes))} memory states")


def session_reward(
    answer_score: float, bank_tokens: int, seen_tokens: int, allowed: float, weight: float = 0.3
) -> float:
    """answer_score - weight * (share of the seen tokens by which the bank exceeds `allowed` of them).

    The paper's penalty acts on the part of the bank beyond a fraction of the tokens seen so far; its exact form and
    fraction could not be verified.
    """
    if seen_tokens < 1:
        raise ValueError(f"session_reward: seen_tokens must be positive, got {seen_tokens}")
    return answer_score - weight * max(0.0, bank_tokens / seen_tokens - allowed)
