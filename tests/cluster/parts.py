"""What the tests' workers are made of. No torch, nothing heavy: a process is up in a moment."""

from __future__ import annotations

import os
from typing import Any

import numpy as np


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
