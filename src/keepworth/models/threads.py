"""With how many threads, and in which type, to compute.

bfloat16 is twice as fast as float32 on a processor that multiplies it, and several times slower on one that does not.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

    from keepworth.models.inprocess import InProcessModel

ROWS, WIDTH = 512, 1024
"""The product that is timed."""
FEWEST = 5
"""How often."""
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


def faster_type() -> Literal["bf16", "fp32"]:
    """bfloat16, or float32 where a processor takes longer for it. What is timed is a product as large as those of a group of
    answers, on one thread; seconds of the processor hardly depend on what else the machine is doing."""
    import torch

    if torch.cuda.is_available():
        return "bf16"
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        narrow, wide = product_seconds(torch.bfloat16), product_seconds(torch.float32)
    finally:
        torch.set_num_threads(before)
    return "bf16" if narrow <= wide else "fp32"


def product_seconds(dtype: torch.dtype) -> float:
    """Of the processor, for one linear layer over the rows of a group."""
    import torch

    rows, weight = torch.ones(ROWS, WIDTH, dtype=dtype), torch.ones(WIDTH, WIDTH, dtype=dtype)
    spent = []
    for _ in range(FEWEST):
        begun = time.process_time()
        torch.nn.functional.linear(rows, weight)
        spent.append(time.process_time() - begun)
    return min(spent)  # a kernel is built at the first call
