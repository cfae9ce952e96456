"""What several policies share: how a policy of earlier cases is made, and the check of the name of a part to leave out."""

from __future__ import annotations

from collections.abc import Iterable

from keepworth.memory.choose.case_writers import RawCases
from keepworth.memory.choose.exemplars import Capacity, exemplars
from keepworth.memory.choose.ready_slots import MostSimilar
from keepworth.memory.choose.selection import Coherent
from keepworth.memory.choose.slots import Keyer, Maintainer, Policy, Retriever, Selector, Valuer, Writer, whole
from keepworth.memory.errors import InvalidPolicy


def cases(name: str, retriever: Retriever, valuer: Valuer, selector: Selector, failures: bool, steps: bool) -> Policy:
    """Returns a policy whose items are cases stored as they happened.

    Args:
        name: The name of the policy.
        retriever, valuer, selector: Its slots.
        failures: Whether failed cases are kept and shown, too.
        steps: Whether each step of an episode is a case.
    """
    return of_cases(name, retriever, valuer, selector, RawCases(failures, steps))


def of_cases(
    name: str,
    retriever: Retriever,
    valuer: Valuer,
    selector: Selector,
    writer: Writer,
    *maintainers: Maintainer,
    keyer: Keyer = whole,
) -> Policy:
    """Returns a policy that shows cases as `exemplars`, and keeps as many as `Capacity` allows.

    Args:
        name: The name of the policy.
        retriever, valuer, selector, writer: Its slots.
        keyer: What a situation is looked up by; the whole of it by default.
        *maintainers: They run after each episode, before the limit of cases.
    """
    return Policy(name, keyer, retriever, valuer, selector, exemplars, writer, (*maintainers, Capacity()))


BELOW = -1.5
"""A floor below every estimate, which excludes no item."""


def statistical(name: str, valuer: Valuer, pool: int, selection: Coherent, failures: bool) -> Policy:
    """Returns a policy that shows the items whose advice has the highest estimated value, as long as they do not contradict.

    Args:
        name: The name of the policy.
        valuer: It estimates the reward of what an item advises.
        pool: The most similar cases that are valued.
        selection: It chooses among them.
        failures: Whether failed cases are kept and shown, too.
    """
    return cases(name, MostSimilar(pool, 0.1), valuer, selection, failures, steps=True)


def floor(failures: bool) -> float:
    """Returns the value below which nothing is shown: 0 where warnings are among the items, so that no warning of an action that
    works is shown, else no bound."""
    return 0.0 if failures else BELOW


def require_part(without: str, parts: Iterable[str]) -> None:
    """Raises InvalidPolicy unless `without` is "" or one of `parts`."""
    if without and without not in parts:
        raise InvalidPolicy(f"there is no part {without!r} to leave out.", f"Parts: {', '.join(parts)}.")
