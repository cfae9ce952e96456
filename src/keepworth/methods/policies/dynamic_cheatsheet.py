"""Dynamic Cheatsheet: one short sheet of what worked, curated after every task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keepworth.memory.choose.case_writers import RawCases
from keepworth.memory.choose.exemplars import exemplars
from keepworth.memory.choose.pool import Pool
from keepworth.memory.choose.ready_slots import MostSimilar, WithNotes
from keepworth.memory.choose.selection import NotesByValue
from keepworth.memory.choose.slots import Candidates, Policy, Query, Use, Valuer, Values, need, whole
from keepworth.memory.item import Status
from keepworth.methods.policies.ace import Deltas
from keepworth.methods.policies.reme import Counts
from keepworth.registry import Method


@dataclass(frozen=True, slots=True)
class Curator:
    """Keeps a sheet of at most `lines` lines: it archives those that were shown least, the oldest first."""

    lines: int = 48

    def __post_init__(self) -> None:
        need("the sheet", count={"lines": self.lines})

    def __call__(self, pool: Pool, valuer: Valuer, use: Use | None, time: int) -> None:
        if use is not None or not isinstance(valuer, Counts):
            return
        rows = pool.advising()
        shown = valuer.shown.upto(len(pool))
        # Items that were just written have had no chance to be used.
        older = rows[pool.born[rows] < time]
        for row in sorted(older.tolist(), key=lambda row: shown[row])[: max(0, len(rows) - self.lines)]:
            pool.set_status(row, Status.ARCHIVED)


class UsageCount(Counts):
    """Values a line by its successes minus its failures.

    The released curator counts how often a line was used with success, puts those with a high count first, and drops what turned
    out wrong. Notes of people are ordered so; they are not dropped.
    """

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        shown, won = (column.upto(len(pool))[candidates.rows] for column in (self.shown, self.won))
        return Values(2.0 * won - shown, np.zeros(len(candidates)))


def dynamic_cheatsheet(*, k: int = 4, lines: int = 48, alike: float = 0.8, steps: bool = False) -> Policy:
    """Returns Dynamic Cheatsheet: the most similar lines of a bounded sheet.

    Args:
        k: The most that is shown.
        lines: Lines of the sheet.
        alike: Cosine from which a success with the same action gets no line of its own.
        steps: Whether each step of an episode is a case.
    """
    writer = Deltas(RawCases(failures=False, steps=steps), alike)
    retriever, selector, curator = WithNotes(MostSimilar(k)), NotesByValue(k), Curator(lines)
    return Policy("dynamic-cheatsheet", whole, retriever, UsageCount(), selector, exemplars, writer, (curator,))


METHOD = Method(
    kind="policy",
    name="dynamic-cheatsheet",
    title="Dynamic Cheatsheet",
    paper="arXiv 2504.07952",
    about="Keeps one short sheet of lines that worked and drops the lines that are used least",
    tags=("token", "experiential", "formation", "evolution"),
    claim="Game of 24 rises from about 10 % to 99 % with GPT-4o, and AIME more than doubles with Claude 3.5.",
    differs=(
        "A rule with rewards curates the sheet, where the paper's curator is a model without labels, and only "
        "the k most similar lines are shown. Notes of people are ordered by their counts and are never dropped."
    ),
    label="analogue",
    make=dynamic_cheatsheet,
    on={"lines": 6},
)
