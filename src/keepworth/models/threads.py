"""With how many threads, and in which type, to compute: measured with the model's own passes.

Two threads can be many times slower than one on a busy machine, and half of the cores is half of the speed on an idle one.
bfloat16 is twice as fast as float32 on a processor that multiplies it, and several times slower on one that does not.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel

PROMPTS, PROMPT_TOKENS, SAMPLES, NEW_TOKENS = 2, 200, 8, 3
"""The pass that is timed: as the demo samples (groups of 8 behind prompts of some 200 tokens), cut off after three tokens."""
MARGIN = 1.1
"""Another count must be faster by this factor to be chosen instead of the usual one."""
ROUNDS = 5
"""Passes of each count after which the usual one may be chosen."""
FEWEST = 3
"""Passes of each count even where they take longer than all the time that there is."""
PATIENCE = 15.0
"""Seconds over which another count must be faster: a short busy interval shall not decide."""
HOPELESS = 2.0
"""A count that took this many times longer than another, its best pass against the other's worst, is not timed again."""
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of processor time per period of a container, as Linux has it."""
SLOWER = 1.5
"""From this factor on, a machine that continues a run counts as one of another speed."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What was chosen. seconds: the median of its passes; of each: that of every count that was tried."""

    threads: int
    seconds: float
    of_each: Mapping[int, float]


def available_cores() -> int:
    """Cores that this process may use: by its affinity, and by the quota of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if CPU_QUOTA.is_file():
        most, period = CPU_QUOTA.read_text().split()
        if most != "max":
            cores = min(cores, max(1, -(-int(most) // int(period))))
    return cores


def candidate_threads() -> tuple[int, ...]:
    """Counts worth trying, the usual one last. OMP_NUM_THREADS, where it is set, is what the user wants."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked):
        return (int(asked),)
    cores = available_cores()
    # Half of them: where two threads share a core, or where only half of the cores are fast ones.
    return tuple(sorted({1, max(1, cores // 2), cores}))


def fastest(
    counts: Sequence[int],
    timed: Callable[[int], float],
    clock: Callable[[], float] = lambda: time.monotonic(),
    patience: float = PATIENCE,
) -> Speed:
    """The thread count with the fastest passes. timed: makes one pass with that many threads and returns its seconds.

    All counts take turns, in changing order. The largest is the usual one: it is chosen after `ROUNDS` passes, another only
    if it was faster by `MARGIN` over `patience` seconds. So a machine that is busy for a moment gets all its cores, and
    one that stays busy does not.
    """
    usual = max(counts)
    tried = sorted(set(counts))
    spent: dict[int, list[float]] = {count: [] for count in tried}
    begun, rounds, enough = clock(), 0, ROUNDS if len(tried) > 1 else FEWEST
    while True:
        for count in tried if rounds % 2 == 0 else tried[::-1]:
            spent[count].append(timed(count))
        rounds += 1
        medians = {count: statistics.median(spent[count]) for count in tried}
        best = min(medians, key=lambda count: medians[count])
        chosen = best if medians[best] * MARGIN <= medians[usual] else usual
        if (rounds >= enough and chosen == usual) or (rounds >= FEWEST and clock() - begun >= patience):
            break
        bar = HOPELESS * min(max(spent[count]) for count in tried)
        tried = [count for count in tried if count == usual or min(spent[count]) < bar]
    return Speed(chosen, medians[chosen], {count: statistics.median(values) for count, values in spent.items()})


def one_pass(model: InProcessModel) -> Callable[[], object]:
    """One sampling call of the probe's shape, for a model of any vocabulary and context."""
    from keepworth.episodes.model import SamplingParams

    length = max(1, min(PROMPT_TOKENS, model.context_limit - NEW_TOKENS - 1))
    words = int(model.network.config.vocab_size)
    prompts = [tuple((7919 * row + 31 * place) % words for place in range(length)) for row in range(PROMPTS)]
    params = SamplingParams(NEW_TOKENS, n=SAMPLES, seed=0)
    return lambda: model.sample(prompts, params)


def settle_threads(model: InProcessModel, threads: int = 0) -> Speed:
    """Set torch's threads: to `threads`, or to what is fastest here. Either way the model's speed is measured."""
    import torch

    compute = one_pass(model)

    def timed(count: int) -> float:
        torch.set_num_threads(count)
        begun = time.perf_counter()
        compute()
        return time.perf_counter() - begun

    if model.device.type != "cpu":  # the processor only hands out the work
        count = threads or torch.get_num_threads()
        return Speed(count, timed(count), {})
    compute()  # kernels are built at the first pass
    speed = fastest((threads,) if threads else candidate_threads(), timed)
    torch.set_num_threads(speed.threads)
    return speed


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
    """Of one pass on one thread: unlike seconds on the wall, they hardly depend on what else the machine is doing."""
    import torch

    compute, before = one_pass(model), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        compute()
        spent = []
        for _ in range(FEWEST):
            begun = time.process_time()
            compute()
            spent.append(time.process_time() - begun)
    finally:
        torch.set_num_threads(before)
    return min(spent)
