"""Memp: procedures from successes; a procedure that was followed and failed is revised in place."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from keepworth.base.arrays import Vectors
from keepworth.memory.choose.case_policies import of_cases, require_part
from keepworth.memory.choose.case_writers import RawCases, advised, ended, judged
from keepworth.memory.choose.pool import Advice, Pool, advice
from keepworth.memory.choose.ready_slots import MostSimilar, Unvalued, WithNotes
from keepworth.memory.choose.selection import AllRetrieved, NotesByValue
from keepworth.memory.choose.slots import Candidates, Finished, Policy, Query, Use, Valuer, Values, need
from keepworth.memory.item import Status
from keepworth.registry import Method

PARTS = ("adjustment",)
KEPT = 50
"""The latest outcomes of a note that are kept."""


@dataclass(frozen=True, slots=True)
class Adjusted:
    """Writes successes as they happened, and a revision of each shown procedure that turned out wrong.

    A procedure was wrong where the action that it advises failed, or the one that it warns of worked, in a situation whose cosine
    to its own is at least `alike`. The revision has the same key, says the opposite of the same action, and names the row that it
    replaces as `revises` (Memp, arXiv 2508.06433: a memory that fails is revised in place with what went wrong).
    """

    cases: RawCases
    alike: float = 0.0

    def __post_init__(self) -> None:
        need("an adjustment", rate={"alike": self.alike})

    def __call__(self, finished: Finished) -> list[Advice]:
        drafts, revised = self.cases(finished), set[int]()
        for use, good in judged(finished, self.cases.steps):
            for row in set(self.wrong(use, good, finished.pool)) - revised:
                assert finished.pool is not None
                key = finished.pool.items[row].key
                text = f"{key} -> {use.taken}: {ended(use, good)}"
                drafts.append(advised(use.taken, good, key, text, extra={"revises": row}))
                revised.add(row)
        return drafts

    def wrong(self, use: Use, good: bool, pool: Pool | None) -> list[int]:
        """Returns the shown rows whose advice the outcome contradicts.

        Args:
            use: What was shown, and which action was taken.
            good: Whether the episode succeeded.
            pool: The rows of all items.
        """
        assert pool is not None
        opposite = (use.taken, -1.0 if good else 1.0)
        near = use.candidates.similarities[list(use.slate)] >= self.alike
        return [
            row
            for row, alike in zip(use.rows, near.tolist(), strict=True)
            if alike and opposite in advice(pool.items[row], use.query.text)
        ]


class NoteOutcomes:
    """Values a note of a person by the latest outcome where it was shown in a situation with a cosine of at least `alike`: -1
    after a failure, else 0. The text of a person is not revised, so that what fails stands behind the others instead."""

    def __init__(self, alike: float) -> None:
        self.alike = alike
        self.outcomes: dict[int, deque[tuple[Vectors, bool]]] = {}

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        failed = [self.failed(row, query.vector) for row in candidates.rows.tolist()]
        return Values(np.where(failed, -1.0, 0.0), np.zeros(len(candidates)))

    def failed(self, row: int, situation: Vectors) -> bool:
        """Returns whether the latest showing of a note in a situation like this one failed."""
        near = (good for where, good in reversed(self.outcomes.get(row, ())) if float(where @ situation) >= self.alike)
        return not next(near, True)

    def learn(self, use: Use, pool: Pool) -> None:
        for row in use.rows:
            if pool.is_note(row):
                latest = self.outcomes.setdefault(row, deque(maxlen=KEPT))
                latest.append((use.query.vector, use.reward >= 0.5))


def _archive_revised(pool: Pool, valuer: Valuer, use: Use | None, time: int) -> None:
    """Archives the rows that a draft of this episode revises."""
    for new in np.flatnonzero(pool.born[: len(pool)] == time).tolist() if use is None else ():
        if "revises" in pool.items[new].metadata:
            pool.set_status(pool.items[new].metadata["revises"], Status.ARCHIVED)


def memp(*, k: int = 4, alike: float = 0.0, steps: bool = False, without: str = "") -> Policy:
    """Returns Memp: the most similar procedures, which are revised where they fail.

    Args:
        k: The most that is shown.
        alike: Cosine of situations from which a failure counts against a procedure that was followed.
        steps: Whether each step of an episode is a case.
        without: "adjustment" keeps successes alone and leaves them as they are, which is the paper's validation.
    """
    require_part(without, PARTS)
    cases = RawCases(failures=False, steps=steps)
    writer = cases if without else Adjusted(cases, alike)
    if without:
        return of_cases("memp", MostSimilar(k), Unvalued(), AllRetrieved(k), writer)
    return of_cases("memp", WithNotes(MostSimilar(k)), NoteOutcomes(alike), NotesByValue(k), writer, _archive_revised)


METHOD = Method(
    kind="policy",
    name="memp",
    title="Memp",
    paper="arXiv 2508.06433",
    about="Keeps procedures of what succeeded and revises in place those that were followed and failed",
    tags=("token", "experiential", "formation", "evolution"),
    claim="Success on ALFWorld rises from 42.14 % to 77.86 %, and on TravelPlanner from 71.93 % to 79.94 %.",
    differs=(
        "A procedure is a case that a rule revises into the opposite, where the paper's model writes scripts and reflects on "
        "what failed. A note of a person is not revised: after a failure it stands behind others in like situations."
    ),
    label="analogue",
    make=memp,
    parts=PARTS,
    on={"alike": 0.0},
)
