"""ExpRecent (Evo-Memory): the latest cases, as they happened."""

from __future__ import annotations

from keepworth.memory.choose.case_policies import cases
from keepworth.memory.choose.ready_slots import MostRecent, Unvalued
from keepworth.memory.choose.selection import AllRetrieved
from keepworth.memory.choose.slots import Policy
from keepworth.registry import Method


def exprecent(*, k: int = 4, failures: bool = False, steps: bool = False) -> Policy:
    """Returns ExpRecent: the latest cases.

    Args:
        k: The most that is shown.
        failures: Whether failed cases are kept and shown, too.
        steps: Whether each step of an episode is a case.
    """
    return cases("exprecent", MostRecent(k), Unvalued(), AllRetrieved(k), failures, steps)


METHOD = Method(
    kind="policy",
    name="exprecent",
    title="ExpRecent",
    paper="arXiv 2511.20857",
    about="Shows the latest cases as they happened",
    tags=("token", "experiential", "retrieval"),
    claim="Mean success over four worlds rises from .24 to .58 with Claude 3.7 Sonnet.",
    make=exprecent,
    notes="It shows the newest items, whatever they earned.",
)
