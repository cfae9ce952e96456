"""How `training_step` talks to its two sides, each in a process of its own so that memory can be told apart.

The work is one JSON argument. A side prints a line when it is ready, then for every line it reads takes one step and
prints one line: seconds, processor seconds, its own numbers, and its largest resident memory so far.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from benchmarks.record import most_resident

MARK = "@keepworth-speed "  # both sides load libraries that print; only lines that begin with this are ours


@dataclass(frozen=True, slots=True)
class Work:
    """What both sides do in a step: `prompts` of `texts` in turn, `group` completions of exactly `tokens` tokens each,
    one update of a rank-`rank` adapter. The first step is a warm-up, with completions of `warm_up` tokens.

    memory: bytes of data that the process may allocate. device: where the model is. recomputed: ours computes each layer
    again in the backward pass. trl_micro_batch: completions per backward pass of TRL; trl_dtype: of its frozen weights."""

    model: str
    texts: tuple[str, ...]
    threads: int
    prompts: int
    group: int
    tokens: int
    rank: int = 16
    learning_rate: float = 1e-5
    warm_up: int = 16
    memory: int = 0
    device: str = "cpu"
    recomputed: bool = False
    trl_micro_batch: int = 8
    trl_autocast: bool = True
    trl_dtype: str = "bfloat16"
    trl_checkpointing: bool = False

    def length(self, step: int) -> int:
        return self.tokens if step else min(self.tokens, self.warm_up)

    def batch(self, number: int) -> list[str]:
        return [self.texts[(number * self.prompts + i) % len(self.texts)] for i in range(self.prompts)]

    def argument(self) -> str:
        return json.dumps(asdict(self))


def reward(text: str) -> float:
    """Anything that differs within a group, so that every completion has an advantage: here its length in characters."""
    return len(text) + sum(map(ord, text)) / 1e6


def read_work() -> Work:
    """The work; from here on this process allocates no more than the work says, and fails instead of being killed."""
    given = json.loads(sys.argv[1])
    work = Work(**{**given, "texts": tuple(given["texts"])})
    if work.memory:
        resource.setrlimit(resource.RLIMIT_DATA, (work.memory, work.memory))
    return work


def serve(step: Callable[[int], Mapping[str, Any]], about: Mapping[str, Any]) -> None:
    ready(about)
    for number in itertools.count():
        if not wait():
            return
        clock = Clock()
        report(clock, step(number))


def ready(about: Mapping[str, Any]) -> None:
    _say({**about, "loaded_rss": most_resident()})


def wait() -> bool:
    return bool(sys.stdin.readline())


class Clock:
    """Time since it was made, on the wall and on this process's processors: the second hardly feels a busy machine."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()


def report(since: Clock, extra: Mapping[str, Any]) -> None:
    spent = {"wall": time.perf_counter() - since.wall, "cpu": time.process_time() - since.cpu}
    _say({**spent, **extra, "peak_rss": most_resident(), **_peak_on_device()})


def finish() -> NoReturn:
    """Leave at once: a trainer in mid-loop has nothing to save here."""
    sys.stdout.flush()
    os._exit(0)


def _peak_on_device() -> dict[str, int]:
    """Most memory of a GPU that tensors had so far, in bytes; nothing where none was used."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {}
    return {"peak_device": torch.cuda.max_memory_allocated()}


def _say(values: Mapping[str, Any]) -> None:
    print(MARK + json.dumps(values), flush=True)
