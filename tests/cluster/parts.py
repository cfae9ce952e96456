"""What the tests' workers are made of. No torch, nothing heavy: a process is up in a moment."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import numpy as np

from keepworth.episodes.episode import RewardTerm


class Counter:
    def __init__(self, start: int = 0) -> None:
        if start < 0:
            raise ValueError(f"start = {start} is below 0")
        self.value = start

    def add(self, more: int) -> int:
        self.value += more
        return self.value

    def fails(self, what: str) -> None:
        raise ValueError(what)

    def array(self, given: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return given * 2

    def pid(self) -> int:
        return os.getpid()


class Judge:
    """Stands where a `RewardWorker` does; a reward's value is the process that gave it."""

    async def terms(self, task: str, answer: str) -> list[RewardTerm]:
        if answer == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if answer == "fail":
            raise ValueError(f"no reward for {task}")
        await asyncio.sleep(0.2)  # others are asked meanwhile
        return [RewardTerm("process", float(id(self)))]
