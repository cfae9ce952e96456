"""How much memory there is for what is kept while texts are drawn."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def free_memory() -> float:
    """Bytes that a process could still take; infinite where the system does not say."""
    return _line("MemAvailable")


def whole_memory(device: torch.device) -> float:
    """Bytes of the device, or of the machine for the processor; infinite where the system does not say."""
    if device.type == "cuda":
        import torch

        return float(torch.cuda.get_device_properties(device).total_memory)
    return _line("MemTotal")


def _line(name: str) -> float:
    try:
        with open("/proc/meminfo") as lines:
            named = dict(line.split(":") for line in lines)
        return 1024.0 * int(named[name].split()[0])
    except (OSError, KeyError, ValueError):
        return math.inf
