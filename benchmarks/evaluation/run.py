"""What docs/systems.md says of memories of other projects and of ours, by the command that everybody has, kept as numbers.

    python -m benchmarks.evaluation.run --data DATA --python RIVALS/bin/python [--only locomo-found] [--reader-runs runs]

Each run goes on where it stopped, in runs/eval/NAME, and leaves its summary in NAME.json beside this file; its seconds are of
the last command. No text of a benchmark is in it: LoCoMo is not ours to give. What is named as not run says why.
`python -m benchmarks.evaluation.page` writes the tables.

The reader of the headline is the answerer that `keepworth demo` trains, on training questions of LongMemEval: the run `demo` in
--reader-runs.

mem0 waits for the disk about fourteen times an entry. Temporary files on a disk in memory (`TMPDIR=/dev/shm`) make a run shorter
and its times of writing those of no disk; which it was is in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.evaluation.rivals import by_command, by_name
from keepworth.evaluation.evaluation_page import rows_of
from keepworth.evaluation.harness import Row
from keepworth.evaluation.summary import arm_of, gains, score

HERE = Path(__file__).parent
DEPTHS = ("turn@5", "turn@10", "turn@50", "shown")
FOUND = ("dense", "langgraph", "mem0", "bm25", "bm25s", "search", "keepworth")
READ = ("none", "random", "latest", "bm25", "dense", "langgraph", "mem0", "search", "keepworth")
TRAINED = ("--reader", "run:demo")
HEADLINE: dict[str, tuple[str, ...]] = {
    "longmemeval+500-read": ("longmemeval+500", *READ, "full", *TRAINED),
    "locomo-read": ("locomo", *READ, "full", *TRAINED, "--setting", "frozen,oracle", "--limit", "240"),
}
RUNS: dict[str, tuple[str, ...]] = {
    "locomo-found": ("locomo", *FOUND, "--reader", "none"),
    **HEADLINE,
}
NOT_RUN = {
    "cognee": "1.6.5 weighs nodes of a graph that a language model extracts; without one there is nothing to weigh",
    "ace-agent": "is in no package index; its counters choose nothing in the released code",
    "mem0 with a language model": "infer=True asks a model for facts at each write: another memory is then measured, the model's",
    "mem0 with spaCy": "its English model is in no package index: no boost for named entities, no lemmas",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/eval"))
    parser.add_argument("--reader-runs", type=Path, default=Path("runs"), help="the folder that holds the run `demo`")
    parser.add_argument("--only", nargs="*", default=list(RUNS), choices=list(RUNS))
    options = parser.parse_args()
    for name in options.only:
        words = list(RUNS[name])
        if words[0].startswith("locomo"):
            words += ["--data", options.data]
        if name in HEADLINE:
            words += ["--runs", str(options.reader_runs)]
        folder = options.runs / name
        command = [sys.executable, "-m", "keepworth", "eval", "run", *by_command(words, options.python)]
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([*command, "--out", str(folder)], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        kept = numbers(json.loads(by_name((folder / "summary.json").read_text(), options.python)))
        if "keepworth" in kept["gains"]:
            kept["over keepworth"] = over_ours(folder, score)
        if "keepworth" in kept["arms"]:
            kept["evidence over keepworth"] = {
                depth: over_ours(folder, lambda row, depth=depth: row.recall.get(depth)) for depth in DEPTHS
            }
        kept["command"] = f"keepworth eval run {' '.join(RUNS[name])}"
        kept["machine"] = {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "load average": os.getloadavg()[0],
            "temporary files": "in memory" if tempfile.gettempdir().startswith("/dev/shm") else "on disk",
        }
        kept["seconds"] = {
            "of the command": time.perf_counter() - began,
            "of processor": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        }
        kept["not run"] = NOT_RUN
        (HERE / f"{name}.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def over_ours(folder: Path, value: Callable[[Row], float | None]) -> dict[str, Any]:
    """Of each arm that has not the same value question by question, the mean paired difference to ours."""
    by_arm: dict[str, list[Row]] = {}
    for row in rows_of(folder):
        by_arm.setdefault(arm_of(row), []).append(row)
    values = {arm: {(row.key, row.seed): value(row) for row in rows} for arm, rows in by_arm.items()}
    same = [arm for arm in values if arm != "keepworth" and values[arm] == values["keepworth"]]
    return gains({arm: rows for arm, rows in by_arm.items() if arm not in same}, "keepworth", value)


def numbers(summary: dict[str, Any]) -> dict[str, Any]:
    """The summary without what a system printed, which may repeat what it was told."""
    arms = {arm: {**values, "errors": sum(values["errors"].values())} for arm, values in summary["arms"].items()}
    return {**summary, "arms": {arm: {**own, "unjudged": len(own["unjudged"])} for arm, own in arms.items()}}


if __name__ == "__main__":
    main()
