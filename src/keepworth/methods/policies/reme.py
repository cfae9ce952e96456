"""ReMe: distilled experiences with counts, which are deleted when they do not pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from keepworth.base.text import as_line
from keepworth.memory.choose.case_policies import require_part
from keepworth.memory.choose.exemplars import Capacity
from keepworth.memory.choose.pool import ACTIVE, Pool
from keepworth.memory.choose.ready_slots import Column, MostSimilar
from keepworth.memory.choose.selection import AllRetrieved
from keepworth.memory.choose.slates import Mixture
from keepworth.memory.choose.slots import (
    Candidates,
    Policy,
    Presented,
    Query,
    Use,
    Valuer,
    Values,
    combined_advice,
    whole,
)
from keepworth.memory.item import Item, Status
from keepworth.methods.writers.distilled import Distilled
from keepworth.registry import Method


def guidance(items: list[Item], query: Query, similarities: Sequence[float]) -> Presented:
    """Shows the texts of experiences without the episodes behind them: ReMe's guidance as a template.

    Args:
        items: What is shown, in its order.
        query: What was asked, with the actions that are possible.
        similarities: The cosine of each item with the query.
    """
    if not items:
        return Presented("")
    lines = ["Guidance from experience:", *(f"- {as_line(item.text)}" for item in items)]
    return Presented("\n".join(lines), combined_advice(items, query, similarities))


class Counts:
    """Counts f, how often an item was shown, and u, the successes of tasks in which it was shown; graded rewards add their share
    ("Remember Me, Refine Me", arXiv 2512.10696, section 3.3)."""

    def __init__(self) -> None:
        self.shown, self.won = Column(), Column()

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        f, u = self.shown.upto(len(pool))[candidates.rows], self.won.upto(len(pool))[candidates.rows]
        return Values(u / np.maximum(f, 1.0), np.sqrt(0.25 / np.maximum(f, 1.0)))

    def learn(self, use: Use, pool: Pool) -> None:
        f, u = self.shown.upto(len(pool)), self.won.upto(len(pool))
        for row in use.rows:
            f[row] += 1.0
            u[row] += use.reward


@dataclass(frozen=True, slots=True)
class DeleteByUtility:
    """Archives an item shown at least `least` times whose share of successes is at most `share` (ReMe, equation 3)."""

    least: int = 5
    share: float = 0.5

    def __call__(self, pool: Pool, valuer: Valuer, use: Use | None, time: int) -> None:
        if use is None or not isinstance(valuer, Counts):
            return
        for row in use.rows:
            if pool.status[row] == ACTIVE and self._condemns(valuer, row, pool):
                pool.set_status(row, Status.ARCHIVED)

    def _condemns(self, counts: Counts, row: int, pool: Pool) -> bool:
        """Returns whether an item was shown often enough and won too seldom."""
        f, u = float(counts.shown.upto(len(pool))[row]), float(counts.won.upto(len(pool))[row])
        return f >= self.least and u <= self.share * f


@dataclass(frozen=True, slots=True)
class DeletedLast:
    """Shows the retrieved items in order, those last that the rule would delete: notes of people stay where they are."""

    k: int
    counts: Counts
    rule: DeleteByUtility

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        last = np.array([self.rule._condemns(self.counts, row, pool) for row in candidates.rows.tolist()], dtype=bool)
        order = -np.arange(len(last), dtype=np.float64) - len(last) * last
        return Mixture("greedy", order, np.zeros(len(order)), self.k)


PARTS = ("deletion",)


def reme(
    *, k: int = 4, least: int = 5, share: float = 0.5, alike: float = 0.98, steps: bool = False, without: str = ""
) -> Policy:
    """Returns ReMe.

    Args:
        k: The most that is shown.
        least: Uses after which an experience may be deleted.
        share: Share of successes at or below which it is.
        alike: Cosine of keys above which an experience with the same advice is not written again.
        steps: Whether each step of an episode is a case.
        without: "deletion" keeps experiences that do not pay.
    """
    require_part(without, PARTS)
    counts, rule, writer = Counts(), DeleteByUtility(least, share), Distilled(alike, steps)
    if without:
        return Policy("reme", whole, MostSimilar(k), counts, AllRetrieved(k), guidance, writer, (Capacity(),))
    selector, maintainers = DeletedLast(k, counts, rule), (rule, Capacity())
    return Policy("reme", whole, MostSimilar(k), counts, selector, guidance, writer, maintainers)


METHOD = Method(
    kind="policy",
    name="reme",
    title="ReMe",
    paper="arXiv 2512.10696",
    about="Stores distilled experiences with counts of use and deletes those that do not pay",
    tags=("token", "experiential", "formation", "evolution", "retrieval"),
    claim="The mean over BFCL-V3 and AppWorld with Qwen3-8B rises from 27.65 % to 34.94 %.",
    differs="Templates distil successes unless a model is given, k is 4 instead of 5, and retries with reflection are left out.",
    make=reme,
    parts=PARTS,
)
