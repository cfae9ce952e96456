"""With how many threads, and in which type, to compute.

bfloat16 is twice as fast as float32 on a processor that multiplies it, and several times slower on one that does not.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel

PROMPTS, PROMPT_TOKENS, SAMPLES, NEW_TOKENS = 2, 200, 8, 3
"""The call that is timed: as the demo samples (groups of 8 behind prompts of some 200 tokens), cut off after three tokens."""
FEWEST = 3
"""Calls that are timed."""
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of processor time per period of a container, as Linux has it."""


def available_cores() -> int:
    """Cores that this process may use: by its affinity, and by the quota of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if CPU_QUOTA.is_file():
        most, period = CPU_QUOTA.read_text().split()
        if most != "max":
            cores = min(cores, max(1, -(-int(most) // int(period))))
    return cores


def usual_threads() -> int:
    """OMP_NUM_THREADS, where it is set; else all cores."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdecimal() and int(asked) else available_cores()


def settle_threads(model: InProcessModel, threads: int = 0) -> int:
    """Set torch's threads: to `threads`, or to the usual number. Returns how many there are."""
    import torch

    if model.device.type == "cpu":  # else the processor only hands out the work
        torch.set_num_threads(threads or usual_threads())
    return torch.get_num_threads()


def in_faster_type(load: Callable[[Literal["bf16", "fp32"]], InProcessModel]) -> InProcessModel:
    """The model in bfloat16, or in float32 where that computes faster. load: loads it in the type that is named.

    One copy at a time: what float32 needs is free again before the other is loaded."""
    wide = load("fp32")
    if wide.device.type != "cpu":
        return load("bf16")
    seconds = processor_seconds(wide)
    del wide
    gc.collect()  # a network refers to itself
    narrow = load("bf16")
    return narrow if processor_seconds(narrow) <= seconds else load("fp32")


def processor_seconds(model: InProcessModel) -> float:
    """Of one sampling call on one thread, for a model of any vocabulary and context. Unlike seconds on the wall, they hardly
    depend on what else the machine is doing."""
    import torch

    from keepworth.episodes.model import SamplingParams

    length = max(1, min(PROMPT_TOKENS, model.context_limit - NEW_TOKENS - 1))
    words = int(model.network.config.vocab_size)
    prompts = [tuple((7919 * row + 31 * column) % words for column in range(length)) for row in range(PROMPTS)]
    params, before = SamplingParams(NEW_TOKENS, n=SAMPLES, seed=0), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        spent = []
        for _ in range(1 + FEWEST):
            begun = time.process_time()
            model.sample(prompts, params)
            spent.append(time.process_time() - begun)
    finally:
        torch.set_num_threads(before)
    return min(spent[1:])  # kernels are built at the first call
