"""Parts that several policies share: policies that show earlier cases, and the check of the name of a part to leave out."""

from __future__ import annotations

from collections.abc import Iterable

from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.policy.slots import Policy, Retriever, Selector, Valuer, whole
from keepworth.methods.policies._exemplars import Capacity, Exemplars
from keepworth.methods.policies._parts import MostSimilar
from keepworth.methods.policies._selection import Coherent
from keepworth.methods.writers._episodes import RawCases


def cases(name: str, retriever: Retriever, valuer: Valuer, selector: Selector, failures: bool, steps: bool) -> Policy:
    """Returns a policy whose items are cases stored as they happened.

    Args:
        failures: Whether failed cases are kept and shown, too.
        steps: Whether each step of an episode is a case.
    """
    writer = RawCases(failures, steps)
    return Policy(name, whole, retriever, valuer, selector, Exemplars(), writer, (Capacity(),))


BELOW = -1.5
"""A floor below every estimate, which excludes no item."""


def statistical(name: str, valuer: Valuer, pool: int, selection: Coherent, failures: bool) -> Policy:
    """Returns a policy that shows the items whose advice has the highest estimated value, as long as they do not contradict."""
    return cases(name, MostSimilar(pool, 0.1), valuer, selection, failures, steps=True)


def best(k: int, floor: float, explore: float = 0.01) -> Coherent:
    """Returns a selector of the `k` items of highest value above `floor`. With probability `explore` it draws a uniform slate, so
    that every action keeps a chance."""
    return Coherent(k, floor, explore)


def floor(failures: bool) -> float:
    """Returns the value below which nothing is shown: 0 where warnings are among the items, so that no warning of an action that
    works is shown, else no bound."""
    return 0.0 if failures else BELOW


def require_part(without: str, parts: Iterable[str]) -> None:
    """Raises InvalidPolicy unless `without` is "" or one of `parts`."""
    if without and without not in parts:
        raise InvalidPolicy(f"there is no part {without!r} to leave out.", f"Parts: {', '.join(parts)}.")
