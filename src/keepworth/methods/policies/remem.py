"""ReMem (Evo-Memory): similar cases, pruned before they are shown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keepworth.memory.choose.case_policies import cases
from keepworth.memory.choose.pool import Pool
from keepworth.memory.choose.ready_slots import MostSimilar, Unvalued
from keepworth.memory.choose.slates import Mixture
from keepworth.memory.choose.slots import Candidates, Policy, Query, Values
from keepworth.registry import Method


@dataclass(frozen=True, slots=True)
class Pruned:
    """Drops retrieved items whose similarity is below `share` of the best: ReMem's Refine step without a model."""

    k: int = 4
    share: float = 0.8

    def __call__(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        floor = self.share * float(candidates.similarities[0]) - 1e-12 if len(candidates.rows) else -np.inf
        return Mixture("greedy", candidates.similarities, np.zeros(len(candidates.rows)), self.k, floor)


def remem(*, k: int = 4, share: float = 0.8, failures: bool = False, steps: bool = False) -> Policy:
    """Returns ReMem: the most similar cases, without those that are much less similar than the best.

    Args:
        k: The most that is shown.
        share: The share of the best similarity below which a case is left out.
        failures: Whether failed cases are kept and shown, too.
        steps: Whether each step of an episode is a case.
    """
    return cases("remem", MostSimilar(k), Unvalued(), Pruned(k, share), failures, steps)


METHOD = Method(
    kind="policy",
    name="remem",
    title="ReMem",
    paper="arXiv 2511.20857",
    about="Retrieves similar cases and prunes them before they are shown",
    tags=("token", "experiential", "retrieval"),
    claim="Mean success over four worlds is .78 with Claude 3.7 Sonnet, by ExpRAG .63 and without history .24.",
    differs="A rule prunes by similarity, where the paper's model decides.",
    make=remem,
    on={"k": 4, "share": 0.9},
    notes="It learns by writing cases of actions that were taken, and ranks by similarity alone.",
)
