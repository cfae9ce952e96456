"""What a memory costs over time beside PyTorch's LSTM, and how that grows with length.

    python -m benchmarks.control.cost --json benchmarks/control/cost.json

Forward and backward over one chunk, 8 batch elements, width 128, episodes starting with probability 0.01; processor time, the
least of three. `ratio` is to `torch.nn.LSTM` without resets in the same turn. `exponent` is the slope of log time over log
length from 1,024 to 16,384, for memories that are linear recurrences; 1 is linear.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.control.cells import Row, collect
from benchmarks.record import arguments
from keepworth.control import memory
from keepworth.registry import methods

BATCH, WIDTH = 8, 128
LENGTHS = (64, 256, 1024, 4096)
LONG = (1024, 4096, 16384)
TOO_LONG = 2000.0
"""Milliseconds after which longer inputs are left out."""
LINEAR = ("ffm", "lru", "s5", "mingru", "minlstm", "selective", "linear_attention")


def least(run: Callable[[], Any], times: int = 3) -> float:
    """The least processor time of a call, in milliseconds."""
    best = math.inf
    for _ in range(times):
        before = time.process_time()
        run()
        best = min(best, time.process_time() - before)
    return 1e3 * best


def trained(module: Any, x: Tensor, *given: Any) -> Callable[[], None]:
    """A forward and a backward pass."""

    def run() -> None:
        module(x, *given)[0].square().sum().backward()

    return run


def slope(points: dict[int, float]) -> float:
    """Of log time over log length, by least squares."""
    return float(np.polyfit(np.log(list(points)), np.log(list(points.values())), 1)[0])


def measure(name: str, lstm: torch.nn.LSTM) -> Row:
    module = memory(name, WIDTH, WIDTH)
    row: Row = {"memory": name, "parameters": sum(p.numel() for p in module.parameters())}
    for length in LENGTHS:
        x, starts = torch.randn(BATCH, length, WIDTH), torch.rand(BATCH, length) < 0.01
        spent, lstm_seconds = least(trained(module, x, None, starts)), least(trained(lstm, x))
        row[f"T={length}"] = {"ms": round(spent, 1), "ratio": round(spent / lstm_seconds, 2)}
        if spent > TOO_LONG:
            break
    if name in LINEAR:
        points = {length: least(trained(module, torch.randn(1, length, WIDTH))) for length in LONG}
        row["exponent"] = round(slope(points), 3)
    return row


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--memories", nargs="*", default=sorted(methods("memory_module")))
    options = parser.parse_args()
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(WIDTH, WIDTH, batch_first=True)
    rows = (measure(name, lstm) for name in options.memories)
    unit = "milliseconds of processor time, forward and backward, the least of 3"
    collect("cost", None, options.json, rows, lambda rows: {"unit": unit, "rows": rows}, ("torch", "numpy"))


if __name__ == "__main__":
    main()
