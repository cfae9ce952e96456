"""How much memory there is for what is kept while texts are drawn."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def whole_memory(device: torch.device) -> float:
    """Bytes of the device, or of the machine for the processor; infinite where the system does not say."""
    if device.type == "cuda":
        import torch

        return float(torch.cuda.get_device_properties(device).total_memory)
    return min(_line("MemTotal"), _container("max"))


def _container(name: str) -> float:
    """Of the control group that this process is in, as it sees it (version 2)."""
    try:
        with open(f"/sys/fs/cgroup/memory.{name}") as file:
            return float(file.read())
    except (OSError, ValueError):  # ValueError: "max", where there is no limit
        return math.inf


def _line(name: str) -> float:
    try:
        with open("/proc/meminfo") as lines:
            named = dict(line.split(":") for line in lines)
        return 1024.0 * int(named[name].split()[0])
    except (OSError, KeyError, ValueError):
        return math.inf
