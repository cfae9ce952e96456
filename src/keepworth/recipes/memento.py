"""Memento, first named AgentFly (arXiv 2508.16153): cases chosen by similarity, by a learned Q, or by a kernel Q per step.

K = 4 and cosine as in the paper (the released code uses 8). Differences: the parametric Q keeps its encoder frozen and is
trained at each write as the paper says, where the code trains offline; alpha, gamma and the rates of the multi-step form
are ours, because the paper does not give them. `explore` is 0 in the paper, so plain top-K never tries new cases.
"""

from __future__ import annotations

from keepworth.memory.policy.gates import admit_all
from keepworth.memory.policy.kernel_values import KernelQ
from keepworth.memory.policy.keyers import whole
from keepworth.memory.policy.maintainers import Capacity
from keepworth.memory.policy.presenters import Exemplars
from keepworth.memory.policy.retrievers import Everything, MostSimilar
from keepworth.memory.policy.selectors import AllRetrieved, BestValue
from keepworth.memory.policy.slots import Policy
from keepworth.memory.policy.values import CaseNetwork, Unvalued
from keepworth.memory.policy.writers import RawCases

SUMMARY = "cases chosen by similarity, by a network Q(s, c) learned online, or by a kernel Q with soft targets"


def non_parametric(*, seed: int = 0, k: int = 4, failures: bool = True, steps: bool = False) -> Policy:
    return Policy(
        "memento-np",
        whole,
        MostSimilar(k),
        Unvalued(),
        AllRetrieved(k),
        Exemplars(),
        RawCases(failures, steps),
        admit_all,
        (Capacity(),),
    )


def parametric(
    *,
    seed: int = 0,
    k: int = 4,
    rate: float = 0.01,
    updates: int = 2,
    pool: int = 0,
    explore: float = 0.0,
    failures: bool = True,
    steps: bool = False,
) -> Policy:
    """updates: steps of the optimiser at each write. pool: 0 ranks the whole bank by Q as the paper does; else only that many
    most similar cases are ranked."""
    return Policy(
        "memento-p",
        whole,
        MostSimilar(pool) if pool else Everything(),
        CaseNetwork(rate=rate, steps=updates, seed=seed),
        BestValue(k, explore=explore),
        Exemplars(),
        RawCases(failures, steps),
        admit_all,
        (Capacity(),),
    )


def multi_step(
    *,
    seed: int = 0,
    k: int = 4,
    pool: int = 12,
    alpha: float = 0.1,
    gamma: float = 0.95,
    failures: bool = True,
    steps: bool = False,
) -> Policy:
    return Policy(
        "memento-kernel",
        whole,
        MostSimilar(pool),
        KernelQ(alpha=alpha, gamma=gamma),
        BestValue(k, temperature=alpha),
        Exemplars(),
        RawCases(failures, steps),
        admit_all,
        (Capacity(),),
    )
