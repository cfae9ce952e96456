"""Kill -9 during concurrent writes, again and again; then nothing acknowledged may be lost and the file must be sound.

    python -m benchmarks.memory.crash --rounds 500 --json benchmarks/memory/crash.json

Each round: two processes with two writing threads each, adding, adding in batches and superseding, with vectors, on one file;
both are killed at moments drawn at random; the file is opened, every line that was acknowledged is looked for, SQLite's and
our own checks are run, and (every tenth round and the last) the journal is replayed and compared with the view.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import default_rng  # here: two threads that are first to ask numpy for it trip over each other

from benchmarks.memory.engine import machine
from benchmarks.record import arguments, save
from keepworth.memory.memory import Memory
from keepworth.memory.store.maintenance import check, statistics
from keepworth.records import EncoderIdentity

PROCESSES, WRITERS, DEEP_EVERY = 2, 2, 10


class Drawn:
    """Vectors of eight numbers, as good as any for losing."""

    identity = EncoderIdentity("drawn", 8, True)

    def encode(self, texts: list[str]) -> np.ndarray:
        return default_rng(len(texts)).standard_normal((len(texts), 8), dtype=np.float32)


WRITER = """
import sys, threading
from benchmarks.memory.crash import Drawn
from keepworth.memory.memory import Memory
path, writers, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
m = Memory(path, encoder=Drawn(), durability=sys.argv[4])
out = threading.Lock()
def write(number):
    count = 0
    while True:
        text = f"{name} writer {number} line {count}"
        if count % 5 == 4:
            items = m.add_many([f"{text} part {part}" for part in range(5)])
        elif count % 7 == 6:
            items = [m.supersede(items[-1].id, text)]
        else:
            items = [m.add(text)]
        with out:
            for item in items:
                print(item.id, item.text, sep="\\t", flush=True)
        count += 1
threads = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
[t.start() for t in threads]
[t.join() for t in threads]
"""


def crash_rounds(path: Path | str, rounds: int, *, seconds: float = 0.3, seed: int = 0) -> dict[str, int]:
    """Counts of what was done and found. Raises AssertionError where anything is lost or unsound."""
    draw = random.Random(seed)
    acknowledged: dict[str, str] = {}
    deep = 0
    for number in range(rounds):
        running = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(path), str(WRITERS), f"round {number} process {process}", "process"],
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            for process in range(PROCESSES)
        ]
        lines = []
        for process in running:
            assert process.stdout is not None
            lines.append(process.stdout.readline())  # it is writing: now the clock starts
        for process in running:
            time.sleep(seconds * draw.random() / PROCESSES)
            os.kill(process.pid, signal.SIGKILL)
        for process in running:
            assert process.stdout is not None
            lines.extend(process.stdout.read().splitlines(keepends=True))
            process.wait()
        for line in lines:
            if line.endswith("\n"):
                id, text = line.rstrip("\n").split("\t")
                acknowledged[id] = text
        with Memory(path, encoder=Drawn()) as memory:
            present = {item.id: item.text for item in memory.get_all(limit=10**9, all_states=True)}
            lost = [id for id, text in acknowledged.items() if present.get(id) != text]
            assert not lost, f"round {number}: {len(lost)} acknowledged items lost, first {lost[0]}"
            replayed = number % DEEP_EVERY == DEEP_EVERY - 1 or number == rounds - 1
            problems = check(memory.store, deep=replayed)
            assert not problems, f"round {number}: {problems}"
            assert statistics(memory.store).unembedded == 0
            deep += replayed
    return {
        "kills": rounds * PROCESSES,
        "rounds": rounds,
        "acknowledged": len(acknowledged),
        "lost": 0,
        "replays": deep,
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--per-file", type=int, default=50, help="rounds on one file, before a new one")
    options = parser.parse_args()
    record: dict[str, Any] = {"files": 0, "machine": machine(), "rounds": 0}
    while record["rounds"] < options.rounds:
        rounds = min(options.per_file, options.rounds - record["rounds"])
        with tempfile.TemporaryDirectory() as folder:
            counts = crash_rounds(Path(folder) / "crash.mem", rounds, seed=record["files"])
        record.update({name: record.get(name, 0) + count for name, count in counts.items()})
        record["files"] += 1
        record["checks_sound"], record["seeds"] = record["rounds"], list(range(record["files"]))
        print(record, flush=True)
        save(options.json, record)


if __name__ == "__main__":
    main()
