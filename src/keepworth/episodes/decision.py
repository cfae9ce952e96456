"""Decision: one recorded choice, with the probability it had. This is what makes credit possible."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class DecisionKind(str, Enum):
    SEARCH = "search"
    WRITE = "write"
    NOOP = "noop"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Decision:
    """candidates: item ids with their retrieval scores, best first; chosen: ids shown, in order;
    propensity: probability of the ordered choice under `policy` at its version (1.0 where deterministic)."""

    id: str
    kind: DecisionKind
    query: str
    candidates: tuple[tuple[str, float], ...]
    chosen: tuple[str, ...]
    propensity: float
    policy: str
    step: int = 0
