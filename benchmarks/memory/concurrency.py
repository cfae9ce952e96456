"""Writers and readers of one file, each a process of its own, for a while; then the file is checked.

python -m benchmarks.memory.concurrency --writers 4 --readers 4 --seconds 60
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

WORK = """
import json, sys, time
import numpy as np
from recollect.episodes import EncoderIdentity
from recollect.memory.memory import Memory
path, role, number, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
class Drawn:
    identity = EncoderIdentity("drawn", 384, True)
    draw = np.random.default_rng(number)
    def encode(self, texts):
        return self.draw.standard_normal((len(texts), 384), dtype=np.float32)
m = Memory(path, encoder=Drawn(), read_only=role == "reader")
times, errors, late = [], [], []
end = time.time() + seconds
count = 0
while time.time() < end:
    start = time.perf_counter()
    try:
        if role == "writer":
            m.add(f"{time.time()} writer {number} line {count}", user_id=f"u{number}")
        else:
            m.search(f"writer line {count}", top_k=5)
            newest = m.store.items(m.scope, after=max(0, m.store.head() - 1))
            late += [time.time() - float(item.text.split()[0]) for item in newest]
    except Exception as error:
        errors.append(repr(error))
    times.append(1e3 * (time.perf_counter() - start))
    count += 1
m.close()
print(json.dumps({"role": role, "count": count, "times": sorted(times)[:: max(1, count // 1000)], "errors": errors[:3],
                  "failed": len(errors), "freshest": min(late) if late else None}))
"""


def run(path: Path, writers: int, readers: int, seconds: float) -> dict[str, object]:
    """Counts, latencies in milliseconds, errors, and what a check of the file says."""
    from recollect.memory.memory import Memory
    from recollect.memory.upkeep import check

    Memory(path, encoder=None).close()
    roles = ["writer"] * writers + ["reader"] * readers
    with Memory(path, encoder=None) as first:
        first.add("0 the first line")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORK, str(path), role, str(number), str(seconds)], stdout=subprocess.PIPE, text=True
        )
        for number, role in enumerate(roles)
    ]
    outputs = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    result: dict[str, object] = {"errors": sum(output["failed"] for output in outputs)}
    for role in ("writer", "reader"):
        times = sorted(value for output in outputs if output["role"] == role for value in output["times"])
        done = sum(output["count"] for output in outputs if output["role"] == role)
        if times:
            result[role] = {"done": done, "p50": times[len(times) // 2], "p95": times[int(0.95 * len(times))]}
    with Memory(path, encoder=None) as memory:
        written = result.get("writer")
        expected = 1 + (written["done"] if isinstance(written, dict) else 0)
        result["lost"] = expected - len(memory)
        result["problems"] = check(memory.store)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = run(Path(folder) / "shared.mem", arguments.writers, arguments.readers, arguments.seconds)
    print(json.dumps(result, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
