"""MemRL: cases behind a similarity gate, ranked by similarity and a moving average of the rewards that followed them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keepworth.base.arrays import Floats
from keepworth.memory.choose.case_policies import cases
from keepworth.memory.choose.pool import Pool
from keepworth.memory.choose.ready_slots import Column, MostSimilar
from keepworth.memory.choose.slates import Mixture
from keepworth.memory.choose.slots import Candidates, Policy, Query, Use, Values, need
from keepworth.registry import Method


class MovingAverage:
    """Q <- Q + rate * (r - Q) with r = +1 or -1, for every shown item (MemRL, arXiv 2601.03192, equation 9)."""

    def __init__(self, rate: float = 0.3) -> None:
        self.rate = rate
        self.reset()

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        return Values(self.q.upto(len(pool))[candidates.rows].copy(), np.zeros(len(candidates.rows)))

    def learn(self, use: Use, pool: Pool) -> None:
        q = self.q.upto(len(pool))
        for row in use.rows:
            q[row] += self.rate * ((2.0 * use.reward - 1.0) - q[row])

    def reset(self) -> None:
        self.q = Column()


@dataclass(frozen=True, slots=True)
class Blend:
    """(1 - share) * z(similarity) + share * z(Q), z over the candidates' own mean and deviation (MemRL, phase B)."""

    k: int = 3
    share: float = 0.5

    def __post_init__(self) -> None:
        need("the selection", count={"k": self.k}, rate={"share": self.share})

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        scores = (1.0 - self.share) * _standard(candidates.similarities) + self.share * _standard(values.means)
        scores += 1e-9 * values.means  # of two candidates with equal sums the one with the higher value comes first
        return Mixture("greedy", scores, np.zeros(len(scores)), self.k)


def _standard(values: Floats) -> Floats:
    if not len(values):
        return values
    spread = float(values.std())
    centred: Floats = values - values.mean()
    return centred / spread if spread > 1e-9 else np.zeros(len(values))


def memrl(
    *,
    k: int = 3,
    pool: int = 5,
    threshold: float = 0.4,
    share: float = 0.5,
    rate: float = 0.3,
    failures: bool = True,
    steps: bool = False,
) -> Policy:
    """Returns MemRL.

    Args:
        k: Cases shown.
        pool: Most cases that pass the similarity gate.
        threshold: Cosine below which a case does not pass the gate.
        share: Weight of the value beside the similarity; both are standardised.
        rate: Weight of the newest reward in the moving average.
        failures: Whether failed cases are kept and shown, too.
        steps: Whether each step of an episode is a case.
    """
    retriever, valuer = MostSimilar(pool, threshold), MovingAverage(rate)
    return cases("memrl", retriever, valuer, Blend(k, share), failures, steps)


METHOD = Method(
    kind="policy",
    name="memrl",
    title="MemRL",
    paper="arXiv 2601.03192",
    about="Drops memories below a similarity, and ranks the rest by similarity and the moving average of their rewards",
    tags=("token", "experiential", "retrieval"),
    claim=(
        "Success in the last of ten passes over the same tasks is .772 over five benchmarks, by plain "
        "retrieval .679 and without memory .631."
    ),
    differs=(
        "Similarity is standardised over the candidates, where the code uses constants of each benchmark, and "
        "the gate is .4, where the paper sets .25 to .62."
    ),
    make=memrl,
    on={"k": 4, "pool": 12},
)
