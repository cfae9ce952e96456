"""A group of learners in threads of one process: the sums and values of a group without a network."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch

from keepworth.training.learner_group import read_value, write_value
from keepworth.training.shares import Shares

T = TypeVar("T")


class Meeting:
    """Everybody puts a tensor down, and takes the sum, which is added up in the order of ranks."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count, timeout=120)
        self.given: list[torch.Tensor] = [torch.empty(0)] * count
        self.values: list[Any] = [None] * count


class Met:
    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._meeting, self._rank = meeting, rank

    def add(self, tensor: torch.Tensor) -> None:
        meeting = self._meeting
        meeting.given[self._rank] = tensor.clone()
        meeting.barrier.wait()
        first, *others = meeting.given
        assert all(other.shape == first.shape and other.dtype == first.dtype for other in others)
        total = first.clone()
        for other in others:
            total += other
        meeting.barrier.wait()
        tensor.copy_(total)

    def gather(self, value: Any) -> list[Any]:
        meeting = self._meeting
        meeting.values[self._rank] = write_value(value)
        meeting.barrier.wait()
        values = [read_value(body) for body in meeting.values]
        meeting.barrier.wait()
        return values


def in_threads(count: int, act: Callable[[Shares], T]) -> list[T]:
    """What `act` gives at each rank. Raises what one of them raised first."""
    meeting = Meeting(count)

    def one(rank: int) -> T:
        try:
            return act(Shares(rank, count, Met(meeting, rank) if count > 1 else None))
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(count) as pool:
        asked = [pool.submit(one, rank) for rank in range(count)]
    broken = [each.exception() for each in asked if each.exception() is not None]
    for error in sorted(broken, key=lambda each: isinstance(each, threading.BrokenBarrierError)):
        assert error is not None
        raise error
    return [each.result() for each in asked]
