"""MemQ: the reward of a memory is also credited to the memories that were shown when it was written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from keepworth.memory.choose.case_policies import of_cases, require_part
from keepworth.memory.choose.case_writers import RawCases, judged
from keepworth.memory.choose.pool import Advice, Pool
from keepworth.memory.choose.ready_slots import MostSimilar
from keepworth.memory.choose.slots import Finished, Policy, Use, need
from keepworth.methods.policies.memrl import Blend, MovingAverage
from keepworth.registry import Method

PARTS = ("provenance", "true-parents")


@dataclass(frozen=True, slots=True)
class CasesWithParents:
    """Writes cases that name as `parents` the rows that were shown at the choice they record: the edges of the provenance graph.

    drawn: Whether as many earlier rows are drawn at random instead: the control, a graph of the same shape without information.
    """

    cases: RawCases
    drawn: bool = False

    def __call__(self, finished: Finished) -> list[Advice]:
        pool = finished.pool
        assert pool is not None
        uses = [use for use, good in judged(finished, self.cases.steps) if good or self.cases.failures]
        drafts: list[Advice] = []
        for draft, use in zip(self.cases(finished), uses, strict=True):
            parents = use.rows
            if self.drawn:
                generator = np.random.default_rng([61, finished.time, len(drafts)])
                parents = generator.choice(len(pool), size=len(parents), replace=False).tolist()
            drafts.append(replace(draft, extra={**(draft.extra or {}), "parents": tuple(parents)}))
        return drafts


class ProvenanceQ(MovingAverage):
    """Q <- Q + rate * (gamma * trace)^d * (r - Q), with r = +1 or -1, for every memory at depth d of the provenance graph.

    Depth 0 are the memories that were shown, depth 1 those that were shown when one of them was written, and so on; the shortest
    path to a memory counts. Nothing beyond `depth` is reached (MemQ, arXiv 2605.08374: TD(lambda) with structural distance in the
    place of time).
    """

    def __init__(self, rate: float = 0.3, gamma: float = 0.9, trace: float = 0.7, depth: int = 3) -> None:
        need("provenance", rate={"gamma": gamma, "trace": trace}, count={"depth": depth})
        self.decay, self.depth = gamma * trace, depth
        super().__init__(rate)

    def learn(self, use: Use, pool: Pool) -> None:
        q = self.q.upto(len(pool))
        reward = 2.0 * use.reward - 1.0
        for row, distance in _ancestors(use.rows, pool, self.depth if self.decay else 0).items():
            q[row] += self.rate * self.decay**distance * (reward - q[row])


def _ancestors(rows: Sequence[int], pool: Pool, depth: int) -> dict[int, int]:
    """Returns the rows and their ancestors up to `depth`, each with its shortest distance."""
    distances = dict.fromkeys(rows, 0)
    border = list(rows)
    for distance in range(1, depth + 1):
        parents = [parent for row in border for parent in pool.items[row].metadata.get("parents", ())]
        border = [row for row in dict.fromkeys(parents) if row not in distances and row < len(pool)]
        distances |= dict.fromkeys(border, distance)
    return distances


def memq(
    *,
    k: int = 4,
    pool: int = 12,
    threshold: float = 0.25,
    share: float = 0.5,
    rate: float = 0.3,
    gamma: float = 0.9,
    trace: float = 0.7,
    depth: int = 3,
    failures: bool = True,
    steps: bool = False,
    without: str = "",
) -> Policy:
    """Returns MemQ: MemRL's two phases over values that travel back along the provenance of memories.

    Args:
        k: The most that is shown.
        pool: The most similar cases among which it chooses.
        threshold: The cosine below which a case is not retrieved.
        share: The weight of the value beside the similarity.
        rate: The weight of the newest reward in the moving average.
        gamma, trace: Their product is the share of a credit that passes along one edge.
        depth: Edges after which no credit is given.
        failures: Whether failed cases are kept and shown, too.
        steps: Whether each step of an episode is a case.
        without: "provenance" credits the shown memories alone; "true-parents" draws the edges at random.
    """
    require_part(without, PARTS)
    valuer = ProvenanceQ(rate, gamma, 0.0 if without == "provenance" else trace, depth)
    writer = CasesWithParents(RawCases(failures, steps), drawn=without == "true-parents")
    return of_cases("memq", MostSimilar(pool, threshold), valuer, Blend(k, share), writer)


METHOD = Method(
    kind="policy",
    name="memq",
    title="MemQ",
    paper="arXiv 2605.08374",
    about="Gives each memory a value, and passes credit back to the memories that led to it",
    tags=("token", "experiential", "evolution", "retrieval"),
    claim="It has the highest success on six benchmarks, by up to 5.7 points where tasks have several steps.",
    differs=(
        "A memory is a case written without a model, and each ancestor moves by its own error, with discount, "
        "depth and selection of ours."
    ),
    label="small",
    make=memq,
    parts=PARTS,
)
