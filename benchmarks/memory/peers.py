"""Other memory stores beside ours, on the same texts and vectors, in one run, each in a process of its own.

    python -m benchmarks.memory.peers --size 100000 --seconds 600 --json benchmarks/memory/peers.json

What is done is described in `keepworth.evaluation.peers`; `keepworth bench memory --peers` does the same after measuring
the engine. Install what should take part, best in an environment of its own (and put `src` on PYTHONPATH):

    pip install apsw numpy mem0ai qdrant-client chromadb lancedb sqlite-vec langgraph-checkpoint-sqlite pysqlite3-binary
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from keepworth.evaluation.engine import machine
from keepworth.evaluation.peers import KEYS, STORES, Bounds, beside, named, sync_here


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--common", type=int, default=500, help="where all stores are compared")
    parser.add_argument("--seconds", type=float, default=600.0, help="at most, to fill one store")
    parser.add_argument("--only", nargs="*", choices=[store.name for store in STORES], help="instead of all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slower-sync", type=float, default=0.0, help="milliseconds a disk sync takes longer (strace)")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    bounds = Bounds(arguments.size, arguments.common, arguments.seconds, arguments.seed, arguments.slower_sync)
    setting, sync = machine(), sync_here() + bounds.slower_sync
    print(f"one disk sync takes {sync:.2f} ms here\n")
    head = "items | add p50 / p95 ms | search all | search one user (1 %)"
    print(f"| store | syncs per add | {head} | {head} |")
    print("| --- " * 10 + "|")
    rows = []
    for record in beside(bounds, [named(name) for name in arguments.only] if arguments.only else STORES):
        rows.append(record)
        print(_row(record), flush=True)
        if arguments.json:
            whole = {**asdict(bounds), "sync_ms": sync, "machine": setting, "rows": rows}
            arguments.json.write_text(json.dumps(whole, indent=1) + "\n")


def _row(record: dict[str, Any]) -> str:
    if "did not run" in record:
        return f"| {record['name']} | did not run: {record['did not run'][:120]} |"
    syncs = "" if record["syncs per add"] is None else f"{record['syncs per add']:.1f}"
    return f"| {record['name']} | {syncs} | {_cells(record, 'at common size')} | {_cells(record, 'at the end')} |"


def _cells(record: dict[str, Any], where: str) -> str:
    figures = record.get(where)
    if figures is None:
        return "not reached | | |"
    shown = ["{:.3g} / {:.3g}".format(*figures[key]) if key in figures else "not offered" for key in KEYS]
    return " | ".join([f"{figures['items']:,}", *shown])


if __name__ == "__main__":
    main()
