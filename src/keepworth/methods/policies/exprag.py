"""ExpRAG (Evo-Memory): the most similar cases, as they happened."""

from __future__ import annotations

from keepworth.memory.choose.case_policies import cases
from keepworth.memory.choose.ready_slots import MostSimilar, Unvalued
from keepworth.memory.choose.selection import AllRetrieved
from keepworth.memory.choose.slots import Policy
from keepworth.registry import Method


def exprag(*, k: int = 4, failures: bool = False, steps: bool = False) -> Policy:
    """Returns ExpRAG: the most similar cases.

    Args:
        k: The most that is shown.
        failures: Whether failed cases are kept and shown, too, as in the paper's separate table.
        steps: Whether each step of an episode is a case.
    """
    return cases("exprag", MostSimilar(k), Unvalued(), AllRetrieved(k), failures, steps)


METHOD = Method(
    kind="policy",
    name="exprag",
    title="ExpRAG",
    paper="arXiv 2511.20857",
    about="Shows the most similar earlier cases as they happened",
    tags=("token", "experiential", "retrieval"),
    claim="Mean success over four worlds rises from .24 to .63 with Claude 3.7 Sonnet.",
    differs="The encoder is the memory's, where the paper's is bge-base-en-v1.5.",
    make=exprag,
    notes="It learns by writing cases of actions that were taken, and ranks by similarity alone.",
)
