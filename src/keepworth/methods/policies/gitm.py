"""Ghost in the Minecraft: plans that succeeded often enough are condensed into one reference plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from keepworth.memory.choose.case_policies import of_cases, require_part
from keepworth.memory.choose.case_writers import RawCases
from keepworth.memory.choose.pool import Pool
from keepworth.memory.choose.ready_slots import MostSimilar, Unvalued
from keepworth.memory.choose.selection import AllRetrieved
from keepworth.memory.choose.slots import Candidates, Policy, Query, Use, Valuer, need
from keepworth.memory.item import Status
from keepworth.registry import Method

PARTS = ("references",)


def sub_goal(goal: str, observation: str) -> str:
    """Returns the situation to search by: the observation, or the task's text where it has none."""
    return observation or goal


@dataclass(frozen=True, slots=True)
class ReferenceFirst:
    """Retrieves the reference plan alone if the most similar record is one with a cosine of `alike` or more, else the `k`
    nearest."""

    k: int
    alike: float

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        similar = MostSimilar(self.k)(query, pool)
        near = len(similar.rows) > 0 and similar.similarities[0] >= self.alike
        if near and "successes" in pool.items[int(similar.rows[0])].metadata:
            return Candidates(similar.rows[:1], similar.similarities[:1])
        return similar


@dataclass(frozen=True, slots=True)
class Condense:
    """Makes a reference plan of `successes` records whose situations have a cosine of at least `alike` and most of which did the
    same: the newest of these becomes the plan, and the others are archived."""

    successes: int
    alike: float

    def __post_init__(self) -> None:
        need("a reference plan", count={"successes": self.successes}, rate={"alike": self.alike})

    def __call__(self, pool: Pool, valuer: Valuer, use: Use | None, time: int) -> None:
        if use is not None:
            return
        for new in np.flatnonzero(pool.born[: len(pool)] == time).tolist():
            rows = pool.advising()
            if new not in rows:
                continue
            near = rows[pool.similarities(pool.vectors[new], rows) >= self.alike].tolist()
            weights = {row: int(pool.items[row].metadata.get("successes", 1)) for row in near}
            if sum(weights.values()) < self.successes:
                continue
            votes = Counter[int]()
            for row, weight in weights.items():
                votes[int(pool.content[row])] += weight
            content, count = votes.most_common(1)[0]
            if 2 * count <= sum(weights.values()):
                continue
            reference = max(row for row in near if pool.content[row] == content)
            pool.revise(reference, successes=count)
            for row in near:
                if row != reference:
                    pool.set_status(row, Status.ARCHIVED)


def gitm(*, k: int = 4, successes: int = 5, alike: float = 0.98, steps: bool = False, without: str = "") -> Policy:
    """Returns Ghost in the Minecraft: a reference plan where a situation has one, else the most similar successes.

    Args:
        k: The most that is shown.
        successes: Records of one situation from which a reference plan is made.
        alike: Cosine from which two situations count as the same.
        steps: Whether each step of an episode is a case.
        without: "references" keeps and shows all records.
    """
    require_part(without, PARTS)
    retriever = MostSimilar(k) if without else ReferenceFirst(k, alike)
    condensing = () if without else (Condense(successes, alike),)
    writer = RawCases(failures=False, steps=steps)
    return of_cases("gitm", retriever, Unvalued(), AllRetrieved(k), writer, *condensing, keyer=sub_goal)


METHOD = Method(
    kind="policy",
    name="gitm",
    title="Ghost in the Minecraft",
    paper="arXiv 2305.17144",
    about="Condenses what succeeded often enough in one situation into one reference plan and shows that alone",
    tags=("token", "experiential", "formation"),
    claim="ObtainDiamond reaches 67.5 %, 47.5 points above the best before it.",
    differs="The reference is what most successes did, where the paper's model writes it, and there is no decomposer of goals.",
    label="analogue",
    make=gitm,
    parts=PARTS,
    notes="It learns by condensing records of actions that were taken, and ranks by similarity alone.",
)
