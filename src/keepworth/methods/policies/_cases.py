"""Policies that show earlier cases as examples share these slots."""

from __future__ import annotations

from keepworth.memory.policy.admission import admit_all
from keepworth.memory.policy.maintainers import Capacity
from keepworth.memory.policy.presenters import Exemplars
from keepworth.memory.policy.slots import Policy, Retriever, Selector, Valuer, whole
from keepworth.memory.policy.writers import RawCases


def cases(name: str, retriever: Retriever, valuer: Valuer, selector: Selector, failures: bool, steps: bool) -> Policy:
    """A policy of cases as they happened.

    Args:
        failures: Whether failed cases are kept and shown, too.
        steps: Whether each step of an episode is a case.
    """
    writer = RawCases(failures, steps)
    return Policy(name, whole, retriever, valuer, selector, Exemplars(), writer, admit_all, (Capacity(),))
