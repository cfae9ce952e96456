"""Writers and readers of one file, each a process of its own, for a while; then the file is checked.

    python -m benchmarks.memory.concurrency --writers 4 --readers 4 --seconds 60 --json benchmarks/memory/concurrency.json

Writers add one line after the other. Readers search by words and by meaning, and look how far the journal is. From the
times at which writers got their acknowledgements and readers looked follows how stale a reader ever was, and how long after
its acknowledgement a line was first seen (which includes the reader's own searches and its waiting for a processor).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory.engine import at, machine
from keepworth.memory.memory import Memory
from keepworth.memory.store.maintenance import check

WORK = """
import json, sys, time
import numpy as np
from keepworth.episodes import EncoderIdentity
from keepworth.memory.memory import Memory
path, role, number, seconds, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
class Drawn:
    identity = EncoderIdentity("drawn", 384, True)
    draw = np.random.default_rng(number)
    def encode(self, texts):
        return self.draw.standard_normal((len(texts), 384), dtype=np.float32)
m = Memory(path, encoder=Drawn())
times, errors, seen = [], [], []
end = time.time() + seconds
while time.time() < end:
    start = time.perf_counter()
    try:
        if role == "writer":
            item = m.add(f"writer {number} line {len(times)}", user_id=f"u{number}")
            seen.append((time.time(), int(item.id[1:])))
        else:
            m.search(f"writer line {len(times)}", top_k=5)
    except Exception as error:
        errors.append(repr(error))
    times.append(1e3 * (time.perf_counter() - start))
    if role == "reader":
        looked = time.time()
        seen.append((looked, m.store.head()))
np.save(out, np.asarray(seen))
m.close()
print(json.dumps({"role": role, "times": times, "errors": errors[:3], "failed": len(errors)}))
"""


def run(path: Path, writers: int, readers: int, seconds: float) -> dict[str, Any]:
    """Counts, latencies in milliseconds, errors, staleness, and what a check of the file says."""
    with Memory(path, encoder=None) as first:
        first.add("the first line")
    roles = ["writer"] * writers + ["reader"] * readers
    seen = [path.with_name(f"seen{number}.npy") for number in range(len(roles))]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORK, str(path), role, str(number), str(seconds), str(seen[number])],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, role in enumerate(roles)
    ]
    outputs = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    result: dict[str, Any] = {
        "writers": writers,
        "readers": readers,
        "seconds": seconds,
        "errors": sum(output["failed"] for output in outputs),
        "first errors": [error for output in outputs for error in output["errors"]][:3],
    }
    for role in ("writer", "reader"):
        times = sorted(value for output in outputs if output["role"] == role for value in output["times"])
        if times:
            result[role] = {"done": len(times), "p50": at(times, 0.5), "p95": at(times, 0.95), "longest": times[-1]}
    logs = [np.load(file) for file in seen]
    result["visibility"] = visibility(logs[:writers], logs[writers:])
    with Memory(path, encoder=None) as memory:
        expected = 1 + sum(len(log) for log in logs[:writers])
        result["items"] = len(memory)
        result["lost"] = expected - len(memory)
        result["problems"] = check(memory.store)
    return result


def visibility(written: list[np.ndarray], looked: list[np.ndarray]) -> dict[str, Any]:
    """From (time of acknowledgement, journal entry) and (time of looking, newest entry seen), in milliseconds.

    stale: looks that began after a line was acknowledged and did not see it; delay: from a line's acknowledgement to the
    first look of each reader that saw it.
    """
    acknowledged = np.concatenate(written)
    acknowledged = acknowledged[np.argsort(acknowledged[:, 0], kind="stable")]
    newest = np.maximum.accumulate(acknowledged[:, 1])
    stale, oldest, delays, looks = 0, 0.0, [], 0
    for log in looked:
        looks += len(log)
        before = np.searchsorted(acknowledged[:, 0], log[:, 0], side="left")
        for time, head, count in zip(log[:, 0], log[:, 1], before, strict=True):
            if count and newest[count - 1] > head:
                stale += 1
                missed = acknowledged[:count][acknowledged[:count, 1] > head]
                oldest = max(oldest, 1e3 * (time - missed[0, 0]))
        first = np.searchsorted(log[:, 1], acknowledged[:, 1], side="left")  # heads only ever grow
        within = (first < len(log)) & (acknowledged[:, 0] >= log[0, 0])
        delays.append(1e3 * np.maximum(0.0, log[first[within], 0] - acknowledged[within, 0]))
    all_delays = np.sort(np.concatenate(delays)).tolist()
    return {
        "looks": looks,
        "stale": stale,
        "stalest": oldest,
        "delay p50": at(all_delays, 0.5),
        "delay p95": at(all_delays, 0.95),
        "delay p99": at(all_delays, 0.99),
        "delay longest": all_delays[-1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    setting = machine()
    with tempfile.TemporaryDirectory() as folder:
        result = run(Path(folder) / "shared.mem", arguments.writers, arguments.readers, arguments.seconds)
    result["machine"] = setting
    print(json.dumps(result, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
