"""The first search of a new process in a memory that has learned from 4,000 rewards, beside that of another revision.

    git worktree add ../before REVISION
    python -m benchmarks.memory.cold_taught --before ../before --size 100000 --json benchmarks/memory/cold_taught.json

REVISION has to open files of this one's format. The memory is that of `engine`: each of 100 people has 1 % of the notes, and
searches of 20 of them, with 2,000 questions, were rewarded. Both revisions have a copy of the file, in which each learned from
the last 160 rewards itself. The processes of both are run in turn, five of each kind. Times are of the wall and the processor;
ratios are of processor time, this revision over the other, in each round. A size that is in the JSON and not asked for stays as
it is.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory.engine import (
    COLD_RUNS,
    DIMENSION,
    THREADS,
    BenchmarkCorpus,
    Figure,
    GivenVectors,
    at,
    corpus,
    fill,
    in_a_process,
    line,
    machine,
)
from benchmarks.record import arguments, save
from keepworth.memory.memory import Memory

HERE = "benchmarks.memory.cold_taught"
REWARDS, LAST, ASKED, PEOPLE = 4000, 160, 2000, 20
KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "by meaning": ({"mode": "dense"}, "<= 180 at 100k"),
    "by both": ({}, "<= 250 at 100k"),
    "with a filter": ({"where": {"topic": "t5"}}, "<= 200 at 100k"),
    "of one user's 1 %": ({"user_id": "u3"}, "<= 100 at 100k"),
}


def questions(folder: str) -> BenchmarkCorpus:
    asked = json.loads(Path(folder, "queries.json").read_text())
    return BenchmarkCorpus([], np.zeros((0, DIMENSION), np.float32), asked, np.load(Path(folder, "queries.npy")))


def teach(folder: str, name: str, begin: str, end: str) -> None:
    """For a process of its own: reward the searches with these numbers, and write how long a reward took."""
    data, spent = questions(folder), 0.0
    with Memory(Path(folder, name), encoder=GivenVectors(data), seed=0) as memory:
        for number in range(int(begin), int(end)):
            hits = memory.search(data.queries[number % ASKED], user_id=f"u{number % PEOPLE}")
            start = time.process_time()
            memory.reward(hits.decision, float(number % 3 == 0))
            spent += time.process_time() - start
    sys.stdout.write(json.dumps({"reward_ms": 1e3 * spent / (int(end) - int(begin))}))


def measure(size: int, folder: Path, before: Path | None) -> list[Figure]:
    data = corpus(size, queries=ASKED)
    (folder / "queries.json").write_text(json.dumps(data.queries))
    np.save(folder / "queries.npy", data.query_vectors)
    np.save(folder / "first.npy", data.query_vectors[:1])
    with Memory(folder / "this.mem", encoder=GivenVectors(data)) as memory:
        fill(memory, data, size)
    revisions = {"this.mem": None, **({} if before is None else {"before.mem": before})}
    source = next(iter(reversed(revisions.values())))
    first = REWARDS - LAST
    run(source, HERE, "teach", str(folder), "this.mem", "0", str(first))
    for name in list(revisions)[1:]:
        shutil.copy(folder / "this.mem", folder / name)
    for name, source in revisions.items():
        run(source, HERE, "teach", str(folder), name, str(first), str(REWARDS))
    runs: dict[tuple[str, str], list[dict[str, float]]] = {}
    for _ in range(COLD_RUNS):
        for kind, (options, _target) in KINDS.items():
            for name, source in revisions.items():
                given = str(folder / name), str(folder / "first.npy"), data.queries[0], json.dumps(options)
                found = run(source, "benchmarks.memory.engine", "opened", *given)
                runs.setdefault((kind, name), []).append(found)
    figures = []
    for kind, (_, target) in KINDS.items():
        listed = {name: runs[kind, name] for name in revisions}
        for name, of in (("this.mem", ""), ("before.mem", ", revision before")):
            if name in listed:
                busy = sorted(one["processor_ms"] for one in listed[name])
                figures.append(
                    line(
                        f"first search {kind}{of}",
                        "ms",
                        sorted(one["first_ms"] for one in listed[name]),
                        target="" if of else target,
                        note=f"processor time {at(busy, 0.5):.0f} ms ({busy[0]:.0f} to {busy[-1]:.0f})",
                    )
                )
        if before is not None:
            pairs = zip(listed["this.mem"], listed["before.mem"], strict=True)
            ratios = sorted(one["processor_ms"] / other["processor_ms"] for one, other in pairs)
            note = f"processor time, {ratios[0]:.2f} to {ratios[-1]:.2f} over rounds"
            figures.append(
                Figure(
                    f"first search {kind}, times that of before",
                    "ratio",
                    statistics.median(ratios),
                    note=note,
                    n=len(ratios),
                )
            )
    return figures


def run(source: Path | None, module: str, function: str, *words: str) -> dict[str, Any]:
    """`in_a_process`, with the package of another revision if its folder is given."""
    usual = os.environ.get("PYTHONPATH")
    if source is not None:
        os.environ["PYTHONPATH"] = str(source.resolve() / "src")
    try:
        return in_a_process(module, function, *words)
    finally:
        if usual is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = usual


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--before", type=Path, help="a worktree of another revision")
    options = parser.parse_args()
    setting, began = machine(), time.time()
    with tempfile.TemporaryDirectory() as folder:
        rows = [asdict(figure) for figure in measure(options.size, Path(folder), options.before)]
    for row in rows:
        print(f"{row['name']:<60} {row['p50']:>10.4g} {row['unit']}  {row['note']}", flush=True)
    fresh = {
        "size": options.size,
        "seed": 0,
        "machine": setting,
        "seconds": round(time.time() - began, 1),
        "figures": rows,
    }
    if options.json is not None:
        records = json.loads(options.json.read_text()) if options.json.exists() else []
        others = (one for one in records if one["size"] != options.size)
        save(options.json, sorted([*others, fresh], key=lambda one: one["size"]))


if __name__ == "__main__":
    for name in THREADS:
        os.environ.setdefault(name, "1")
    main()
