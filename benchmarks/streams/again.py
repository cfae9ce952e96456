"""Do the stored tables of streams come out again? Arms are run anew and compared with what is stored, cell by cell.

    python -m benchmarks.streams.again --arms advantage,nearest-mean --out benchmarks/streams/results/again.json

A run is a function of its stream, its seed and its settings, so that a change that should change nothing must leave every number
as it is.
"""

from __future__ import annotations

import argparse
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.cli.evaluate import run_job

RESULTS = Path(__file__).parent / "results"
TABLES = ("parts", "several-steps", "seen-before", "one-step")


def compared(table: str, arms: list[str]) -> list[dict[str, Any]]:
    """One row per stream and arm of a stored table that was made in one run."""
    stored = json.loads((RESULTS / f"{table}.json").read_text())
    plan, rows = stored["plan"], []
    chosen = [arm for arm in arms if arm in plan["arms"]]
    for stream in plan["streams"]:
        found = [
            row
            for seed in range(stored["seeds"])
            for order in plan["orders"]
            for row in run_job(
                (stream, order, seed),
                arms=tuple(chosen),
                split=plan["split"],
                length=plan["length"],
                settings=plan["settings"],
                data=None,
                agent=plan["agent"],
            )
        ]
        for arm in chosen:
            own = [row for row in found if row.arm == arm]
            now = (
                np.mean([row.auc for row in own]),
                np.mean([np.mean([int(bit) for bit in row.held_out_bits]) for row in own]),
            )
            then = (stored["table"][stream][arm]["auc"], stored["table"][stream][arm]["held_out"])
            same = all(abs(new - old) < 1e-6 for new, old in zip(now, then, strict=True))
            rows.append(
                {
                    "table": table,
                    "stream": stream,
                    "arm": arm,
                    "runs": len(own),
                    "success": [then[0], round(float(now[0]), 6)],
                    "held_out": [then[1], round(float(now[1]), 6)],
                    "same": same,
                }
            )
            print(table, stream, arm, "same" if same else f"stored {then}, now {now}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--arms", default="advantage,nearest-mean")
    parser.add_argument("--out", type=Path, default=RESULTS / "again.json")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for table in options.tables.split(","):
        rows += compared(table, options.arms.split(","))
        written = {
            "command": f"python -m benchmarks.streams.again --tables {options.tables} --arms {options.arms}",
            "versions": {"numpy": version("numpy"), "keepworth": version("keepworth")},
            "rows": rows,
        }
        options.out.write_text(json.dumps(written, indent=1) + "\n")
    print(f"{sum(row['same'] for row in rows)} of {len(rows)} cells are the same")


if __name__ == "__main__":
    main()
