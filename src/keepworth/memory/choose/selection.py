"""Selectors: they choose candidates by value, as a distribution over slates, so that every choice has a propensity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keepworth.base.arrays import Bools, Numbers, Rows
from keepworth.memory.choose.actions import SURE, Actions
from keepworth.memory.choose.pool import Pool, advice
from keepworth.memory.choose.slates import Mixture
from keepworth.memory.choose.slots import Candidates, Query, Values, need


@dataclass(frozen=True, slots=True)
class AllRetrieved:
    """Shows every candidate up to `k`, in the retriever's order."""

    k: int = 4

    def __post_init__(self) -> None:
        need("the selection", count={"k": self.k})

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        order = -np.arange(len(candidates.rows), dtype=np.float64)
        return Mixture("greedy", order, np.zeros(len(order)), self.k)


@dataclass(frozen=True, slots=True)
class NotesByValue:
    """Shows candidates up to `k` in the retriever's order, but notes of people by their values: those above 0 come before all
    others, and those below 0 last."""

    k: int = 4

    def __post_init__(self) -> None:
        need("the selection", count={"k": self.k})

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        n = len(candidates)
        worth = np.where(pool.content[candidates.rows] < 0, values.means, 0.0)
        order = np.empty(n)
        order[np.argsort(-worth, kind="stable")] = -np.arange(n)
        return Mixture("greedy", order, np.zeros(n), self.k)


@dataclass(frozen=True, slots=True)
class BestValue:
    """Shows the `k` candidates of highest value (Memento's parametric read), or with `temperature` > 0 a softmax (its eq. 5)."""

    k: int = 4
    temperature: float = 0.0
    explore: float = 0.0

    def __post_init__(self) -> None:
        need("the selection", count={"k": self.k}, rate={"explore": self.explore})

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        if self.temperature > 0.0:
            return Mixture("gumbel", values.means / self.temperature, values.deviations, self.k, explore=self.explore)
        return Mixture("greedy", values.means, values.deviations, self.k, explore=self.explore)


@dataclass(frozen=True, slots=True)
class Coherent:
    """Fills slot by slot with the highest value above `floor` among items that do not contradict those chosen before.

    Args:
        explore: Probability of a uniform slate.
        drawn: Whether values are drawn from normal distributions (Thompson sampling); else means are used.
    """

    k: int = 4
    floor: float = 0.0
    explore: float = 0.01
    drawn: bool = False

    def __post_init__(self) -> None:
        need("the selection", count={"k": self.k}, rate={"explore": self.explore})

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        rows = candidates.rows
        conflicts, means = None, values.means.copy()
        if len(rows):
            contents = contents_in(pool, rows, query)
            conflicts = _contradictions(contents, pool.warns[rows], pool.actions)
            # The floor keeps out warnings of actions that work. Items that advise nothing stay, in the order of their values.
            low = (contents < 0) & (means <= self.floor)
            means[low] = self.floor + 1e-6 * np.exp(means[low] - self.floor)
        return Mixture(
            "thompson" if self.drawn else "greedy",
            means,
            np.maximum(values.deviations, 1e-3),
            self.k,
            self.floor,
            explore=self.explore if len(rows) else 0.0,
            conflicts=conflicts,
        )


def contents_in(pool: Pool, rows: Rows, query: Query) -> Numbers:
    """Returns what each item advises in this situation, as a number of its content. Conditions in its text are evaluated.

    Args:
        pool: The rows of all items.
        rows: The rows that are asked about.
        query: The situation, in which conditions hold or not.
    """
    contents: Numbers = pool.content[rows].copy()
    for index in np.flatnonzero(pool.conditional[rows]):
        contents[index] = pool.content_of(advice(pool.items[rows[index]], query.text)[0][0])
    return contents


def _contradictions(contents: Numbers, warns: Bools, actions: Actions) -> Bools:
    """Returns (n, n) flags of contradiction: two items advise different actions, or one warns of what the other advises."""
    same = actions.sameness(contents, contents) > SURE
    either = warns[:, None] | warns[None, :]
    result: Bools = np.where(either, same & (warns[:, None] != warns[None, :]), actions.apart(contents, contents))
    return result
