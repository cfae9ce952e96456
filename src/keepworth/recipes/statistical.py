"""What a statistician would try first, as memories: the kernel mean of reward per action, nearest neighbours, linear bandits.

Nothing here was published as a memory for agents; the settings are round numbers. Each shows the items whose advice it values
highest, as long as they agree. With 1 % of even slates among them, so that no action is shut out.
"""

from __future__ import annotations

from keepworth.memory.policy.gates import admit_all
from keepworth.memory.policy.keyers import whole
from keepworth.memory.policy.maintainers import Capacity
from keepworth.memory.policy.presenters import Exemplars
from keepworth.memory.policy.regressions import KernelMean, LinearReward, NearestMean
from keepworth.memory.policy.retrievers import MostSimilar
from keepworth.memory.policy.selectors import Thompson
from keepworth.memory.policy.slots import Policy, Valuer
from keepworth.memory.policy.writers import RawCases

SUMMARY = "mean reward of the advised action nearby: by a kernel, by nearest neighbours, by linear bandits"
BELOW = -1.5
"""Under every estimate."""


def _method(name: str, valuer: Valuer, pool: int, selection: Thompson, failures: bool) -> Policy:
    return Policy(
        name,
        whole,
        MostSimilar(pool, 0.1),
        valuer,
        selection,
        Exemplars(),
        RawCases(failures, steps=True),
        admit_all,
        (Capacity(),),
    )


def _best(k: int, floor: float, explore: float = 0.01) -> Thompson:
    return Thompson(k, floor, off=0.0, probe=0.0, explore=explore, veto=False, greedy=True)


def _floor(failures: bool) -> float:
    """With warnings among the items what promises less than nothing is left out: else a warning of what works would be shown."""
    return 0.0 if failures else BELOW


def kernel_mean(
    *,
    seed: int = 0,
    k: int = 4,
    pool: int = 12,
    bandwidth: float = 0.1,
    prior: float = 0.2,
    weight: float = 0.005,
    keep: float = 1.0,
    failures: bool = True,
) -> Policy:
    return _method("kernel-mean", KernelMean(bandwidth, prior, weight, keep), pool, _best(k, 0.0), failures)


def kernel_mean_of_items(
    *, seed: int = 0, k: int = 1, pool: int = 12, bandwidth: float = 0.15, prior: float = 0.3, keep: float = 1.0
) -> Policy:
    valuer = KernelMean(bandwidth, prior, 0.3, keep, of_items=True)
    return _method("kernel-mean-items", valuer, pool, _best(k, BELOW, 0.05), True)


def nearest_mean(
    *, seed: int = 0, k: int = 4, pool: int = 12, n: int = 5, prior: float = 0.2, failures: bool = False
) -> Policy:
    return _method("nearest-mean", NearestMean(n, prior), pool, _best(k, _floor(failures)), failures)


def linucb(
    *, seed: int = 0, k: int = 4, pool: int = 12, alpha: float = 0.3, ridge: float = 0.3, failures: bool = False
) -> Policy:
    return _method("linucb", LinearReward(alpha, ridge), pool, _best(k, _floor(failures), 0.0), failures)


def linear_thompson(
    *, seed: int = 0, k: int = 4, pool: int = 12, deviation: float = 0.2, ridge: float = 0.3, failures: bool = False
) -> Policy:
    selection = Thompson(k, _floor(failures), off=0.0, probe=0.0, explore=0.0, veto=False)
    return _method("linear-thompson", LinearReward(0.0, ridge, deviation), pool, selection, failures)
