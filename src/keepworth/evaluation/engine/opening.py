"""From opening a memory to its first result, in a new process, and what is resident then."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from keepworth.evaluation.engine.corpus import GIVEN, Corpus
from keepworth.evaluation.engine.timing import Figure, at
from keepworth.memory.memory import Memory

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]


def first_results(path: Path, data: Corpus) -> Iterator[Figure]:
    import numpy as np

    asked = path.with_suffix(".npy")
    np.save(asked, data.query_vectors[:10])
    code = "import sys; from keepworth.evaluation.engine.opening import opened; opened(*sys.argv[1:])"
    runs = []
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", code, str(path), str(asked)], capture_output=True, check=True)
        runs.append(json.loads(done.stdout))
    first = sorted(run["open_ms"] for run in runs)
    note = "a new process; vectors mapped, pages in the system's cache"
    yield Figure(
        "open to first result", "ms", at(first, 0.5), first[-1], target="<= 700 at 1M", note=note, n=len(first)
    )
    last = runs[-1]
    note = (
        f"of it {last['file'] / 1e6:,.0f} MB mapped file pages the system may take back; "
        f"{last['before'] / 1e6:,.0f} MB before opening"
    )
    yield Figure("resident memory after ten searches", "MB", last["resident"] / 1e6, note=note)


def opened(path: str, asked: str) -> None:
    """For a process of its own: open, ask, and write how long it took and what is resident to standard output."""
    import numpy as np

    vectors = np.load(asked)

    class Asked:
        identity = GIVEN

        def encode(self, texts: Sequence[str]) -> Vectors:
            out: Vectors = vectors[[int(text) for text in texts]]
            return out

    before = _resident()["VmRSS"]
    start = time.perf_counter()
    with Memory(path, encoder=Asked(), log="off") as memory:
        memory.search("0", mode="dense")
        took = 1e3 * (time.perf_counter() - start)
        for number in range(1, len(vectors)):
            memory.search(str(number), mode="dense")
        now = _resident()
    result = {"open_ms": took, "before": before, "resident": now["VmRSS"], "file": now["RssFile"]}
    sys.stdout.write(json.dumps(result))


def _resident() -> dict[str, int]:
    """Bytes: VmRSS (all that is resident) and RssFile (of it: pages of mapped files). Zero where the system does not say."""
    out = {"VmRSS": 0, "RssFile": 0}
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return out
    for line in lines:
        name, _, value = line.partition(":")
        if name in out:
            out[name] = 1024 * int(value.split()[0])
    return out
