"""From opening a memory with many logged decisions to its first answer, in a new process: what was learned is read lazily.

    python -m benchmarks.memory.opening --decisions 100000 --json benchmarks/memory/opening.json

A file is filled with 1,000 items and `decisions` logged searches, of which a share was rewarded: 2,000 searches are asked, and
what they logged is logged again and again, under ids of its own. Then new processes open it, with the default policy and without
one. Times are wall clock, after the imports; beside the first answer also processor time, which other programs do not lengthen.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from keepworth.evaluation.engine import machine
from keepworth.memory.memory import Memory
from keepworth.memory.operations import Credit, Draft
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.store.log import Logged

ITEMS = 1000
ASKED = 2000
OPENED = """
import json, sys, time
from benchmarks.memory.opening import opened
print(json.dumps(opened(sys.argv[1], sys.argv[2] or None)))
"""


def query(number: int) -> str:
    return f"what helps with part {number * 7919 % ITEMS} of machine {number * 31 % 97}"


def filled(path: Path, decisions: int, every: int, *, batch: int = 1000) -> float:
    """Seconds it took. every: one of so many decisions is rewarded."""
    start = time.perf_counter()
    with Memory(path, encoder=HashedWords(384)) as memory:
        memory.add_many(
            [f"part {number} of machine {number * 31 % 97} wants oil {number % 7}" for number in range(ITEMS)]
        )
        kept: list[Logged] = []
        memory._decisions.later = kept.append  # type: ignore[method-assign]
        for begin in range(0, ASKED, 500):
            memory.search_many([query(number) for number in range(begin, begin + 500)], top_k=5)
        for begin in range(0, decisions, batch):
            numbers = range(begin, min(begin + batch, decisions))
            entries = [
                replace(one, decision=replace(one.decision, id=f"d{number:016x}"))
                for number in numbers
                for one in (kept[number % ASKED],)
            ]
            memory._decisions.write(entries)
            credits = [
                Credit(
                    float(number % 3 == 0), tuple((id, 1.0) for id in entry.decision.chosen), "user", entry.decision.id
                )
                for number, entry in zip(numbers, entries, strict=True)
                if number % every == 0
            ]
            memory.store.perform(memory.scope, [(credit, Draft()) for credit in credits])
    return time.perf_counter() - start


def opened(path: str, policy: str | None) -> dict[str, Any]:
    """Milliseconds from opening to the first answer, of which what learning took, and of the second answer."""
    encoder = HashedWords(384)
    encoder.encode(["warm"])
    start, busy = time.perf_counter(), time.process_time()
    memory = Memory(path, encoder=encoder, policy=policy)
    made = time.perf_counter()
    first = memory.search(query(1), top_k=5)
    answered, busy = time.perf_counter(), time.process_time() - busy
    memory.search(query(2), top_k=5)
    again = time.perf_counter()
    memory.close()
    return {
        "opened_ms": 1e3 * (made - start),
        "first_answer_ms": 1e3 * (answered - start),
        "first_answer_processor_ms": 1e3 * busy,
        "largest_resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "second_answer_ms": 1e3 * (again - answered),
        "hits": len(first),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=100_000)
    parser.add_argument("--every", type=int, nargs="+", default=[1, 10], help="one of so many decisions is rewarded")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--policies", nargs="+", default=["effect", ""])
    parser.add_argument("--keep", type=Path, help="a folder for the files, used again where they are there")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    record: dict[str, Any] = {"machine": machine(), "decisions": options.decisions, "items": ITEMS, "files": []}
    with tempfile.TemporaryDirectory() as folder:
        for every in options.every:
            path = (options.keep or Path(folder)) / f"decisions_{options.decisions}_{every}.mem"
            made = None if path.exists() else filled(path, options.decisions, every)
            one: dict[str, Any] = {"one_rewarded_of": every, "filled_seconds": made, "bytes": path.stat().st_size}
            for policy in options.policies:
                runs = []
                for _ in range(options.rounds):
                    command = [sys.executable, "-c", OPENED, str(path), policy]
                    runs.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
                one[policy or "no policy"] = runs
                middle, busy = (
                    sorted(run[key] for run in runs)[len(runs) // 2]
                    for key in ("first_answer_ms", "first_answer_processor_ms")
                )
                print(
                    f"1 of {every} rewarded, {policy or 'no policy'}: first answer after {middle:.0f} ms, {busy:.0f} of the "
                    "processor (medians)",
                    flush=True,
                )
            record["files"].append(one)
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
