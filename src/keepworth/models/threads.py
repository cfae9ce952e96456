"""Chooses the number of threads and the type of number to compute with.

bfloat16 is twice as fast as float32 on a processor that multiplies it, and several times slower on one that does not."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

    from keepworth.models.inprocess import InProcessModel

ROWS, WIDTH = 512, 1024
"""The shape of the product that is timed."""
FEWEST = 5
"""How often it is timed."""
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Linux's file with a container's microseconds of processor time per period."""


def available_cores() -> int:
    """Returns how many cores this process may use, by its affinity and by the quota of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if CPU_QUOTA.is_file():
        most, period = CPU_QUOTA.read_text().split()
        if most != "max":
            cores = min(cores, max(1, -(-int(most) // int(period))))
    return cores


def usual_threads() -> int:
    """Returns OMP_NUM_THREADS, where it is set; else the number of cores."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdecimal() and int(asked) else available_cores()


def settle_threads(model: InProcessModel, threads: int = 0) -> int:
    """Sets torch's threads to `threads`, or to the usual number, and returns how many there are."""
    import torch

    if model.device.type == "cpu":  # else the processor only launches the work
        torch.set_num_threads(threads or usual_threads())
    return torch.get_num_threads()


@contextmanager
def threads_set(count: int) -> Iterator[None]:
    """Sets torch's threads inside the block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def faster_type() -> Literal["bf16", "fp32"]:
    """Returns bfloat16, or float32 where a processor takes longer for bfloat16. It times a product as large as those of a group
    of answers, on one thread, in processor seconds, which hardly depend on the machine's other work."""
    import torch

    if torch.cuda.is_available():
        return "bf16"
    with threads_set(1):
        narrow, wide = product_seconds(torch.bfloat16), product_seconds(torch.float32)
    return "bf16" if narrow <= wide else "fp32"


def product_seconds(dtype: torch.dtype) -> float:
    """Returns the processor seconds of one linear layer over the rows of a group."""
    import torch

    rows, weight = torch.ones(ROWS, WIDTH, dtype=dtype), torch.ones(WIDTH, WIDTH, dtype=dtype)
    spent = []
    for _ in range(FEWEST):
        begun = time.process_time()
        torch.nn.functional.linear(rows, weight)
        spent.append(time.process_time() - begun)
    return min(spent)  # a kernel is built at the first call
