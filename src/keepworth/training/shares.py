"""How several learners make one update: which micro-batches each runs, and how their results are added.

Every learner has all rows of the update and computes the same advantages and denominators. Each runs its share of the
micro-batches; gradients are added, and all take the same step. A learner that is alone runs all micro-batches and adds nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from keepworth.base.needs import needs_train

import torch
from torch import Tensor

if TYPE_CHECKING:
    from keepworth.training.learner_group import Distributed

T = TypeVar("T")


class Shares:
    """The share of learner `rank` (from 0) of `count`. By default there is one learner, for which all methods are free."""

    def __init__(self, rank: int = 0, count: int = 1, collective: Distributed | None = None) -> None:
        self.rank = rank
        self.count = count
        self.collective = collective

    def pick(self, loads: Sequence[float]) -> list[int]:
        """Returns the indices, in order, of the parts that this learner runs, given the parts' loads."""
        return divide(loads, self.count)[self.rank]

    def joined(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """Returns the sums of these tensors over all learners. They are exact where each number is computed by one learner and is
        0 elsewhere."""
        if self.count == 1:
            return parts
        kind = functools.reduce(torch.promote_types, (part.dtype for part in parts))
        whole = torch.cat([part.detach().reshape(-1).to("cpu", kind) for part in parts])
        assert self.collective is not None
        self.collective.add(whole)
        sums = torch.split(whole, [part.numel() for part in parts])
        return tuple(sum_.view(like.shape).to(like.device, like.dtype) for sum_, like in zip(sums, parts, strict=True))

    def summed(self, gradients: Sequence[Tensor | None], like: Sequence[Tensor]) -> list[Tensor | None]:
        """Returns the sums of the learners' gradients, one for each of the tensors `like`, in its type. A gradient that no
        learner has stays None, because an optimiser skips such a tensor."""
        if self.count == 1:
            return list(gradients)
        there = torch.tensor([float(gradient is not None) for gradient in gradients], dtype=like[0].dtype)
        filled = [torch.zeros_like(of) if given is None else given for given, of in zip(gradients, like, strict=True)]
        *sums, somewhere = self.joined(*filled, there)
        return [total if any_ > 0 else None for total, any_ in zip(sums, somewhere.tolist(), strict=True)]

    def gathered(self, items: Mapping[int, T]) -> list[T]:
        """Returns what all learners computed, in the order of the parts' numbers."""
        parts = [*items.items()]
        shares = [parts] if self.collective is None else self.collective.gather(parts)
        return [item for _, item in sorted((pair for share in shares for pair in share), key=itemgetter(0))]

    def first(self, function: Callable[[], T]) -> T:
        """Calls the function at the first learner only, and returns its result at all."""
        given: Any = function() if self.rank == 0 else None
        first: T = given if self.collective is None else self.collective.gather(given)[0]
        return first


def divide(loads: Sequence[float], count: int) -> list[list[int]]:
    """Divides the indices of the loads into `count` sorted shares: the largest load first, to the share with the least."""
    shares: list[list[int]] = [[] for _ in range(count)]
    totals = [0.0] * count
    for index in sorted(range(len(loads)), key=lambda number: -loads[number]):
        least = min(range(count), key=lambda number: (totals[number], len(shares[number])))
        shares[least].append(index)
        totals[least] += loads[index]
    return [sorted(share) for share in shares]


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fingerprints(values: Iterable[Tensor]) -> list[int]:
    """Returns the sum of each tensor's bits, read as whole numbers: it changes with any single bit."""
    return [
        int(value.detach().contiguous().view(_BITS[value.element_size()]).sum(dtype=torch.int64)) for value in values
    ]
