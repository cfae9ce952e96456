"""Kernel means and ridge regressions of an action's reward, each counting as well as it has predicted."""

from __future__ import annotations

from collections.abc import Callable

from keepworth.memory.policy.mixture import ESTIMATORS, Estimator, MixtureValuer
from keepworth.memory.policy.slots import Policy
from keepworth.methods.policies._cases import best, require_part, statistical
from keepworth.registry import Method

PARTS: dict[str, Callable[[Estimator], bool]] = {
    "kernel": lambda estimator: not estimator.bandwidth,
    "ridge": lambda estimator: bool(estimator.bandwidth),
    "words": lambda estimator: not estimator.words,
    "fading": lambda estimator: estimator.keep == 1.0,
}
"""Estimators that stay where a part is left out."""


def mixture(
    *,
    seed: int = 0,
    k: int = 4,
    pool: int = 96,
    explore: float = 0.0,
    prior: float = 0.2,
    share: float = 0.01,
    failures: bool = True,
    without: str = "",
) -> Policy:
    """Items whose advice the mixture values highest.

    Args:
        without: One of `PARTS`, which is left out.
        prior, share: Of `MixtureValuer`.
    """
    require_part(without, PARTS)
    kept = tuple(estimator for estimator in ESTIMATORS if not without or PARTS[without](estimator))
    name = f"mixture-without-{without}" if without else "mixture"
    return statistical(name, MixtureValuer(kept, prior, share), pool, best(k, 0.0, explore), failures)


METHOD = Method(
    kind="policy",
    name="mixture",
    title="Mixture of estimators",
    about="kernel means and ridge regressions, each counting as well as it has predicted (ours)",
    differs="Not published: this project's own.",
    parts=tuple(PARTS),
    make=mixture,
)
