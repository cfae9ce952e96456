"""MemRL (arXiv 2601.03192): gate by similarity, rank by a blend of similarity and Q, Q a moving average of +1 and -1.

alpha = 0.3, lambda = 0.5, k1 = 5, k2 = 3, Q starts at 0, as published; the gate delta is set per benchmark there (0.25 to
0.62). Similarity is standardised over the candidates, where the code uses constants measured per benchmark.
"""

from __future__ import annotations

from keepworth.memory.policy.gates import admit_all
from keepworth.memory.policy.keyers import whole
from keepworth.memory.policy.maintainers import Capacity
from keepworth.memory.policy.presenters import Exemplars
from keepworth.memory.policy.retrievers import MostSimilar
from keepworth.memory.policy.selectors import Blend
from keepworth.memory.policy.slots import Policy
from keepworth.memory.policy.values import MovingAverage
from keepworth.memory.policy.writers import RawCases

SUMMARY = "two-phase retrieval: similarity gate, then a blend of similarity and a moving average of reward"


def memrl(
    *,
    seed: int = 0,
    k: int = 3,
    pool: int = 5,
    threshold: float = 0.4,
    share: float = 0.5,
    rate: float = 0.3,
    failures: bool = True,
    steps: bool = False,
) -> Policy:
    """steps: as for ExpRAG."""
    return Policy(
        "memrl",
        whole,
        MostSimilar(pool, threshold),
        MovingAverage(rate),
        Blend(k, share),
        Exemplars(),
        RawCases(failures, steps),
        admit_all,
        (Capacity(),),
    )
