"""Every memory that learns without weights, by the name that `keepworth eval stream --arms` takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

from keepworth.episodes.errors import UnknownName
from keepworth.memory.policy.same_episode import seeing_the_episode
from keepworth.memory.policy.slots import Policy
from keepworth.recipes import advantage, amem, amemguard, exprag, memento, memrl, reme, rememberer, statistical


def _alike(recipe: Callable[..., Policy]) -> Callable[..., Policy]:
    """`recipe` with items of the same episode before it, as `advantage` has them."""

    def composed(*, here: str = "among", **settings: Any) -> Policy:
        return seeing_the_episode(recipe(**settings), here)

    return composed


RIVALS: dict[str, Callable[..., Policy]] = {
    "exprecent": exprag.exprecent,
    "exprag": exprag.exprag,
    "remem": exprag.remem,
    "reme": partial(reme.reme, k=4),
    "memrl": memrl.memrl,
    "memento-np": memento.non_parametric,
    "memento-p": memento.parametric,
    "memento-kernel": memento.multi_step,
    "rememberer": rememberer.rememberer,
    "amem": amem.amem,
    "amemguard": partial(amemguard.amemguard, k=4),
    "kernel-mean": statistical.kernel_mean,
    "kernel-mean-items": statistical.kernel_mean_of_items,
    "nearest-mean": statistical.nearest_mean,
    "linucb": statistical.linucb,
    "linear-thompson": statistical.linear_thompson,
}
METHODS: dict[str, Callable[..., Policy]] = {
    **{name: _alike(recipe) for name, recipe in RIVALS.items()},
    "advantage": advantage.advantage,
    **{f"advantage-without-{part}": partial(advantage.advantage, without=part) for part in advantage.PARTS},
}


def settings_of(name: str) -> frozenset[str]:
    """What a method can be told: the keywords of its recipe."""
    return frozenset(signature(RIVALS.get(name) or METHODS[name]).parameters)


def method(name: str, *, seed: int = 0, **settings: object) -> Policy:
    """A fresh composition; two calls share no state."""
    if name not in METHODS:
        raise UnknownName("memory method", name, METHODS)
    return METHODS[name](seed=seed, **settings)
