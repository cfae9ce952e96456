"""How adds, searches, opening and size grow from a thousand items to a million: a table and a picture.

    python -m benchmarks.memory.growth --sizes 1000 10000 100000 1000000 \\
        --json benchmarks/memory/growth.json --picture docs/images/memory_growth.png

    python -m benchmarks.memory.growth --cold --sizes 10000 100000 300000 --json benchmarks/memory/cold.json

Each size is measured in a process of its own. --cold: only the first searches of new processes, of a memory as it was left,
taught and not compacted. Sizes that are in the JSON and not asked for stay as they are; with no sizes the picture alone is drawn
anew.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any


def measured(size: int, cold: bool) -> dict[str, Any]:
    """In this process: the figures of one size, and the most memory it took, the benchmark's own vectors included."""
    from benchmarks.memory.engine import cold_figures, figures, machine

    setting = machine()
    with tempfile.TemporaryDirectory() as folder:
        rows = [asdict(figure) for figure in (cold_figures if cold else figures)(size, Path(folder))]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"size": size, "seed": 0, "machine": setting, "peak_bytes": peak, "figures": rows}


BLUE, ORANGE, GREEN, GREY = "#0b6e99", "#c4601d", "#3a7d44", "#555555"


def picture(records: list[dict[str, Any]], path: Path) -> None:
    """Four panels over the number of items: adding, searching, opening and size."""
    from matplotlib.figure import Figure

    sizes = [record["size"] for record in records]

    def line(name: str, part: str = "p50") -> list[float]:
        found = [next(row for row in record["figures"] if row["name"].startswith(name)) for record in records]
        return [row[part] for row in found]

    drawing = Figure(figsize=(11, 7), layout="constrained", dpi=150)
    adding, searching, opening, size = drawing.subplots(2, 2).flat
    adding.plot(sizes, line("add one"), "o-", color=BLUE, label="add one, median")
    adding.plot(sizes, line("add one", "p95"), "o:", color=BLUE, label="add one, 95th percentile")
    adding.plot(
        sizes, [1000 / rate for rate in line("add, batches")], "s-", color=GREEN, label="in batches of 1000, each"
    )
    adding.set(title="Adding", ylabel="milliseconds", yscale="log", ylim=(0.03, 8))
    searching.plot(sizes, line("search by meaning"), "o-", color=BLUE, label="by meaning, exact")
    searching.plot(
        sizes, line("search by meaning", "limit"), "--", color=GREY, label="limit: one thread reads the vectors"
    )
    searching.plot(sizes, line("search by words"), "s-", color=ORANGE, label="by words")
    searching.plot(sizes, line("search by both"), "D-", color="#7a4fa3", label="by both")
    searching.plot(sizes, line("search one user"), "^-", color=GREEN, label="by meaning, in one user's 1 %")
    searching.set(title="Searching (median, encoding excluded)", ylabel="milliseconds", yscale="log", ylim=(0.01, 8000))
    opening.plot(sizes, line("first search by meaning"), "o-", color=BLUE, label="by meaning")
    opening.plot(sizes, line("first search by both"), "D-", color="#7a4fa3", label="by both")
    opening.plot(sizes, line("first search with a filter"), "^-", color=GREEN, label="with a filter")
    opening.set(title="The first search of a new process", ylabel="milliseconds", yscale="log")
    size.plot(sizes, line("bytes per item"), "o-", color=BLUE, label="file: text, vectors, indexes, journal")
    size.axhline(4 * 384, color=GREY, linestyle="--", linewidth=1, label="of it the vector, 384 float32")
    size.set(title="Size on disk", ylabel="bytes per item", ylim=(0, None))
    for axis in (adding, searching, opening):
        axis.yaxis.set_major_formatter("{x:g}")
    for axis in (adding, searching, opening, size):
        axis.set(xscale="log", xlabel="items in the memory")
        axis.set_xticks(sizes, [_short(number) for number in sizes])
        axis.minorticks_off()
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(fontsize="small", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path)


def _short(number: int) -> str:
    return f"{number // 1_000_000}M" if number >= 1_000_000 else f"{number // 1000}k"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[])
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measured(arguments.one, arguments.cold)))
        return
    records = json.loads(arguments.json.read_text()) if arguments.json.exists() else []
    for size in arguments.sizes:
        command = [sys.executable, "-m", "benchmarks.memory.growth", "--one", str(size)]
        command += ["--json", str(arguments.json), *(["--cold"] if arguments.cold else [])]
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **threads})
        fresh = json.loads(done.stdout.splitlines()[-1])
        records = sorted([*(one for one in records if one["size"] != size), fresh], key=lambda one: one["size"])
        arguments.json.write_text(json.dumps(records, indent=1) + "\n")
        print(f"\n{size:,} items, at most {fresh['peak_bytes'] / 1e6:,.0f} MB (the benchmark's own vectors included)")
        for row in fresh["figures"]:
            limit = f"  limit {row['limit']:.3g}" if row["limit"] else ""
            print(f"  {row['name']:<46} {row['p50']:>10.4g} {row['unit']}{limit}", flush=True)
    if arguments.picture:
        picture(records, arguments.picture)


if __name__ == "__main__":
    main()
