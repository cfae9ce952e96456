"""RoMeRL: utilities of a fixed, small number, for kinds of task and kinds of advice instead of single memories."""

from __future__ import annotations

import numpy as np

from keepworth.base.arrays import Vectors
from keepworth.memory.choose.case_policies import cases
from keepworth.memory.choose.pool import Pool
from keepworth.memory.choose.ready_slots import MostSimilar
from keepworth.memory.choose.slots import Candidates, Policy, Query, Use, Values, need
from keepworth.methods.policies.memrl import Blend
from keepworth.registry import Method

Kind = tuple[int, bool]
"""The action that a memory speaks of, as a number, and whether the memory warns of it."""


class ReducedUtilities:
    """Keeps two utilities for each kind of task and piece of advice, however many memories give that advice.

    A task is of the kind with the most similar centre; it becomes a new centre where no cosine reaches `alike` and there are
    fewer than `most`. With r = 2 * reward - 1 and w_j = (1 / j) / (1 + 1/2 + ... + 1/n) for the memory at place j of n:

        gain <- gain + rate * w_j * (r - gain)    where r > 0
        loss <- loss + rate * w_j * (-r - loss)   where r < 0
        utility = gain - loss

    They are kept apart so that a success does not erase failures. After RoMeRL, arXiv 2608.02508: utilities of reduced order,
    positive and negative ones apart, credit by rank.
    """

    def __init__(self, rate: float = 0.6, alike: float = 0.5, most: int = 64) -> None:
        need("reduced utilities", count={"most": most}, rate={"rate": rate})
        self.rate, self.alike, self.most = rate, alike, most
        self.reset()

    def reset(self) -> None:
        self.centres: Vectors = np.zeros((0, 0), dtype=np.float32)
        self.gains: dict[tuple[int, Kind], float] = {}
        self.losses: dict[tuple[int, Kind], float] = {}

    def kind(self, vector: Vectors) -> int:
        """Returns the number of the nearest centre, or -1 where none is near and there is room for another."""
        if not len(self.centres):
            return -1
        near = self.centres @ vector
        best = int(near.argmax())
        return best if near[best] >= self.alike or len(self.centres) >= self.most else -1

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        kind = self.kind(query.vector)
        keys = [(kind, _advice(pool, row)) for row in candidates.rows.tolist()]
        means = np.array([self.gains.get(key, 0.0) - self.losses.get(key, 0.0) for key in keys])
        return Values(means, np.zeros(len(means)))

    def learn(self, use: Use, pool: Pool) -> None:
        kind = self.kind(use.query.vector)
        if kind < 0:
            kind = len(self.centres)
            fresh = use.query.vector[None]
            self.centres = np.concatenate([self.centres, fresh]) if kind else fresh.copy()
        reward = 2.0 * use.reward - 1.0
        utilities = self.gains if reward > 0.0 else self.losses
        weights = 1.0 / np.arange(1.0, len(use.rows) + 1.0)
        for row, weight in zip(use.rows, weights / max(weights.sum(), 1.0), strict=True):
            key = (kind, _advice(pool, row))
            before = utilities.get(key, 0.0)
            utilities[key] = before + self.rate * float(weight) * (abs(reward) - before)


def _advice(pool: Pool, row: int) -> Kind:
    return int(pool.content[row]), bool(pool.warns[row])


def romerl(
    *,
    k: int = 4,
    pool: int = 12,
    threshold: float = 0.25,
    share: float = 0.5,
    rate: float = 0.6,
    alike: float = 0.5,
    most: int = 64,
    failures: bool = True,
    steps: bool = False,
) -> Policy:
    """Returns RoMeRL: cases ranked by similarity and by the utility for the kind of task.

    Args:
        k: The most that is shown.
        pool: The most similar cases among which it chooses.
        threshold: The cosine below which a case is not retrieved.
        share: Weight of the utility beside the similarity.
        rate: The weight of the newest reward in a utility.
        alike: Cosine from which a task is of an existing kind.
        most: Kinds of task, which bounds the state.
        failures: Whether failed cases are kept and shown, too.
        steps: Whether each step of an episode is a case.
    """
    valuer = ReducedUtilities(rate, alike, most)
    return cases("romerl", MostSimilar(pool, threshold), valuer, Blend(k, share), failures, steps)


METHOD = Method(
    kind="policy",
    name="romerl",
    title="RoMeRL",
    paper="arXiv 2608.02508",
    about="Learns gains and losses of advice separately, for each kind of task, with credit by rank",
    tags=("token", "experiential", "evolution", "retrieval"),
    claim="Of the memories that other methods maintain 84.4 % are unnecessary.",
    differs=(
        "Only the abstract was available, so every formula is ours: kinds of task are at most 64 centres, and "
        "equal advice shares a utility."
    ),
    label="analogue",
    make=romerl,
)
