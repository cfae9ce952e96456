"""Every memory that learns without weights, by the name that `recollect eval stream --arms` takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from recollect.episodes.errors import UnknownName
from recollect.memory.policy.slots import Method
from recollect.recipes import amem, amemguard, exprag, memento, memrl, ours, reme, rememberer

METHODS: dict[str, Callable[..., Method]] = {
    "exprecent": exprag.exprecent,
    "exprag": exprag.exprag,
    "exprag-steps": partial(exprag.exprag, steps=True, failures=True),
    "remem": exprag.remem,
    "reme": partial(reme.reme, k=4),
    "memrl": memrl.memrl,
    "memrl-steps": partial(memrl.memrl, steps=True),
    "memento-np": memento.non_parametric,
    "memento-p": memento.parametric,
    "memento-kernel": memento.multi_step,
    "rememberer": rememberer.rememberer,
    "amem": amem.amem,
    "amemguard": partial(amemguard.amemguard, k=4),
    "ours": ours.ours,
    **{f"ours-without-{part}": partial(ours.ours, without=part) for part in ours.PARTS},
}


def method(name: str, *, seed: int = 0, **settings: object) -> Method:
    """A fresh composition; two calls share no state."""
    if name not in METHODS:
        raise UnknownName("memory method", name, METHODS)
    return METHODS[name](seed=seed, **settings)
