"""RewardTerm: a named number with a scope."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class RewardScope(str, Enum):
    TOKEN = "token"
    SEGMENT = "segment"
    EPISODE = "episode"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class RewardTerm:
    """`value` times `weight` enters the sum; a weight of 0 logs the term without training on it.
    `scorer` names the reader or judge, with its version, that produced it ("" for a plain function).
    `segment`: index among the episode's segments of the one that earned it (scope "segment" only)."""

    name: str
    value: float
    weight: float = 1.0
    scope: RewardScope = RewardScope.EPISODE
    scorer: str = ""
    segment: int | None = None


def combined(terms: tuple[RewardTerm, ...]) -> float:
    """The reward that credit starts from: the weighted sum of the episode's terms."""
    return sum(term.value * term.weight for term in terms)
