"""How adds, searches, opening and size grow from a thousand items to a million: a table and a picture.

python -m benchmarks.memory.growth --sizes 1000 10000 100000 1000000 --picture docs/images/memory_growth.svg
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

CURVES = {
    "add one": "add one (ms)",
    "search by meaning (exact)": "search by meaning (ms)",
    "search one user (1 %)": "search one user (ms)",
    "search by words": "search by words (ms)",
    "open to first result": "open to first result (ms)",
    "bytes per item": "bytes per item",
}


def measured(size: int, index: str) -> dict[str, Any]:
    """In this process: the figures of one size, and the most memory it took."""
    from recollect.memory.measure import figures

    with tempfile.TemporaryDirectory() as folder:
        rows = [asdict(figure) for figure in figures(size, Path(folder), index=index)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"size": size, "peak_bytes": peak, "figures": rows}


def picture(records: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(10, 5.5), layout="constrained")
    axes = drawing.subplots(2, 3)
    sizes = [record["size"] for record in records]
    for axis, (name, title) in zip(axes.flat, CURVES.items(), strict=True):
        found = [next(row for row in record["figures"] if row["name"] == name) for record in records]
        axis.plot(sizes, [row["p50"] for row in found], "o-", color="#0b6e99", label="p50")
        if any(row["p95"] for row in found):
            axis.plot(sizes, [row["p95"] for row in found], "o:", color="#0b6e99", alpha=0.6, label="p95")
        if any(row["limit"] for row in found):
            axis.plot(sizes, [row["limit"] for row in found], "k--", linewidth=1, label="limit of one thread")
        axis.set(title=title, xscale="log", yscale="log" if name != "bytes per item" else "linear")
        axis.grid(alpha=0.3)
    axes.flat[1].legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--index", default="exact")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measured(arguments.one, arguments.index)))
        return
    records = []
    for size in arguments.sizes:
        # A process per size, so that the memory of one is not counted for the next.
        command = [sys.executable, "-m", "benchmarks.memory.growth", "--one", str(size), "--index", arguments.index]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        records.append(json.loads(done.stdout.splitlines()[-1]))
        print(
            f"\n{size:,} items, at most {records[-1]['peak_bytes'] / 1e6:,.0f} MB (the benchmark's own vectors included)"
        )
        for row in records[-1]["figures"]:
            limit = f"  limit {row['limit']:.3g}" if row["limit"] else ""
            print(f"  {row['name']:<34} {row['p50']:>10.4g} {row['unit']}{limit}")
    if arguments.json:
        arguments.json.write_text(json.dumps(records, indent=1))
    if arguments.picture:
        picture(records, arguments.picture)


if __name__ == "__main__":
    main()
