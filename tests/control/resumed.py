"""The check of every trainer that a run which was stopped goes on as if it had not been."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def check_resumed_weights(make: Callable[[], Any], *networks: str, updates: int = 1) -> None:
    """Check that a run that is saved, and goes on in another trainer, ends with the weights of one that nobody stopped.

    Args:
        make: Makes a trainer; all that it makes are alike.
        networks: The names of the trainer's networks that are compared.
        updates: After how many of them the run is stopped.
    """
    whole, first, second = make(), make(), make()
    list(whole.train())
    for _ in range(updates):
        first.update()
    second.load(first.save())
    list(second.train())
    for name in networks:
        resumed = getattr(second, name).state_dict()
        weights = getattr(whole, name).state_dict()
        assert weights.keys() == resumed.keys()
        assert all(torch.equal(weight, resumed[key]) for key, weight in weights.items()), name
