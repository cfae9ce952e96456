"""Times, what the machine could do at most in them, and what a reader needs to know of the machine."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

WARM = 20
"""Calls that are made first and not counted."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. limit: what one thread needs at least (it reads the same bytes, or syncs as often), in the same
    unit; target: what we hold ourselves to, in words; note: how it was taken; n: how many calls the percentiles are of."""

    name: str
    unit: str
    p50: float
    p95: float | None = None
    limit: float | None = None
    target: str = ""
    note: str = ""
    n: int = 1


def timed(calls: Sequence[Callable[[], object]], warm: int = WARM) -> list[float]:
    """Milliseconds of each call after the first `warm`."""
    out = []
    for number, call in enumerate(calls):
        start = time.perf_counter()
        call()
        if number >= warm:
            out.append(1e3 * (time.perf_counter() - start))
    return sorted(out)


def at(sorted_times: Sequence[float], share: float) -> float:
    return sorted_times[min(len(sorted_times) - 1, int(share * len(sorted_times)))]


def line(name: str, unit: str, times: Sequence[float], **rest: Any) -> Figure:
    return Figure(name, unit, at(times, 0.5), at(times, 0.95), n=len(times), **rest)


def machine() -> dict[str, Any]:
    """What a reader needs to judge the figures."""
    from importlib.metadata import version

    import apsw

    return {
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_average_at_start": os.getloadavg()[0],
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "versions": {name: version(name) for name in ("keepworth", "numpy", "apsw")},
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    parts = dict(line.split(":", 1) for line in lines if ":" in line)
    named = {key.strip(): value.strip() for key, value in parts.items()}
    return (
        f"{named.get('model name', platform.machine())} (family {named.get('cpu family')}, model {named.get('model')})"
    )


def reading_limit(matrix: Vectors, repeats: int = 15, warm: int = 2) -> float:
    """Milliseconds in which one thread reads `matrix`: the median of the fastest of three ways to touch every byte."""
    import numpy as np

    query = np.ones(matrix.shape[1], np.float32)
    words = matrix.reshape(-1).view(np.uint64)
    ways: list[Callable[[], object]] = [
        lambda: matrix @ query,
        lambda: matrix.sum(),
        lambda: np.bitwise_or.reduce(words),
    ]
    return min(at(timed([way] * repeats, warm=warm), 0.5) for way in ways)


def sync_limit(folder: Path, repeats: int = 30) -> float:
    """Milliseconds of appending 4 kB to a file and syncing it."""
    path = folder / "sync"
    with open(path, "wb") as file:

        def one() -> None:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())

        out = at(timed([one] * repeats, warm=3), 0.5)
    path.unlink()
    return out
