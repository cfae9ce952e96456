"""How many threads to compute with: measured, because two can be many times slower than one on a busy machine."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence


def calibrated_threads(candidates: Sequence[int] = (), seconds: float = 1.0) -> int:
    """The thread count with the shortest matrix products, each timed for its share of `seconds`; torch is set to it.

    candidates: 1 and the number of cores this process may use, where none are given.
    """
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    tried = sorted(set(candidates or (1, cores)))
    left, right = torch.randn(256, 576), torch.randn(576, 1536)
    best = {}
    for threads in tried:
        torch.set_num_threads(threads)
        times = []
        end = time.perf_counter() + seconds / len(tried)
        while time.perf_counter() < end:
            begun = time.perf_counter()
            torch.mm(left, right)
            times.append(time.perf_counter() - begun)
        # The median, not the best: what counts is how it goes with whatever else runs here.
        best[threads] = sorted(times)[len(times) // 2]
    chosen = min(best, key=lambda threads: best[threads])
    torch.set_num_threads(chosen)
    return chosen
