"""Non-parametric Memento, first named AgentFly: cases are chosen by similarity."""

from __future__ import annotations

from keepworth.memory.choose.case_policies import cases
from keepworth.memory.choose.ready_slots import MostSimilar, Unvalued
from keepworth.memory.choose.selection import AllRetrieved
from keepworth.memory.choose.slots import Policy
from keepworth.registry import Method


def memento_np(*, k: int = 4, failures: bool = True, steps: bool = False) -> Policy:
    """Returns non-parametric Memento: the most similar cases.

    Args:
        k: The most that is shown.
        failures: Whether failed cases are kept and shown, too.
        steps: Whether each step of an episode is a case.
    """
    return cases("memento-np", MostSimilar(k), Unvalued(), AllRetrieved(k), failures, steps)


METHOD = Method(
    kind="policy",
    name="memento-np",
    title="Memento, non-parametric",
    paper="arXiv 2508.16153",
    about="Chooses cases by similarity, without learning",
    tags=("token", "experiential", "retrieval"),
    claim="DeepResearcher accuracy in the fifth pass is 84.85 %, without cases 84.47 %.",
    differs="K is 4 and similarity the cosine as in the paper, where the released code uses 8.",
    make=memento_np,
    notes="It is the variant without values: it ranks by similarity alone.",
)
