"""What several policies share: slots of those that show earlier cases, and the check of a part that is left out."""

from __future__ import annotations

from collections.abc import Iterable

from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.policy.slots import Policy, Retriever, Selector, Valuer, whole
from keepworth.methods.policies._exemplars import Capacity, Exemplars
from keepworth.methods.policies._parts import MostSimilar
from keepworth.methods.policies._selection import Coherent
from keepworth.methods.writers._episodes import RawCases


def cases(name: str, retriever: Retriever, valuer: Valuer, selector: Selector, failures: bool, steps: bool) -> Policy:
    """A policy of cases as they happened.

    Args:
        failures: Whether failed cases are kept and shown, too.
        steps: Whether each step of an episode is a case.
    """
    writer = RawCases(failures, steps)
    return Policy(name, whole, retriever, valuer, selector, Exemplars(), writer, (Capacity(),))


BELOW = -1.5
"""Under every estimate."""


def statistical(name: str, valuer: Valuer, pool: int, selection: Coherent, failures: bool) -> Policy:
    """What a statistician would try: items whose advice is valued highest, as long as they agree."""
    return cases(name, MostSimilar(pool, 0.1), valuer, selection, failures, steps=True)


def best(k: int, floor: float, explore: float = 0.01) -> Coherent:
    """The `k` of highest value above `floor`; `explore` is the share of even slates, so that no action is shut out."""
    return Coherent(k, floor, explore)


def floor(failures: bool) -> float:
    """With warnings among the items what promises less than nothing is left out: else a warning of what works would be shown."""
    return 0.0 if failures else BELOW


def require_part(without: str, parts: Iterable[str]) -> None:
    """Raises InvalidPolicy unless `without` is "" or one of `parts`."""
    if without and without not in parts:
        raise InvalidPolicy(f"there is no part {without!r} to leave out.", f"Parts: {', '.join(parts)}.")
