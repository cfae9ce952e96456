"""Memento, first named AgentFly, without parameters: cases by similarity."""

from __future__ import annotations

from keepworth.memory.policy.slots import Policy
from keepworth.methods.policies._cases import cases
from keepworth.methods.policies._parts import AllRetrieved, MostSimilar, Unvalued
from keepworth.registry import Method


def memento_np(*, k: int = 4, failures: bool = True, steps: bool = False) -> Policy:
    """The `k` most similar cases, failed ones too."""
    return cases("memento-np", MostSimilar(k), Unvalued(), AllRetrieved(k), failures, steps)


METHOD = Method(
    kind="policy",
    name="memento-np",
    title="Memento, non-parametric",
    paper="arXiv 2508.16153",
    about="cases by similarity",
    claim=(
        "DeepResearcher accuracy in the fifth pass 84.85 %, without cases 84.47 %; in the first 79.84 % and 78.65 %."
    ),
    differs="K = 4 and cosine as in the paper; the released code uses 8.",
    make=memento_np,
)
